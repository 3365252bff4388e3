//! `bearward explain`: how the gateway decides about a request, by the same code.
//!
//! It reads the same as a start does: routes, rules, the gateway's keys, the keys of other issuers and the revocations.
//! It opens the database read-only, also while a gateway runs. A revocation is in the database before the gateway
//! enforces it, so what it finds there is what the gateway does. Without the database, it does not guess.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use parking_lot::Mutex;

use super::auth_state::{AuthState, stored_credentials};
use super::error::StartError;
use super::explain_authorization::AuthorizationQuestions;
use super::explain_certificate::AskingListeners;
use super::explain_unknown::{Unknown, unless_revoked};
use super::issuer_keys::KeyWatch;
use super::own_calls::{Failure, OwnCalls, Sessions};
use super::own_keys::{self, own_policy};
use super::shared_state::SharedState;
use super::stored;
use crate::auth::api_keys::ApiKeys;
use crate::auth::bad_signatures::BadSignatures;
use crate::auth::handles::Handles;
use crate::auth::keyring::Keyring;
use crate::auth::revocations::Revocations;
use crate::auth::signature_queue::SignatureQueue;
use crate::config::{Config, StoreSettings};
use crate::gateway::Gateway;
use crate::gateway::authorize::Permit;
use crate::gateway::context::RequestContext;
use crate::gateway::decide::{Decider, Decision};
use crate::gateway::explanation::{Explanation, Outcome};
use crate::gateway::rates::quotas;
use crate::gateway::source::Source;
use crate::gateway::streams::Streams;
use crate::gateway::used_proof;
use crate::gateway::worker::Worker;
use crate::limits::concurrency::ConcurrencyLimit;
use crate::limits::throttle::{Throttle, ThrottleSettings};
use crate::protocols::http::forwarded::ForwardedClient;
use crate::protocols::tls::ClientChain;
use crate::store::{StoreError, StoreFuture};
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::{RequestsByRoute, WorkerMetrics};
use crate::tokens::dpop::PublicUrl;
use crate::tokens::family::Family;
use crate::tokens::jwt::Issuer;
use crate::tokens::jwt::sign::SIGNING;
use crate::types::clock::{Clock, UnixTime};
use crate::types::ids::RequestIds;
use crate::types::reject::{Reason, Reject, with_causes};
use crate::types::step::{Step, StepReporter};

/// Size of the token cache in bytes: too small for a token, because a cached one skips the steps to show.
const CACHE_SIZE: usize = 1 << 10;

pub struct Explainer {
    decider: Decider,
    own_calls: OwnCalls,
    clock: Arc<dyn Clock>,
    unknown: Unknown,
    /// `tokens.issuer`, if it does not know the keys that have signed this issuer's tokens.
    keys_unknown_of: Option<String>,
    /// `public_url` of the first listener that has one.
    public_url: Option<Arc<PublicUrl>>,
    /// It has no connections, and serves the one request.
    worker: Worker,
    listeners: AskingListeners,
    /// What the client shows in its handshake.
    shown: Option<ClientChain>,
    /// Keeps the fetched keys up to date. A running gateway does it itself.
    _keys: Option<KeyWatch>,
}

/// The rules for the tokens of each issuer, the gateway itself first.
pub fn policies(config: &Config) -> Vec<Issuer> {
    let own = own_policy(&config.tokens, SIGNING.to_vec());
    [own].into_iter().chain(config.issuers.iter().map(|issuer| issuer.policy.clone())).collect()
}

