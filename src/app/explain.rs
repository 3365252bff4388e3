//! `bearward explain`: how the gateway decides about a request, by the same code.
//!
//! It does not open the store of a running gateway, so it does not know what was revoked. It reads everything else as a
//! start does: routes, rules, the gateway's keys and the keys of other issuers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use http::Request;

use super::auth_state::AuthState;
use super::error::StartError;
use super::issuer_keys::KeyWatch;
use super::own_keys::{self, own_policy};
use crate::auth::bad_signatures::BadSignatures;
use crate::auth::keyring::Keyring;
use crate::auth::signature_queue::SignatureQueue;
use crate::config::Config;
use crate::gateway::context::RequestContext;
use crate::gateway::decide::{Decider, Decision};
use crate::gateway::streams::Streams;
use crate::gateway::worker::Worker;
use crate::limits::concurrency::ConcurrencyLimit;
use crate::protocols::http::forwarded::Origin;
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::WorkerMetrics;
use crate::tokens::jwt::Issuer;
use crate::tokens::jwt::sign::SIGNING;
use crate::types::clock::Clock;
use crate::types::ids::RequestIds;
use crate::types::reject::Reject;
use crate::types::trace::{Step, Trace};

/// Size of the token cache in bytes: too small for a token, because a cached one skips the steps to show.
const CACHE_SIZE: usize = 1 << 10;

pub struct Explainer {
    decider: Decider,
    clock: Arc<dyn Clock>,
    /// It has no connections, and serves the one request.
    worker: Worker,
    /// Keeps the fetched keys up to date.
    _keys: KeyWatch,
}

/// The steps with their results, and the outcome.
pub struct Explanation {
    pub steps: Vec<(Step, String)>,
    pub outcome: Outcome,
}

pub enum Outcome {
    /// The gateway forwards the request.
    Allowed,
    /// The gateway forwards the request, because its route has `enforce = false`.
    Observed(Arc<Reject>),
    Rejected(Reject),
    /// The gateway responds itself. The text completes the sentence "the gateway itself …".
    Local(&'static str),
}

/// The rules for the tokens of each issuer, the gateway itself first.
pub fn policies(config: &Config) -> Vec<Issuer> {
    let own = own_policy(&config.tokens, SIGNING.to_vec());
    [own].into_iter().chain(config.issuers.iter().map(|issuer| issuer.policy.clone())).collect()
}

impl Explainer {
    /// Fetches the keys of other issuers. Call and use it on a runtime.
    pub async fn prepare(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        let keyring = Arc::new(Keyring::new(own_keys::read_only(config, clock.now())?));
        let keys = KeyWatch::new(keyring.clone(), clock.clone());
        keys.start(&config.issuers).await?;
        let auth = AuthState::new(keyring, Arc::default());
        let worker = worker(config, &auth, clock.clone());
        Ok(Explainer { decider: auth.decider(config, CACHE_SIZE), clock, worker, _keys: keys })
    }

    /// `tls`: the request arrives over TLS, and the SNI name is its `Host`.
    pub async fn explain<B>(&self, request: &Request<B>, tls: bool) -> Explanation {
        let steps = Mutex::new(Vec::new());
        let listener = |step, result| {
            let result = match step {
                Step::Revocation => "not checked: the running gateway has the store".to_owned(),
                _ => result,
            };
            steps.lock().unwrap_or_else(PoisonError::into_inner).push((step, result));
        };
        let (mut record, mut route, mut rate_limit_headers, mut upload) = (Record::default(), None, None, None);
        let mut context = RequestContext {
            now: self.clock.now(),
            clock: &*self.clock,
            origin: &Origin::new(IpAddr::V4(Ipv4Addr::LOCALHOST), tls),
            sni: None,
            route: &mut route,
            worker: &self.worker,
            record: &mut record,
            rate_limit_headers: &mut rate_limit_headers,
            upload: &mut upload,
            trace: Trace::to(&listener),
        };
        let decision = self.decider.decide(request, &mut context).await;
        let outcome = match decision {
            Err(reject) => Outcome::Rejected(reject),
            Ok(Decision::Forward { .. }) => record.observed.map_or(Outcome::Allowed, Outcome::Observed),
            Ok(Decision::Preflight(_)) => Outcome::Local("responds to the CORS preflight"),
            Ok(Decision::Refresh) => Outcome::Local("refreshes the token pair"),
            Ok(Decision::Revoke { .. }) => Outcome::Local("revokes a session"),
            Ok(Decision::Endpoint(endpoint)) => Outcome::Local(endpoint.purpose()),
            Ok(Decision::Metadata) => Outcome::Local("publishes the metadata of this issuer"),
            Ok(Decision::Keys) => Outcome::Local("publishes the gateway's public keys"),
        };
        Explanation { steps: steps.into_inner().unwrap_or_else(PoisonError::into_inner), outcome }
    }
}

/// A worker without connections.
fn worker(config: &Config, auth: &AuthState, clock: Arc<dyn Clock>) -> Worker {
    let metrics = Arc::new(WorkerMetrics::default());
    let limits = &config.limits;
    let bad_signatures = BadSignatures::new(limits.bad_signatures, limits.introspected_bad_signatures, 1);
    Worker {
        number: 0,
        request_ids: RequestIds::new(),
        metrics: metrics.clone(),
        streams: Streams::new(auth.token_checks(clock), metrics),
        bad_signatures: Arc::new(bad_signatures),
        signature_queue: SignatureQueue::new(),
        log: None,
        concurrency: ConcurrencyLimit::new(0, 0, 1),
    }
}
