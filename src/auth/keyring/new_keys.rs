//! Verifies a token with an unknown key: its issuer is asked for its keys, because the key may be newer than ours.

use std::borrow::Cow;

use super::refetch::{RefetchOutcome, unless_failing};
use super::snapshot::Keyring;
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};

impl Keyring {
    /// Verifies a token, and verifies it again if its key is unknown and the keys of its issuer were fetched. `issuer`
    /// is read only then. If the issuer cannot be asked, the token may still be good, so the answer is 503 and not 401.
    pub async fn verify_with_new_keys<'i, T, V>(
        &self,
        issuer: impl FnOnce() -> Option<Cow<'i, str>>,
        clock: &dyn Clock,
        verify: impl Fn() -> V,
    ) -> Result<T, Reject>
    where
        V: Future<Output = Result<T, Reject>>,
    {
        let unknown = match verify().await {
            Err(unknown) if matches!(unknown.reason, Reason::UnknownKey | Reason::AlgorithmNotAllowed) => unknown,
            verified => return verified,
        };
        let Some(issuer) = issuer() else { return Err(unknown) };
        // Another gateway may have created the first key of an algorithm.
        if unknown.reason == Reason::AlgorithmNotAllowed && !self.is_own(&issuer) {
            return Err(unknown);
        }
        let Some(refetched) = Box::pin(self.refetch(&issuer, clock.uptime())).await else { return Err(unknown) };
        if refetched.outcome == RefetchOutcome::TimedOut {
            return Err(Reject::new(Reason::KeysUnavailable, "unknown key, and its issuer did not answer in time"));
        }
        // A fetch within the cooldown may have ended after the first look at the keys.
        verify().await.map_err(|still| unless_failing(still, refetched.is_failing))
    }
}
