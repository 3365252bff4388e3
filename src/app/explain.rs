//! What a gateway would say to a request, and why: the judgement that the server makes, asked about a request that somebody
//! has in mind.
//!
//! Nothing of a running gateway is touched. Its store stays its own, so what was revoked is not known here; whatever else
//! decides is read as a start reads it: routes, policies, the gateway's keys, and the keys of other issuers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use http::Request;

use super::keys::KeyWatch;
use super::own_keys::{self, own_policy};
use super::prepare::decider;
use crate::auth::keyring::Keyring;
use crate::auth::signature_queue::SignatureQueue;
use crate::config::Config;
use crate::gateway::context::RequestContext;
use crate::gateway::decide::{Decider, Decision};
use crate::gateway::streams::{Streams, TokenChecks};
use crate::gateway::worker::Worker;
use crate::limits::concurrency::ConcurrencyLimit;
use crate::limits::limiter::Limiter;
use crate::protocols::http::forwarded::Origin;
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::WorkerMetrics;
use crate::tokens::jwt::Issuer;
use crate::tokens::jwt::sign::SIGNING;
use crate::types::clock::Clock;
use crate::types::ids::RequestIds;
use crate::types::reject::Reject;
use crate::types::trace::{Step, Trace};

/// A known token would hide the steps that it once took: the cache here is as good as none.
const CACHE: usize = 1 << 10;

pub struct Explainer {
    decider: Decider,
    clock: Arc<dyn Clock>,
    /// No connection uses it: it serves the one request that is explained.
    worker: Worker,
    /// Keeps fetched keys up to date, as in a server.
    _keys: KeyWatch,
}

/// The steps that were passed, with what was found at each; and what came of it.
pub struct Explanation {
    pub steps: Vec<(Step, String)>,
    pub outcome: Outcome,
}

pub enum Outcome {
    /// The upstream answers.
    Allowed,
    /// The upstream answers, as its route does not enforce the refusal.
    Observed(Arc<Reject>),
    Refused(Reject),
    /// The gateway answers itself, and how takes more than a look at the request.
    Own(&'static str),
}

/// On which terms tokens are accepted: the gateway's own first.
pub fn policies(config: &Config) -> Vec<Issuer> {
    let own = own_policy(&config.tokens, SIGNING.to_vec());
    [own].into_iter().chain(config.issuers.iter().map(|issuer| issuer.policy.clone())).collect()
}

impl Explainer {
    /// Fetches the keys of issuers that are fetched. To be called, and used, on a runtime.
    pub async fn prepare(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let keyring = Arc::new(Keyring::new(own_keys::as_they_are(config, clock.now())?));
        let keys = KeyWatch::new(keyring.clone(), clock.clone());
        keys.start(&config.issuers).await?;
        let decider = decider(config, (keyring, Arc::default()), Default::default(), CACHE);
        let worker = worker(config, &decider, clock.clone());
        Ok(Explainer { decider, clock, worker, _keys: keys })
    }

    /// `tls`: the request comes over TLS, to the name that its Host says.
    pub async fn explain<B>(&self, request: &Request<B>, tls: bool) -> Explanation {
        let steps = Mutex::new(Vec::new());
        let listener = |step, found| {
            let found = match step {
                Step::Revocation => "not looked up: the store is the running gateway's".to_owned(),
                _ => found,
            };
            steps.lock().unwrap_or_else(PoisonError::into_inner).push((step, found));
        };
        let (mut record, mut rate_limit_headers) = (Record::default(), None);
        let mut context = RequestContext {
            now: self.clock.now(),
            origin: &Origin::new(IpAddr::V4(Ipv4Addr::LOCALHOST), tls),
            sni: None,
            route: None,
            worker: &self.worker,
            record: &mut record,
            rate_limit_headers: &mut rate_limit_headers,
            trace: Trace::to(&listener),
        };
        let decision = self.decider.decide(request, &mut context).await;
        let outcome = match decision {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(Decision::Forward { .. }) => record.observed.map_or(Outcome::Allowed, Outcome::Observed),
            Ok(Decision::Refresh) => Outcome::Own("refreshes the token pair"),
            Ok(Decision::Revoke { .. }) => Outcome::Own("revokes a session"),
            Ok(Decision::Endpoint(endpoint)) => Outcome::Own(endpoint.purpose()),
            Ok(Decision::Metadata) => Outcome::Own("publishes the metadata of this issuer"),
            Ok(Decision::Keys) => Outcome::Own("publishes the gateway's public keys"),
        };
        Explanation { steps: steps.into_inner().unwrap_or_else(PoisonError::into_inner), outcome }
    }
}

/// A worker without connections.
fn worker(config: &Config, decider: &Decider, clock: Arc<dyn Clock>) -> Worker {
    let (metrics, authenticator) = (Arc::new(WorkerMetrics::default()), &decider.authenticator);
    let checks = TokenChecks {
        clock,
        revocations: authenticator.revocations.clone(),
        keyring: authenticator.keyring.clone(),
        renewals: authenticator.renewals.clone(),
    };
    Worker {
        number: 0,
        request_ids: RequestIds::new(),
        metrics: metrics.clone(),
        streams: Streams::new(checks, metrics),
        bad_signatures: Arc::new(Limiter::new(config.limits.bad_signatures)),
        signature_queue: SignatureQueue::new(),
        log: None,
        concurrency: ConcurrencyLimit::new(0, 0, 1),
    }
}
