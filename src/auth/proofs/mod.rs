//! Proofs beside tokens: which requests need one, and that each proof is used once.
//!
//! A token that is bound to a key is good only with a proof by that key (DPoP, RFC 9449). The token cache knows the
//! binding, and the proof is checked on every request: wso2/product-apim#11521 cached the outcome.
//!
//! `tokens/dpop` checks a proof. [`used::UsedProofs`] remembers those that were used. A proof is used up last of all,
//! after rules and rates: a client that gets 403 or 429 has not used its proof.

mod binding;
mod handed_over;
mod nonces;
mod own_hosts;
mod presented;
mod shared;
mod used;

use std::sync::Arc;

use crate::tokens::dpop::VerifiedProof;
use crate::types::clock::UnixTime;
use crate::types::reject::Reject;

pub use binding::{ProofRule, TokenBinding};
pub use handed_over::HandedOver;
pub use nonces::Nonces;
pub use own_hosts::OwnHosts;
pub use presented::{DPOP, PresentedProof};
pub use shared::SharedProofs;
pub use used::UsedProofs;

/// What all workers know of proofs. It outlives a reload.
#[derive(Clone)]
pub struct Proofs {
    /// At this process, beside tokens. Only proofs by the keys of valid tokens get in, after the rates of the request,
    /// so that strangers cannot fill it.
    pub used: Arc<UsedProofs>,
    /// Of clients that ask for tokens, and may be strangers with keys of their own. Such a proof is good nowhere else.
    pub used_for_grants: Arc<UsedProofs>,
    /// At all gateways. `None`: this process alone remembers.
    pub shared: Option<Arc<SharedProofs>>,
    /// `None`: proofs need no nonce.
    pub nonces: Option<Arc<Nonces>>,
    /// If true, a proof that is used up is only checked, and stays as it is: `bearward explain` decides about a request
    /// that the client may still send.
    pub only_checks: bool,
}

impl Proofs {
    /// Without nonces, for one process that began at this time.
    pub fn of_process(began: UnixTime) -> Self {
        let used = || Arc::new(UsedProofs::new(began));
        Proofs { used: used(), used_for_grants: used(), shared: None, nonces: None, only_checks: false }
    }

    /// Continues where another process has ended. `None` if only one of both has nonces: the same proof would be
    /// remembered by another time.
    pub fn taken_over(handed_over: &HandedOver, has_nonces: bool) -> Option<Self> {
        let used = |remembered| Arc::new(UsedProofs::taken_over(remembered));
        let nonces = handed_over.nonces.as_ref().map(|key| Arc::new(Nonces::taken_over(key)));
        (nonces.is_some() == has_nonces).then(|| Proofs {
            used: used(&handed_over.of_requests),
            used_for_grants: used(&handed_over.of_grants),
            shared: None,
            nonces,
            only_checks: false,
        })
    }

    /// For the process that takes over. From now on, this one accepts no proof.
    pub fn hand_over(&self) -> HandedOver {
        HandedOver {
            of_requests: self.used.hand_over(),
            of_grants: self.used_for_grants.hand_over(),
            nonces: self.nonces.as_ref().and_then(|nonces| nonces.hand_over()),
        }
    }

    /// The same proofs, for a request that is only explained.
    pub fn without_effects(&self) -> Self {
        Proofs { only_checks: true, ..self.clone() }
    }

    /// How many proofs this process remembers.
    pub fn count(&self) -> usize {
        self.used.count() + self.used_for_grants.count()
    }

    /// Uses the proof beside a token up, or rejects it if it was used before.
    pub async fn use_up(&self, proof: &VerifiedProof, max: usize, now: UnixTime) -> Result<(), Reject> {
        self.use_up_in(&self.used, proof, max, now)?;
        self.use_up_everywhere(proof, now).await
    }

    /// Uses the proof of a client that asks for tokens up at this process, and nowhere else:
    /// [`Proofs::use_up_everywhere`] follows.
    pub fn use_up_for_grant(&self, proof: &VerifiedProof, max: usize, now: UnixTime) -> Result<(), Reject> {
        self.use_up_in(&self.used_for_grants, proof, max, now)
    }

    fn use_up_in(&self, used: &UsedProofs, proof: &VerifiedProof, max: usize, now: UnixTime) -> Result<(), Reject> {
        if self.only_checks { used.check(proof, max, now) } else { used.insert(proof, max, now) }
    }

    /// Uses a proof up at all gateways, if they share what was used.
    pub async fn use_up_everywhere(&self, proof: &VerifiedProof, now: UnixTime) -> Result<(), Reject> {
        match &self.shared {
            Some(shared) if self.only_checks => shared.check(proof).await,
            Some(shared) => shared.insert(proof, now).await,
            None => Ok(()),
        }
    }
}
