//! The claims that an ID token lacks, from the UserInfo endpoint of the provider (OpenID Connect Core section 5.3).
//!
//! Only a provider that does not respond, or responds for another user, ends a sign-in here. One that refuses claims
//! leaves the login without them: what needs them rejects it.

use std::sync::atomic::Ordering;

use http::StatusCode;
use serde_json::{Map, Value};

use super::calls::ProviderCall;
use super::exchange::{NoTokens, failed};
use super::provider::SignInProvider;
use crate::auth::oauth_client::{Endpoint, OAuthResponse};
use crate::auth::provider::Metadata;

impl SignInProvider {
    /// The claims of UserInfo. `None` if the provider has none, or refuses them and no rule needs one that is missing.
    /// `known`: those of the ID token, and those of before that it has not replaced.
    pub(super) async fn more_claims(
        &self,
        metadata: &Metadata,
        access_token: &str,
        subject: &str,
        known: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, NoTokens> {
        let Some(endpoint) = &metadata.userinfo else { return Ok(None) };
        match self.user_info(endpoint, access_token, subject).await {
            Ok(claims) => Ok(Some(claims)),
            Err(NoTokens::Failed(detail)) if !self.settings.rules.cannot_decide_by(known) => {
                if !self.warned.user_info.swap(true, Ordering::Relaxed) {
                    let provider = &*self.provider.name;
                    tracing::warn!(provider, detail, "sign-ins go on without the claims that only UserInfo has");
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn user_info(
        &self,
        endpoint: &Endpoint,
        access_token: &str,
        subject: &str,
    ) -> Result<Map<String, Value>, NoTokens> {
        let sent = self.call(ProviderCall::UserInfo, Box::pin(self.provider.client.get(endpoint, access_token))).await;
        let response = sent.map_err(NoTokens::Unavailable)?;
        if response.status.is_server_error() || response.status == StatusCode::TOO_MANY_REQUESTS {
            return Err(NoTokens::Unavailable(format!("UserInfo: status {}", response.status)));
        }
        let claims = response.object().ok_or_else(|| NoTokens::Failed(refusal(&response)))?;
        // The access token can be that of another user (Core section 5.3.2).
        match claims.get("sub").and_then(Value::as_str) {
            Some(same) if same == subject => Ok(claims),
            Some(_) => Err(NoTokens::OtherUser("sub of UserInfo is not that of the ID token".to_owned())),
            None => Err(failed("UserInfo has no sub")),
        }
    }
}

fn refusal(response: &OAuthResponse) -> String {
    if response.media_type == "application/jwt" {
        return "UserInfo: a signed response; turn signing off for this client at the provider".to_owned();
    }
    format!("UserInfo: status {} without a JSON object", response.status)
}
