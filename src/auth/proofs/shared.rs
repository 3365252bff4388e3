//! Used proofs in the store, for several gateways behind one name: each accepts a proof only if no other one did.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Mark, MarkKind, Marked, Store};
use crate::tokens::audit_event::EventContext;
use crate::tokens::dpop::{MAX_AGE, VerifiedProof};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject, with_causes};

/// Seconds by which the clocks of two gateways can differ: each knows that of the store within one
/// ([`Clock::uncertainty`](crate::types::clock::Clock::uncertainty)).
const MAX_DIFFERENCE: u64 = 2;

pub struct SharedProofs {
    pub store: Arc<dyn Store>,
    /// `timeouts.store`
    pub timeout: Duration,
}

impl SharedProofs {
    /// Remembers a proof, or rejects it if a gateway has used it before. While the store does not respond, no proof is
    /// accepted.
    pub async fn insert(&self, proof: &VerifiedProof, now: UnixTime) -> Result<(), Reject> {
        let marked = self.store.mark(mark(proof), Vec::new(), EventContext::from(now));
        match tokio::time::timeout(self.timeout, marked).await {
            Ok(Ok(Marked::First)) => Ok(()),
            Ok(Ok(Marked::Repeated | Marked::Taken)) => Err(Reject::new(
                Reason::ProofReplayed,
                "the jti was used before with this key, perhaps at another gateway",
            )),
            Ok(Err(error)) => Err(Reject::new(Reason::StoreUnavailable, with_causes(&error))),
            Err(_) => Err(Reject::new(Reason::StoreUnavailable, "the store did not respond in time")),
        }
    }
}

/// The mark outlives the last second of the proof at every gateway: the one that sweeps the store may be ahead.
fn mark(proof: &VerifiedProof) -> Mark {
    Mark {
        kind: MarkKind::Proof,
        issuer: proof.key.to_string(),
        key: format!("{:032x}", proof.id),
        value: [0; 32],
        until: UnixTime::from_secs(proof.issued + MAX_AGE + 1 + MAX_DIFFERENCE),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::thumbprint::Thumbprint;

    #[test]
    fn the_store_remembers_a_proof_until_no_gateway_accepts_it() {
        let key = Thumbprint::parse("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs").expect("a thumbprint");
        let proof = VerifiedProof { key, id: 7, issued: 1_000_000, has_old_nonce: false };
        // Two seconds later than the clock of the slowest gateway that accepts the proof.
        let last = UnixTime::from_millis((proof.issued + MAX_AGE) * 1000 + 999) + Duration::from_secs(2);
        assert!(mark(&proof).until > last);
    }
}
