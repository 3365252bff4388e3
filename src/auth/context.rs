//! The input of authentication besides the token: the request, and the worker that handles it.

use std::sync::{Arc, OnceLock};

use crate::auth::bad_signatures::Payer;
use crate::auth::proofs::{PresentedProof, ProofRule};
use crate::auth::signature_queue::SignatureQueue;
use crate::auth::token_cache::CachedToken;
use crate::telemetry::metrics::WorkerMetrics;
use crate::tokens::jwt::{NeededAudience, VerifiedToken};
use crate::types::clock::{Clock, UnixTime};
use crate::types::reject::Reject;
use crate::types::step::StepReporter;

/// Passed by reference to every step of authentication.
#[derive(Clone, Copy)]
pub struct AuthContext<'r> {
    /// The one time that the request sees.
    pub now: UnixTime,
    /// Measures limits and cooldowns. They must not use `now`: a client may hold a request open, and so keep an old
    /// `now`.
    pub clock: &'r dyn Clock,
    /// The client that a bad signature is counted for.
    pub payer: Payer<'r>,
    pub signature_queue: &'r SignatureQueue,
    pub metrics: &'r WorkerMetrics,
    /// `route.on_stale` is "serve" (true) or "deny" (false). `None`: as `store.on_stale` says.
    pub serves_stale: Option<bool>,
    /// `route.api_keys`, if the credential is where an API key can be.
    pub api_keys: bool,
    /// `route.sign_in`, if the credential is in its cookie.
    pub provider: Option<&'r str>,
    /// What `aud` must name.
    pub audience: NeededAudience<'r>,
    /// Whether a token needs a proof. Off for a token that is not the credential of the request.
    pub proof: ProofRule,
    /// The request, to compare a proof with. `None`: a token that needs a proof is rejected.
    pub presented: Option<PresentedProof<'r>>,
    /// Gets a token that is rejected although its signature is good: operators ask which subject it was.
    pub rejected_token: Option<&'r OnceLock<Arc<VerifiedToken>>>,
    pub steps: StepReporter<'r>,
}

impl AuthContext<'_> {
    /// Returns true for an API key or a handle that the route does not accept, and for a credential that must be looked
    /// up again.
    pub(super) fn must_read(&self, known: &CachedToken) -> bool {
        self.must_read_at(known, self.now)
    }

    /// As [`AuthContext::must_read`], for a request that has waited until `now`.
    pub(super) fn must_read_at(&self, known: &CachedToken, now: UnixTime) -> bool {
        known.must_be_read(now, self.api_keys, self.provider)
    }

    /// After the verification: the token is remembered for each use, and its audience is not that of each.
    pub(super) fn check_audience(&self, token: &Arc<VerifiedToken>) -> Result<(), Reject> {
        self.audience.check(token).inspect_err(|_| self.note_rejected(token))
    }

    pub(super) fn note_rejected(&self, token: &Arc<VerifiedToken>) {
        if let Some(rejected) = self.rejected_token {
            // The first one is that of the request.
            let _ = rejected.set(token.clone());
        }
    }
}
