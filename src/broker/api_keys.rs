//! Issues API keys.

use std::time::Duration;

use serde::Serialize;

use super::service::Broker;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::{Family, KeyRate, api_key};
use crate::tokens::login::Login;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// A new key. The only place that ever has its text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuedKey {
    success: bool,
    api_key: String,
    key_id: TokenId,
    /// RFC 3339
    expires_at: String,
}

impl Broker {
    /// Creates an API key for what `login` describes. It is durable when this returns.
    pub async fn issue_api_key(
        &self,
        login: Login,
        lifetime: Duration,
        rate: Option<KeyRate>,
        context: EventContext,
    ) -> Result<IssuedKey, Reject> {
        let now = context.at;
        let family = self.first_generation(login, now);
        let (text, hash) = api_key::generate(family.id);
        let expires = now + lifetime;
        let family = Family {
            key_hash: Some(hash),
            key_rate: rate,
            // It was not used yet.
            last_used_at: family.created_at,
            idle_expiry: expires,
            absolute_expiry: expires,
            ..family
        };
        self.check_usable(&family, now)?;
        let id = family.id;
        let no_limit = usize::MAX;
        let issued = self.with_timeout(self.store.issue(family, no_limit, context)).await?;
        let revoked = || {
            let detail = "all tokens of the subject were revoked meanwhile, or the clock was set back since";
            Reject::new(Reason::BadParameter, detail)
        };
        issued.ok_or_else(revoked)?;
        Ok(IssuedKey { success: true, api_key: text, key_id: id, expires_at: expires.to_string() })
    }
}
