//! Issues access tokens without a refresh token: of clients for themselves, and of token exchanges.
//!
//! Each has a family of its own, so that it is listed, revoked and audited as one. Such a family is of generation 0: no
//! refresh token of it was ever made. It does not count towards `limits.sessions_per_subject`, because a service that
//! gets a token for each of its requests must not end the logins of a user.

use super::service::Broker;
use super::token_pair::TokenPair;
use crate::store::{Mark, Marked};
use crate::tokens::audit_event::EventContext;
use crate::tokens::bound::Bound;
use crate::tokens::family::{Family, FamilyOrigin};
use crate::tokens::login::Login;
use crate::types::ids::TokenId;
use crate::types::reject::Reject;

/// An access token, and the scope that it was granted.
pub struct AccessGrant {
    pub access_token: String,
    /// How long the access token is valid from now, in seconds.
    pub lifetime: u64,
    pub scope: String,
    /// If true, the access token needs proofs.
    pub is_bound: bool,
    pub token_id: TokenId,
}

impl Broker {
    /// Creates a family for one access token, which ends with it. It is durable when this returns. `origin`: the
    /// session at another issuer that it comes from. `None` if that, or the subject, was revoked.
    pub async fn issue_access(
        &self,
        login: Login,
        origin: Option<FamilyOrigin>,
        context: EventContext,
    ) -> Result<Option<AccessGrant>, Reject> {
        let now = context.at;
        let family = Family { generation: 0, origin, ..self.first_generation(login, now) };
        self.check_usable(&family, now)?;
        let no_limit = usize::MAX;
        let issued = self.with_timeout(self.store.issue(family, no_limit, context)).await?;
        let Some(family) = issued else { return Ok(None) };
        let (access_token, lifetime) = self.access_token(&family, Bound::default(), now)?;
        let is_bound = family.bound_to().key.is_some();
        let token_id = family.id;
        Ok(Some(AccessGrant { access_token, lifetime, scope: family.scope, is_bound, token_id }))
    }

    /// As [`Broker::issue`], for a session at another issuer. `None` as in [`Broker::issue_access`]. `bind`: what
    /// the first access token alone is bound to.
    pub async fn issue_from(
        &self,
        login: Login,
        origin: FamilyOrigin,
        bind: Bound,
        context: EventContext,
    ) -> Result<Option<TokenPair>, Reject> {
        let now = context.at;
        let family = Family { origin: Some(origin), ..self.first_generation(login, now) };
        self.check_usable(&family, now)?;
        let max_live = self.settings.sessions_per_subject;
        let issued = self.with_timeout(self.store.issue(family, max_live, context)).await?;
        issued.map(|family| self.pair(&family, bind, now)).transpose()
    }

    /// Takes what can be used once.
    pub async fn mark(&self, mark: Mark, context: EventContext) -> Result<Marked, Reject> {
        Ok(self.with_timeout(self.store.mark(mark, Vec::new(), context)).await?)
    }
}
