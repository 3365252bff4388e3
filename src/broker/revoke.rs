//! `DELETE /token/{tokenId}`: the end of one family.
//!
//! Whoever owns it may (any of my devices ends any other), and whoever has the scope `token:revoke`. Unknown and somebody
//! else's are one answer: the caller names a token and does not present it, so "success" for a mistyped id would leave a
//! stolen session alive, and a different answer would tell which ids exist.

use super::Broker;
use crate::authenticate::Caller;
use crate::clock::UnixTime;
use crate::family::refresh_token::PresentedToken;
use crate::ids::TokenId;
use crate::reject::{Reason, Reject};
use crate::store::{RevokeOutcome, RevokedBy};
use crate::token::VerifiedToken;

/// Lets its holder end anybody's family.
pub const REVOKE_SCOPE: &str = "token:revoke";

/// The family that the path names: by its id, or by a whole refresh token of it.
pub fn named_family(parameter: &str) -> Option<TokenId> {
    TokenId::parse(parameter).or_else(|| PresentedToken::parse(parameter).map(|token| token.token_id))
}

impl Broker {
    /// When this returns `Ok`, the family is dead: durably, and on every worker of this process.
    pub async fn revoke(&self, caller: &Caller, family: Option<TokenId>, now: UnixTime) -> Result<(), Reject> {
        let token = caller.token();
        // A subject of another issuer is somebody else, whatever the name.
        let family = family.filter(|_| token.own).ok_or(Reason::TokenNotFound)?;
        let by = match token.has_scope(REVOKE_SCOPE) {
            true => RevokedBy::Admin,
            false => RevokedBy::Owner(token.subject.clone()),
        };
        self.revoke_by(family, by, Some(&token.subject), now).await
    }

    /// Ends the login that a live token of ours belongs to, for its owner. Its family exists, or the store has lost it: then the
    /// token lives on, and that is no success.
    pub async fn revoke_login_of(&self, token: &VerifiedToken, now: UnixTime) -> Result<(), Reject> {
        let family = token.family.ok_or_else(|| Reject::new(Reason::Internal, "a token of ours without a family"))?;
        let owner = RevokedBy::Owner(token.subject.clone());
        self.revoke_by(family, owner, Some(&token.subject), now).await.map_err(|reject| match reject.reason {
            Reason::TokenNotFound => {
                let lost = "the store does not know the family of a live token: was a backup restored?";
                Reject::new(Reason::StoreUnavailable, lost)
            }
            _ => reject,
        })
    }

    /// Ends the login that a refresh token is of, also a spent one. Nothing happens if it is of none.
    pub async fn revoke_presented(&self, presented: &PresentedToken, now: UnixTime) -> Result<(), Reject> {
        let Some(family) = self.family_of(presented).await? else { return Ok(()) };
        let owner = RevokedBy::Owner(family.subject.clone());
        match self.revoke_by(family.id, owner, Some(&family.subject), now).await {
            // Swept in between.
            Err(reject) if reject.reason == Reason::TokenNotFound => Ok(()),
            revoked => revoked,
        }
    }

    /// `who`: the subject that asked, for the audit; `None` for the admin listener, which knows no subjects.
    pub async fn revoke_by(
        &self,
        family: TokenId,
        by: RevokedBy,
        who: Option<&str>,
        now: UnixTime,
    ) -> Result<(), Reject> {
        let reason = by.reason().as_str();
        match self.store.revoke_family(family, by, now).await? {
            RevokeOutcome::Revoked => {
                tracing::info!(target: "audit", event = "token.revoked", token_id = %family, reason, by = who);
                Ok(())
            }
            RevokeOutcome::AlreadyDead => Ok(()),
            RevokeOutcome::NotFound => Err(Reason::TokenNotFound.into()),
        }
    }
}
