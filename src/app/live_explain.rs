//! `POST /admin/v1/explain`: how this gateway decides about a request now, with its live keys, revocations, rates,
//! throttles and penalties.

use std::sync::Arc;

use super::explain::Explainer;
use super::reload::LiveConfig;
use crate::admin::{Asked, Explain, Explaining};
use crate::gateway::explanation::Outcome;
use crate::protocols::http::forwarded::ForwardedClient;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

pub(super) struct LiveExplainer(pub(super) Arc<LiveConfig>);

impl Explain for LiveExplainer {
    fn explain(&self, asked: Asked) -> Explaining {
        let live = self.0.clone();
        Box::pin(async move {
            // Made anew for each question: it follows reloads, and is needed seldom.
            let explainer = Explainer::of_running(&live.config(), &live.state).showing(asked.certificate);
            let gateway = live.shared.gateway.load_full();
            let client = ForwardedClient::new(asked.client, asked.tls);
            let mut explained = explainer.explain_from(&asked.request, &client, Some(&gateway)).await;
            // The connection of such a client is closed before it can send a request.
            if live.shared.penalties.contains(asked.client, live.clock.uptime()) {
                let closed = "new connections of this address are closed (limits.penalty_duration)";
                explained.steps.push((Step::Rate, closed.to_owned()));
                explained.outcome = Outcome::Rejected(Reject::new(Reason::RateLimited, closed));
            }
            explained
        })
    }
}