impl Explainer {
    /// Fetches the keys of other issuers. Call and use it on a runtime.
    pub async fn prepare(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        let stored = own_keys::find(config, clock.now())?;
        let keys_unknown_of = stored.is_none().then(|| config.tokens.issuer.clone());
        let keyring = Arc::new(Keyring::new(stored.map_or_else(|| own_keys::unused(&config.tokens), Ok)?));
        let keys = KeyWatch::new(keyring.clone(), clock.clone(), config.file_poll);
        keys.start(&config.issuers).await?;
        let (revocations, revocations_unknown) = match revocations(&config.store) {
            Ok(revocations) => (revocations, None),
            Err(unknown) => (Revocations::new(), Some(unknown)),
        };
        // Of a process that has always run: which proofs another one accepts is not known here.
        let began = UnixTime::default();
        let auth = AuthState::new(keyring, Arc::new(revocations), api_keys(config), Handles::default(), None, began);
        let auth = auth.without_effects();
        let limits = &config.limits;
        let bad_signatures = BadSignatures::new(limits.bad_signatures, limits.introspected_bad_signatures, 1);
        let worker = worker(bad_signatures, &auth, clock.clone());
        let sessions = Sessions::Database(config.store.clone());
        // Other calls are not known here, so that nothing limits this one.
        let throttle = Throttle::new(&ThrottleSettings::default(), clock.clone());
        let unknown = Unknown { revocations: revocations_unknown, proofs: true, nonces: config.tokens.proof_nonce };
        let authorization = AuthorizationQuestions::of_files(config);
        let own_calls = OwnCalls::new(config, sessions, authorization, throttle, unknown.clone());
        let decider = decider(&auth, config);
        let listeners = AskingListeners::of(config);
        let shown = None;
        let keys = Some(keys);
        Ok(Explainer {
            decider,
            own_calls,
            clock,
            unknown,
            keys_unknown_of,
            public_url: public_url(config),
            worker,
            listeners,
            shown,
            _keys: keys,
        })
    }

    /// With the keys, revocations, sessions and limits of a running gateway. It counts nothing.
    pub(super) fn of_running(config: &Config, state: &SharedState) -> Self {
        let auth = state.auth.without_effects();
        let clock = state.clock.clone();
        Explainer {
            decider: decider(&auth, config),
            own_calls: OwnCalls::new(
                config,
                Sessions::Store(state.store.clone()),
                AuthorizationQuestions::new(config, state.broker.roots.clone(), state.authorization.documents.clone()),
                state.broker.throttle.without_counting(),
                Unknown::default(),
            ),
            worker: worker(state.bad_signatures.without_counting(), &auth, clock.clone()),
            clock,
            unknown: Unknown::default(),
            keys_unknown_of: None,
            listeners: AskingListeners::of(config),
            shown: None,
            public_url: public_url(config),
            _keys: None,
        }
    }

    /// About a client that shows this chain in its handshake.
    pub fn showing(self, chain: Option<ClientChain>) -> Self {
        Explainer { shown: chain, ..self }
    }

    /// `tls`: the request arrives over TLS, and the SNI name is its `Host`.
    pub async fn explain<B>(&self, request: &Request<B>, tls: bool) -> Explanation {
        self.explain_from(request, &ForwardedClient::new(IpAddr::V4(Ipv4Addr::LOCALHOST), tls), None).await
    }

