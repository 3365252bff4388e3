//! Used proofs in the store, for several gateways behind one name: each accepts a proof only if no other one did.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Mark, MarkKind, MarkStore, Marked, StoreFuture};
use crate::tokens::audit_event::EventContext;
use crate::tokens::dpop::{MAX_AGE, VerifiedProof};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject, with_causes};

pub struct SharedProofs {
    pub store: Arc<dyn MarkStore>,
    /// `timeouts.store`
    pub timeout: Duration,
}

impl SharedProofs {
    /// Remembers a proof, or rejects it if a gateway has used it before. While the store does not respond, no proof is
    /// accepted.
    ///
    /// `now`: read after all that the client can make slow. A call may last longer than the store remembers a proof.
    pub async fn insert(&self, proof: &VerifiedProof, now: UnixTime) -> Result<(), Reject> {
        self.check_age(proof, now)?;
        self.first(self.store.mark(self.mark_of(proof), Vec::new(), EventContext::from(now))).await
    }

    /// Rejects a proof that [`SharedProofs::insert`] would reject. Does not remember it.
    pub async fn check(&self, proof: &VerifiedProof) -> Result<(), Reject> {
        self.first(self.store.marked(self.mark_of(proof))).await
    }

    fn check_age(&self, proof: &VerifiedProof, now: UnixTime) -> Result<(), Reject> {
        if now > UnixTime::from_secs(proof.issued + MAX_AGE + 1) {
            return Err(Reject::new(Reason::ProofTime, "the proof became too old during the call"));
        }
        Ok(())
    }

    /// The store remembers it for as long as another gateway may take to mark it.
    fn mark_of(&self, proof: &VerifiedProof) -> Mark {
        Mark {
            kind: MarkKind::Proof,
            issuer: proof.key.to_string(),
            key: format!("{:032x}", proof.id),
            value: [0; 32],
            until: UnixTime::from_secs(proof.issued + MAX_AGE + 1) + self.timeout,
        }
    }

    async fn first(&self, marked: StoreFuture<Marked>) -> Result<(), Reject> {
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
