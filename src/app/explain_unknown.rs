//! The facts that only a running gateway knows, for `bearward explain`.

use std::sync::Arc;

use crate::types::reject::{Reason, Reject};

/// What to do about a proof: its use is in the memory of the gateway.
const ASK: &str = "only the running gateway knows: ask it with POST /admin/v1/explain";

#[derive(Clone, Default)]
pub(super) struct Unknown {
    /// Why it does not know which tokens are revoked.
    pub(super) revocations: Option<Arc<str>>,
    /// If true, it does not know which proofs were used.
    pub(super) proofs: bool,
    /// If true, proofs need a nonce, and it does not know which nonces are good.
    pub(super) nonces: bool,
}

impl Unknown {
    /// Why it is not known whether the gateway accepts a proof that is good in itself.
    pub(super) fn about_proof(&self) -> Option<String> {
        self.proofs.then(|| format!("allowed, unless the proof was used, or signed before the start ({ASK})"))
    }

    /// With nonces, the time of a proof is that of its nonce.
    pub(super) fn about_time_of_proof(&self, reject: &Reject) -> Option<String> {
        // Where tokens are granted, the detail names the reason.
        let is_late = reject.reason == Reason::ProofTime
            || reject.reason == Reason::ProofRejected && reject.detail.starts_with(Reason::ProofTime.code());
        (self.nonces && is_late).then(|| format!("the nonce of the proof decides ({ASK})"))
    }
}

/// `why`: why it is not known.
pub(super) fn unless_revoked(why: &str) -> String {
    format!("allowed, unless the token is revoked ({why})")
}
