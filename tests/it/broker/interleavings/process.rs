//! A gateway process without sockets: broker, revocation set and token cache, connected as in the product, with a store
//! behind a gate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bearward::auth::authenticate::{Authenticator, Caller};
use bearward::auth::bad_signatures::BadSignatures;
use bearward::auth::bearer;
use bearward::auth::context::AuthContext;
use bearward::auth::identity::Identity;
use bearward::auth::keyring::{Keyring, Keys, OwnIssuer};
use bearward::auth::known_tokens::KnownTokens;
use bearward::auth::proof_verifier::ProofVerifier;
use bearward::auth::proofs::{OwnHosts, ProofRule, Proofs};
use bearward::auth::revocations::Revocations;
use bearward::auth::signature_queue::SignatureQueue;
use bearward::auth::token_cache::TokenCache;
use bearward::broker::keys::OwnKeys;
use bearward::broker::refresh::RefreshRequest;
use bearward::broker::revoke::right_of;
use bearward::broker::{Broker, BrokerSettings, Detached, ReportCounts, TokenPair};
use bearward::limits::limiter::Rate;
use bearward::limits::throttle::{Throttle, ThrottleSettings};
use bearward::store::{RevocationStore, RevokedBy};
use bearward::telemetry::metrics::{Metrics, WorkerMetrics};
use bearward::tokens::audit_event::EventContext;
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::tokens::jwt::sign::{SigningKey, verifying_keys};
use bearward::tokens::jwt::verify::TrustedIssuer;
use bearward::tokens::jwt::{Algorithm, Audience, Confirmation, Issuer, NeededAudience};
use bearward::tokens::login::Login;
use bearward::types::clock::{Clock, SteadyClock, SystemClock, UnixTime, Uptime};
use bearward::types::ids::TokenId;
use bearward::types::reject::Reject;
use bearward::types::step::StepReporter;
use http::{HeaderMap, header};
use serde_json::json;

use super::gate::Gate;
use crate::store::suite::records::Place;
use crate::support::gateway::AUDIENCE;
use crate::support::given::{ISSUER, LIFETIMES, roots};
use crate::support::wait::run_ready;

const TOKEN_SIZE: usize = 8 << 10;

pub(super) struct Process {
    pub(super) gate: Arc<Gate>,
    broker: Broker,
    clock: Arc<OrderedClock>,
    authenticator: Authenticator,
    failures: BadSignatures,
    signature_queue: SignatureQueue,
    metrics: Arc<WorkerMetrics>,
}

/// The time of the newest refresh. It never goes back.
struct OrderedClock(AtomicU64);

impl Clock for OrderedClock {
    fn now(&self) -> UnixTime {
        UnixTime::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn uptime(&self) -> Uptime {
        Uptime::default()
    }
}

impl Process {
    /// Opens the store and loads the revocation set, as a start of the gateway does.
    pub(super) async fn start(place: &dyn Place, key: &str, now: UnixTime) -> Process {
        let clock = Arc::new(OrderedClock(now.as_millis().into()));
        let revocations = Arc::new(Revocations::new());
        let enforcing = revocations.clone();
        let gate =
            Arc::new(Gate::open(place, Arc::new(move |revocation: &Revocation, _| enforcing.enforce(revocation))));
        for entry in gate.revocations_since(0).await.expect("reads") {
            revocations.enforce(&entry);
        }
        let keyring = Arc::new(Keyring::new(keys(key)));
        let broker = Broker {
            settings: BrokerSettings {
                issuer: ISSUER.into(),
                audience: vec![AUDIENCE.into()],
                resources: Vec::new(),
                lifetimes: LIFETIMES,
                token_size: TOKEN_SIZE,
                sessions_per_subject: 100,
                store_timeout: Duration::from_hours(1),
                expires_at_milliseconds: false,
                lifetime_jitter: 5,
                extra_fields: true,
                certificate_bound: false,
            },
            refresh_turns: Default::default(),
            refreshes: Default::default(),
            store: gate.clone(),
            roots: Arc::new(roots()),
            keyring: keyring.clone(),
            own_keys: Arc::new(OwnKeys::new(None, Vec::new(), keyring.clone(), now)),
            seen_generations: Arc::default(),
            throttle: Arc::new(Throttle::new(
                &ThrottleSettings { refreshes: None, calls: None, failures: None },
                Arc::new(SystemClock),
            )),
            reports: ReportCounts::default(),
            detached: Detached::here(),
            clock: Arc::new(SteadyClock::new(clock.clone())),
        };
        let identity = Identity {
            subject: None,
            scope: None,
            token_id: None,
            issuer: None,
            claims: vec![],
            certificate: Default::default(),
        };
        let authenticator = Authenticator {
            known: KnownTokens {
                keyring,
                revocations,
                token_cache: Arc::new(TokenCache::new(1 << 20)),
                seen_generations: broker.seen_generations.clone(),
                renewals: Arc::default(),
                lookups: Default::default(),
                identity,
            },
            api_keys: Arc::default(),
            introspection: Arc::default(),
            handles: Arc::default(),
            proof_verifier: ProofVerifier {
                proofs: Proofs::of_process(UnixTime::default()),
                own_hosts: OwnHosts::default(),
                max_used: 1_000_000,
            },
            freshness: None,
            token_size: TOKEN_SIZE,
        };
        let rate = Rate { burst: 1, interval: Duration::from_secs(1) };
        let failures = BadSignatures::new(rate, rate, 1);
        Process {
            gate,
            broker,
            clock,
            authenticator,
            failures,
            signature_queue: SignatureQueue::new(),
            metrics: Metrics::new(1).worker(0),
        }
    }

