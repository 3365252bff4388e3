//! A logout token with good claims: its signature, and what it ends.

use std::sync::Arc;

use crate::auth::provider::{Provider, Providers};
use crate::auth::signed_jwt::SignatureCheck;
use crate::broker::Broker;
use crate::store::{Mark, MarkKind, Marked};
use crate::tokens::audit_event::EventContext;
use crate::tokens::jwt::signed::UnverifiedToken;
use crate::tokens::provider_events::logout_token::LogoutToken;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

pub(super) struct ReportedLogout {
    pub(super) provider: Arc<Provider>,
    pub(super) providers: Arc<Providers>,
    pub(super) broker: Arc<Broker>,
    pub(super) token: String,
    pub(super) logout: LogoutToken,
    pub(super) event: EventContext,
}

impl ReportedLogout {
    /// With the keys that are known.
    pub(super) async fn verify_now(&self, check: &SignatureCheck<'_>) -> Result<(), Reject> {
        let keys = self.providers.source(&self.provider)?;
        check.verify_with_known(&UnverifiedToken::parse(&self.token)?, &keys).await
    }

    /// Fetches the keys if that of the token is unknown.
    pub(super) async fn verify(&self, check: &SignatureCheck<'_>) -> Result<(), Reject> {
        let keys = self.providers.source(&self.provider)?;
        check.verify(&UnverifiedToken::parse(&self.token)?, &keys).await
    }

    /// Returns when it is durable, and enforced here.
    pub(super) async fn carry_out(&self) -> Result<Marked, Reject> {
        let Provider { name, issuer, logout_ends, .. } = &*self.provider;
        let mark = Mark {
            kind: MarkKind::LogoutToken,
            issuer: issuer.to_string(),
            key: self.logout.jti.clone(),
            value: secret::digest(&[self.token.as_bytes()]),
            until: self.logout.until,
        };
        let revoked = self.logout.revokes(issuer, *logout_ends);
        match self.broker.revoke_reported(mark, revoked, self.event.clone().by_provider(name)).await? {
            Marked::Taken => Err(Reject::new(Reason::BadLogoutToken, "another logout token had this jti")),
            marked => Ok(marked),
        }
    }
}
