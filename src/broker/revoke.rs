//! `DELETE /token/{tokenId}`: the end of one family.
//!
//! Whoever owns it may (any of my devices ends any other), and whoever has the scope `token:revoke`. Unknown and somebody
//! else's are one answer: the caller names a token and does not present it, so "success" for a mistyped id would leave a
//! stolen session alive, and a different answer would tell which ids exist.

use super::Broker;
use crate::auth::authenticate::Caller;
use crate::store::{RevokeOutcome, RevokedBy};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::jwt::VerifiedToken;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// Lets its holder end anybody's family.
pub const REVOKE_SCOPE: &str = "token:revoke";

/// The family that the path names: by its id, or by a whole refresh token of it.
pub fn named_family(parameter: &str) -> Option<TokenId> {
    TokenId::parse(parameter).or_else(|| PresentedToken::parse(parameter).map(|token| token.token_id))
}

impl Broker {
    /// When this returns `Ok`, the family is dead: durably, and on every worker of this process.
    pub async fn revoke(&self, caller: &Caller, family: Option<TokenId>, occasion: EventContext) -> Result<(), Reject> {
        let token = caller.token();
        // A subject of another issuer is somebody else, whatever the name.
        let family = family.filter(|_| token.own).ok_or(Reason::TokenNotFound)?;
        let by = match token.has_scope(REVOKE_SCOPE) {
            true => RevokedBy::Admin,
            false => RevokedBy::Owner(token.subject.clone()),
        };
        let caller = Some(token.subject.clone());
        self.revoke_by(family, by, EventContext { caller, ..occasion }).await
    }

    /// Ends the login that a live token of ours belongs to, for its owner. Its family exists, or the store has lost it: then the
    /// token lives on, and that is no success.
    pub async fn revoke_login_of(&self, token: &VerifiedToken, occasion: EventContext) -> Result<(), Reject> {
        let family = token.family.ok_or_else(|| Reject::new(Reason::Internal, "a token of ours without a family"))?;
        let owner = RevokedBy::Owner(token.subject.clone());
        let occasion = EventContext { caller: Some(token.subject.clone()), ..occasion };
        self.revoke_by(family, owner, occasion).await.map_err(|reject| match reject.reason {
            Reason::TokenNotFound => {
                let lost = "the store does not know the family of a live token: was a backup restored?";
                Reject::new(Reason::StoreUnavailable, lost)
            }
            _ => reject,
        })
    }

    /// Ends the login that a refresh token is of, also a spent one. Nothing happens if it is of none.
    pub async fn revoke_presented(&self, presented: &PresentedToken, occasion: EventContext) -> Result<(), Reject> {
        let Some(family) = self.family_of(presented).await? else { return Ok(()) };
        let owner = RevokedBy::Owner(family.subject.clone());
        let occasion = EventContext { caller: Some(family.subject), ..occasion };
        match self.revoke_by(family.id, owner, occasion).await {
            // Swept in between.
            Err(reject) if reject.reason == Reason::TokenNotFound => Ok(()),
            revoked => revoked,
        }
    }

    /// As [`Broker::revoke`], for whoever may.
    pub async fn revoke_by(&self, family: TokenId, by: RevokedBy, occasion: EventContext) -> Result<(), Reject> {
        match self.in_time(self.store.revoke_family(family, by, occasion)).await? {
            RevokeOutcome::Revoked | RevokeOutcome::AlreadyEnded => Ok(()),
            RevokeOutcome::NotFound => Err(Reason::TokenNotFound.into()),
        }
    }

    /// Revokes anything but a family by its name. When this returns `Ok`, it is dead as in [`Broker::revoke`].
    pub async fn revoke_named(&self, what: Revoked, occasion: EventContext) -> Result<(), Reject> {
        self.in_time(self.store.revoke(what, occasion)).await?;
        Ok(())
    }
}