    /// `gateway`: the running gateway that has the rates.
    pub(super) async fn explain_from<B>(
        &self,
        request: &Request<B>,
        client: &ForwardedClient,
        gateway: Option<&Gateway>,
    ) -> Explanation {
        let steps = Mutex::new(Vec::new());
        let listener = |step, result| {
            let result = match &self.unknown.revocations {
                Some(why) if step == Step::Revocation => format!("unknown: {why}"),
                _ => result,
            };
            steps.lock().push((step, result));
        };
        let now = self.clock.now();
        let accepted = match self.shown.as_ref().map(|chain| self.listeners.accept(chain, now)).transpose() {
            Ok(accepted) => accepted,
            Err(reject) => return Explanation { steps: Vec::new(), outcome: Outcome::Rejected(reject) },
        };
        // A proof is compared with the request of the record.
        let method = request.method().clone();
        let uri = request.uri().clone();
        let mut record = Record { method, uri, ..Record::default() };
        let mut route = None;
        let mut rate_limit_headers = None;
        let mut upload = None;
        let mut source = Source::client(client);
        source.certificate = accepted.as_ref().map(|accepted| accepted.certificate.clone());
        source.public_url = self.public_url.as_deref();
        let mut context = RequestContext {
            now,
            clock: &*self.clock,
            source: &source,
            route: &mut route,
            worker: &self.worker,
            record: &mut record,
            rate_limit_headers: &mut rate_limit_headers,
            upload: &mut upload,
            steps: StepReporter::to(&listener),
        };
        if let Some(accepted) = accepted {
            context.steps.report(Step::Certificate, || accepted.found);
        }
        let decision = match self.decider.check_header_list(request) {
            Ok(()) => self.decider.decide(request, &mut context).await,
            Err(large) => Err(large),
        };
        let path = request.uri().path();
        let of_gateway = |gateway: &Gateway| quotas(&gateway.rates, &gateway.decider, &decision, path, &context);
        let quotas = gateway.map(of_gateway);
        let decision = used_proof::use_up(decision, &self.decider.authenticator, &mut context).await;
        let mut outcome = self.outcome(decision, request, &mut context).await;
        let mut limited = None;
        for (name, quota) in quotas.into_iter().flatten() {
            context.steps.report(Step::Rate, || format!("{name}: {} left", quota.remaining));
            // The gateway stops at the first one.
            if quota.retry_after.is_some() && limited.is_none() {
                limited = Some(name);
            }
        }
        if let Some(name) = limited {
            outcome = Outcome::Rejected(Reject::new(Reason::QuotaExceeded, format!("rate {name}")));
        }
        let steps = steps.into_inner();
        let outcome = self.unless_keys_are_unknown(outcome, &steps);
        let outcome = self.unless_nonces_are_unknown(self.with_fetch_error(outcome, &steps));
        Explanation { steps, outcome }
    }

    fn unless_nonces_are_unknown(&self, outcome: Outcome) -> Outcome {
        let Outcome::Rejected(reject) = &outcome else { return outcome };
        self.unknown.about_time_of_proof(reject).map_or(outcome, Outcome::Unknown)
    }

    /// Says why the keys are missing.
    fn with_fetch_error(&self, outcome: Outcome, steps: &[(Step, String)]) -> Outcome {
        let error = issuer_of(steps).and_then(|issuer| self.decider.authenticator.known.keyring.fetch_error(issuer));
        match (outcome, error) {
            (Outcome::Rejected(mut reject), Some(error)) if reject.reason == Reason::KeysUnavailable => {
                reject.detail = format!("{}: {error}", reject.detail).into();
                Outcome::Rejected(reject)
            }
            (outcome, _) => outcome,
        }
    }

    /// Without the database, the keys of this gateway's own tokens are unknown, and that is no reason to reject one.
    fn unless_keys_are_unknown(&self, outcome: Outcome, steps: &[(Step, String)]) -> Outcome {
        let issuer = issuer_of(steps);
        match (outcome, &self.unknown.revocations) {
            (Outcome::Rejected(reject), Some(why))
                if reject.reason == Reason::UnknownKey
                    && issuer.is_some()
                    && issuer == self.keys_unknown_of.as_deref() =>
            {
                Outcome::Unknown(format!(
                    "the keys that sign this gateway's tokens are in its store, which cannot be read ({why}); \
                     run the command where the gateway runs"
                ))
            }
            (outcome, _) => outcome,
        }
    }