    fn context(&self, now: UnixTime) -> AuthContext<'_> {
        AuthContext {
            now,
            clock: &SystemClock,
            payer: self.failures.of_address([192, 0, 2, 7].into()),
            signature_queue: &self.signature_queue,
            metrics: &self.metrics,
            serves_stale: None,
            api_keys: false,
            provider: None,
            audience: NeededAudience::Gateway,
            proof: ProofRule::IfBound,
            presented: None,
            rejected_token: None,
            steps: StepReporter::OFF,
        }
    }

    /// Authenticates a request that would be forwarded.
    pub(super) fn admit(&self, access: &str, now: UnixTime) -> Result<Caller, Reject> {
        let headers = bearer_headers(access);
        let bearer = bearer::find(&headers, TOKEN_SIZE)?;
        run_ready(self.authenticator.authenticate(bearer, &self.context(now)))
    }

    /// `POST /admin/v1/tokens`
    pub(super) async fn issue(&self, subject: &str, now: UnixTime) -> Result<TokenPair, Reject> {
        let login = Login { subject: subject.into(), ..Login::default() };
        self.broker.issue(login, now.into()).await
    }

    /// A captured login, from the head of the backend's response on.
    pub(super) async fn capture(&self, subject: &str, now: UnixTime) -> Result<TokenPair, Reject> {
        // Other operations can run before the body of the response arrives.
        tokio::task::yield_now().await;
        let login = Login { subject: subject.into(), ..Login::default() };
        self.broker.issue(login, now.into()).await
    }

    /// `POST /user/refresh`
    pub(super) async fn refresh(&self, access: &str, refresh: &str, now: UnixTime) -> Result<TokenPair, Reject> {
        let mut headers = bearer_headers(access);
        headers.insert(header::CONTENT_TYPE, "application/json".parse().expect("a value"));
        let request = RefreshRequest::read(&headers, json!({ "refreshToken": refresh }).to_string().as_bytes())?;
        let (bearer, proved) =
            run_ready(self.authenticator.authenticate_refresh(&headers, LIFETIMES.idle, &self.context(now)))?;
        self.clock.0.fetch_max(now.as_millis(), Ordering::Relaxed);
        self.broker.refresh(request, &bearer, proved, now.into()).await
    }

    /// `DELETE /token/{tokenId}`
    pub(super) async fn log_out(&self, access: &str, family: TokenId, now: UnixTime) -> Result<(), Reject> {
        let caller = self.admit(access, now)?;
        let (family, by) = right_of(&caller, Some(family))?;
        self.broker.revoke_family(family, by, now.into()).await
    }

    /// A revocation by an operator.
    pub(super) async fn revoke(&self, family: TokenId, now: UnixTime) -> Result<(), Reject> {
        self.broker.revoke_family(family, RevokedBy::Admin, now.into()).await
    }

    /// Revokes all sessions of a subject, or of all subjects, up to `now`.
    pub(super) async fn revoke_all(&self, subject: Option<String>, now: UnixTime) -> Result<(), Reject> {
        let what = match subject {
            Some(subject) => Revoked::Subject { issuer: ISSUER.into(), subject, not_after: now },
            None => Revoked::Everything { not_after: now },
        };
        // It need not wait until the next login is dated later: each operation here has a time of its own.
        self.clock.0.fetch_max((now + Duration::from_millis(1)).as_millis(), Ordering::Relaxed);
        self.broker.revoke_named(what, EventContext::from(now)).await
    }

    /// Writes the seen generations, as the gateway does twice a second.
    pub(super) async fn write_confirmations(&self) -> Result<(), Reject> {
        let seen = self.broker.seen_generations.begin_write();
        let written = self.broker.store.confirm(seen).await;
        self.broker.seen_generations.end_write();
        Ok(written?)
    }
}

fn bearer_headers(access: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, format!("Bearer {access}").parse().expect("a token is ASCII"));
    headers
}

fn keys(pem: &str) -> Keys {
    let signing = SigningKey::from_pem(pem.as_bytes(), Algorithm::EdDSA).expect("a key");
    let own = Issuer {
        issuer: ISSUER.into(),
        audience: Audience::OneOf(vec![AUDIENCE.into()]),
        resources: Vec::new(),
        algorithms: vec![Algorithm::EdDSA],
        types: vec!["at+jwt".into()],
        clock_skew: Duration::from_secs(5),
        max_lifetime: LIFETIMES.access,
        require_subject: true,
        confirmation: Confirmation::Reject,
        own: true,
    };
    let keys = Arc::new(verifying_keys([&signing]).expect("a key"));
    Keys::new(OwnIssuer::single_key(TrustedIssuer { policy: Arc::new(own), keys }, signing))
}
