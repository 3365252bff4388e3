//! The requests that count for rate limits, and the client of each.

use crate::gateway::context::RequestContext;
use crate::gateway::decide::{Decider, Decision};
use crate::limits::key_rate::KeyLimit;
use crate::limits::limiter::Quota;
use crate::limits::rate_limit::{Client, RateLimitHeaders, RateLimitSettings, RateLimits};
use crate::types::reject::Reject;

/// Takes one request from every rate limit that applies.
pub(super) fn check_rates(
    rates: &RateLimits,
    decider: &Decider,
    decision: &Result<Decision, Reject>,
    path: &str,
    context: &mut RequestContext<'_>,
) -> Result<(), Reject> {
    // The API key of the request may have a rate of its own.
    let has_own_rate = context.record.caller.as_ref().is_some_and(|token| token.key_rate.is_some());
    if rates.is_empty() && !has_own_rate || !count(decision, path, decider) {
        return Ok(());
    }
    let mut headers = Box::<RateLimitHeaders>::default();
    let (of_route, client) = limited(context);
    let taken = rates.take(of_route, &client, &mut headers, replicas(decider), context.clock.uptime());
    *context.rate_limit_headers = (!headers.is_empty()).then_some(headers);
    taken
}

/// Returns the rate limits that apply to the request, and what is left of each. For `bearward explain`.
pub fn quotas(
    rates: &RateLimits,
    decider: &Decider,
    decision: &Result<Decision, Reject>,
    path: &str,
    context: &RequestContext<'_>,
) -> Vec<(String, Quota)> {
    if !count(decision, path, decider) {
        return Vec::new();
    }
    let (of_route, client) = limited(context);
    rates.quotas(of_route, &client, replicas(decider), context.clock.uptime())
}

/// The rate limits of the route, and for which client they count.
fn limited<'c>(context: &'c RequestContext<'_>) -> (&'c [RateLimitSettings], Client<'c>) {
    let caller = context.record.caller.as_ref();
    let subject = caller.map(|token| (&*token.issuer, token.subject.as_str()));
    let key = caller.and_then(|token| {
        let id = token.family?;
        let rate = token.key_rate?;
        Some(KeyLimit { id, requests: rate.requests(), window: rate.window() })
    });
    let of_route = context.route.as_ref().map_or(&[][..], |route| &route.rates);
    (of_route, Client { address: context.client(), subject, key })
}

/// How many gateways use the store.
fn replicas(decider: &Decider) -> u32 {
    decider.authenticator.freshness.as_ref().map_or(1, |freshness| freshness.replicas())
}

/// Returns true for a request to a backend. One that is rejected for its token or its path counts as well: a client
/// without access must not try forever. `[throttle]` limits the gateway's own paths. If the gateway lacks the keys,
/// the client is not at fault. A malformed request must keep its own rejection, which ends the connection.
fn count(decision: &Result<Decision, Reject>, path: &str, decider: &Decider) -> bool {
    match decision {
        Ok(decision) => matches!(decision, Decision::Forward { .. }),
        Err(reject) => {
            !reject.reason.must_close_connection()
                && !reject.reason.status().is_server_error()
                && !decider.routes.is_own_path(path)
        }
    }
}