    async fn outcome<B>(
        &self,
        decision: Result<Decision, Reject>,
        request: &Request<B>,
        context: &mut RequestContext<'_>,
    ) -> Outcome {
        let calls = &self.own_calls;
        let with = &self.decider.authenticator;
        let headers = request.headers();
        let done = match decision {
            Err(reject) => calls.refresh_cookie(request, reject, with, context).await,
            Ok(Decision::Forward { permit, .. }) => match calls.check_capture(&permit, request, with, context).await {
                Ok(()) => match (self.forwarded(&permit, context), &permit.route().respond) {
                    (Outcome::Allowed, Some(fixed)) => Ok(format!("responds with status {}", fixed.status)),
                    (outcome, _) => return outcome,
                },
                Err(failure) => Err(failure),
            },
            Ok(Decision::Own(call)) => calls.answer(&call, headers, with, context).await,
        };
        match done {
            Ok(done) => Outcome::Local(done),
            Err(Failure::Rejected(reject)) => Outcome::Rejected(reject),
            Err(Failure::Unknown(why)) => Outcome::Unknown(why),
        }
    }

    fn forwarded(&self, permit: &Permit, context: &RequestContext<'_>) -> Outcome {
        if let Some(observed) = &context.record.observed {
            return Outcome::Observed(observed.clone());
        }
        if !permit.route().enforce {
            return Outcome::Allowed;
        }
        let Some(caller) = permit.caller() else { return Outcome::Allowed };
        if let Some(why) = &self.unknown.revocations {
            return Outcome::Unknown(unless_revoked(why));
        }
        let unknown = caller.proof().and_then(|_| self.unknown.about_proof());
        unknown.map_or(Outcome::Allowed, Outcome::Unknown)
    }
}

/// The issuer that the token names.
fn issuer_of(steps: &[(Step, String)]) -> Option<&str> {
    steps.iter().rev().find(|(step, _)| *step == Step::Issuer).map(|(_, issuer)| issuer.as_str())
}

/// The API keys of the database, which another process may have open.
fn api_keys(config: &Config) -> ApiKeys {
    let store = config.store.clone();
    let find = move |id| -> StoreFuture<Option<Family>> {
        let found = stored::family(&store, id).map_err(|error| StoreError::new(with_causes(&error)));
        Box::pin(std::future::ready(found))
    };
    ApiKeys::new(stored_credentials(config), Arc::new(find))
}

/// What the database says is revoked.
///
/// # Errors
/// Why it cannot be read. A database that does not exist is an error: the gateway may run elsewhere.
fn revocations(store: &StoreSettings) -> Result<Revocations, Arc<str>> {
    let unreadable = |error: StartError| Arc::from(error.source().map_or_else(|| with_causes(&error), with_causes));
    if !stored::has_data(store, Duration::ZERO).map_err(unreadable)? {
        return Err(format!("there is no database {}", store.database).into());
    }
    let revocations = Revocations::new();
    for revocation in stored::revocations(store, 0).map_err(unreadable)? {
        revocations.enforce(&revocation);
    }
    Ok(revocations)
}

/// A question names no listener: the names in the certificates of all of them count for a proof.
fn decider(auth: &AuthState, config: &Config) -> Decider {
    let mut decider = auth.decider(config, CACHE_SIZE, &RequestsByRoute::default());
    for listener in &config.listeners {
        decider.authenticator.proof_verifier.own_hosts.extend(listener.tls.names().iter().map(String::as_str));
    }
    decider
}

/// The one of the first listener that has one: a question names no listener.
fn public_url(config: &Config) -> Option<Arc<PublicUrl>> {
    config.listeners.iter().find_map(|listener| listener.public_url.clone())
}

/// A worker without connections.
fn worker(bad_signatures: BadSignatures, auth: &AuthState, clock: Arc<dyn Clock>) -> Worker {
    let metrics = Arc::new(WorkerMetrics::default());
    Worker {
        number: 0,
        request_ids: RequestIds::new(),
        metrics: metrics.clone(),
        streams: Streams::new(auth.token_checks(clock), metrics),
        bad_signatures: Arc::new(bad_signatures),
        signature_queue: SignatureQueue::new(),
        log: None,
        tracer: None,
        rejections: None,
        concurrency: ConcurrencyLimit::new(0, 0, 1),
    }
}
