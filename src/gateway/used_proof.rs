//! The last step before an allowed request is forwarded: its proof is used up.

use http::{HeaderValue, header};

use crate::auth::authenticate::Authenticator;
use crate::gateway::authorize::Permit;
use crate::gateway::context::RequestContext;
use crate::gateway::decide::Decision;
use crate::gateway::forward::Forwarded;
use crate::protocols::http::respond::DPOP_NONCE;
use crate::types::clock::UnixTime;
use crate::types::reject::Reject;

/// Uses the proof of an allowed request up, after everything else that can reject the request: a client that was
/// rejected for another reason may send the same proof again.
pub(super) async fn use_up(
    decision: Result<Decision, Reject>,
    authenticator: &Authenticator,
    context: &mut RequestContext<'_>,
) -> Result<Decision, Reject> {
    let has_proof = |permit: &Permit| permit.caller().is_some_and(|caller| caller.proof().is_some());
    match decision {
        Ok(Decision::Forward { permit, host }) if has_proof(&permit) => {
            let used = match permit.caller() {
                Some(caller) => Box::pin(authenticator.use_proof(caller, context.now)).await,
                None => Ok(()),
            };
            let permit = permit.unless_rejected(used)?;
            context.record.observed = permit.observed().cloned();
            Ok(Decision::Forward { permit, host })
        }
        decision => decision,
    }
}

/// The nonce that the response to an allowed request must have.
pub(super) fn next_nonce(
    decision: &Result<Decision, Reject>,
    authenticator: &Authenticator,
    now: UnixTime,
) -> Option<HeaderValue> {
    let Ok(Decision::Forward { permit, .. }) = decision else { return None };
    permit.caller().and_then(|caller| authenticator.next_nonce(caller, now))
}

/// Gives the client its next nonce, so that it needs no further round trip for one. A cache must not give it to another
/// client (RFC 9449 section 8.2).
pub(super) fn add_nonce(nonce: Option<HeaderValue>, mut forwarded: Forwarded) -> Forwarded {
    if let Some(nonce) = nonce {
        let headers = forwarded.response.headers_mut();
        headers.insert(DPOP_NONCE, nonce);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    forwarded
}
