//! Verifies a token with an unknown key: the issuer is asked for its keys first.

use std::sync::Arc;

use crate::auth::authenticate::Authenticator;
use crate::auth::bearer::BearerToken;
use crate::auth::context::AuthContext;
use crate::auth::keyring::{RefetchOutcome, unless_failing};
use crate::auth::token_cache::CachedToken;
use crate::tokens::jwt::verify::unverified_issuer;
use crate::types::reject::{Reason, Reject};

impl Authenticator {
    /// Another gateway may have created the first key of an algorithm, too.
    pub(super) fn may_have_new_key(&self, unknown: &Reject) -> bool {
        match unknown.reason {
            Reason::UnknownKey => true,
            Reason::AlgorithmNotAllowed => self.keyring.own_refetch().is_some(),
            _ => false,
        }
    }

    /// Asks the issuer for its keys, because the token's key may be newer than ours, and verifies again. If the issuer
    /// cannot be asked, the token may still be good, so the answer is 503 and not 401.
    pub(super) async fn refetch_and_verify(
        &self,
        bearer: BearerToken<'_>,
        context: &AuthContext<'_>,
        unknown: Reject,
    ) -> Result<Arc<CachedToken>, Reject> {
        let is_failing = self.refetch(bearer, context, unknown).await?;
        let verified = self.verify_and_cache(bearer, context).await;
        verified.map_err(|still| unless_failing(still, is_failing))
    }

    /// Asks the issuer of this token for its keys, or the store for the gateway's own. Returns true if that fails.
    pub(super) async fn refetch(
        &self,
        bearer: BearerToken<'_>,
        context: &AuthContext<'_>,
        unknown: Reject,
    ) -> Result<bool, Reject> {
        let issuer = bearer.text().ok().and_then(unverified_issuer).unwrap_or_default();
        let Some(refetched) = self.keyring.refetch(&issuer, context.clock.uptime()).await else { return Err(unknown) };
        match refetched.outcome {
            // A fetch within the cooldown may have ended after the first look at the keys.
            RefetchOutcome::Fetched | RefetchOutcome::CoolingDown => Ok(refetched.is_failing),
            RefetchOutcome::TimedOut => {
                Err(Reject::new(Reason::KeysUnavailable, "unknown key, and its issuer did not answer in time"))
            }
        }
    }
}
