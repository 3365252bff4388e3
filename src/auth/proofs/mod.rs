//! Proofs beside tokens: which requests need one, and that each proof is used once.
//!
//! A token that is bound to a key is good only with a proof by that key (DPoP, RFC 9449). The token cache knows the
//! binding, and the proof is checked on every request: wso2/product-apim#11521 cached the outcome.
//!
//! `tokens/dpop` checks a proof. [`used::UsedProofs`] remembers those that were used. A proof is used up last of all,
//! after rules and rates: a client that gets 403 or 429 has not used its proof.

mod binding;
mod nonces;
mod presented;
mod shared;
mod used;

use std::sync::Arc;

use crate::tokens::dpop::VerifiedProof;
use crate::types::clock::UnixTime;
use crate::types::reject::Reject;

pub use binding::{ProofRule, TokenBinding};
pub use nonces::Nonces;
pub use presented::PresentedProof;
pub use shared::SharedProofs;
pub use used::UsedProofs;

/// What all workers know of proofs. It outlives a reload.
#[derive(Clone)]
pub struct Proofs {
    /// At this process.
    pub used: Arc<UsedProofs>,
    /// At all gateways. `None`: this process alone remembers.
    pub shared: Option<Arc<SharedProofs>>,
    /// `None`: proofs need no nonce.
    pub nonces: Option<Arc<Nonces>>,
}

impl Proofs {
    /// Without nonces, for one process that began at this time.
    pub fn of_process(began: UnixTime) -> Self {
        Proofs { used: Arc::new(UsedProofs::new(began)), shared: None, nonces: None }
    }

    /// Uses a proof up, or rejects it if it was used before.
    pub async fn use_up(&self, proof: &VerifiedProof, max: usize, now: UnixTime) -> Result<(), Reject> {
        self.used.insert(proof, max, now)?;
        match &self.shared {
            Some(shared) => shared.insert(proof, now).await,
            None => Ok(()),
        }
    }
}
