//! The last step before an allowed request is forwarded: its proof is used up.

use http::{HeaderValue, header};

use crate::auth::authenticate::Authenticator;
use crate::gateway::context::RequestContext;
use crate::gateway::decide::Decision;
use crate::gateway::forward::Forwarded;
use crate::protocols::http::respond::DPOP_NONCE;
use crate::types::clock::UnixTime;
use crate::types::reject::Reject;

/// Returns true if the request is allowed by a proof.
pub(super) fn has_proof(decision: &Result<Decision, Reject>) -> bool {
    let Ok(Decision::Forward { permit, .. }) = decision else { return false };
    permit.caller().is_some_and(|caller| caller.proof().is_some())
}

/// Uses the proof of an allowed request up, after everything else that can reject the request: a client that was
/// rejected for another reason may send the same proof again.
pub async fn use_up(
    decision: Result<Decision, Reject>,
    authenticator: &Authenticator,
    context: &mut RequestContext<'_>,
) -> Result<Decision, Reject> {
    let (permit, host) = match decision? {
        Decision::Forward { permit, host } => (permit, host),
        other => return Ok(other),
    };
    let used = match permit.caller() {
        Some(caller) => authenticator.proof_verifier.use_up(caller.proof(), context.clock.now()).await,
        None => Ok(()),
    };
    let permit = permit.unless_rejected(used)?;
    context.record.observed = permit.observed().cloned();
    Ok(Decision::Forward { permit, host })
}

/// The nonce that the response to an allowed request must have.
pub(super) fn next_nonce(decision: &Decision, authenticator: &Authenticator, now: UnixTime) -> Option<HeaderValue> {
    let Decision::Forward { permit, .. } = decision else { return None };
    authenticator.proof_verifier.next_nonce(permit.caller()?.proof()?, now)
}

/// Gives the client its next nonce, so that it needs no further round trip for one. A cache must not give it to another
/// client (RFC 9449 section 8.2).
pub(super) fn add_nonce(nonce: HeaderValue, forwarded: &mut Forwarded) {
    let headers = forwarded.response.headers_mut();
    headers.insert(DPOP_NONCE, nonce);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
