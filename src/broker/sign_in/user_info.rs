//! The claims that an ID token lacks, from the UserInfo endpoint of the provider (OpenID Connect Core section 5.3).
//!
//! A login goes on without them, unless a rule decides by them. At a refresh, what UserInfo has stated before decides
//! nothing if UserInfo does not state it again: a group may have been lost.

use std::sync::atomic::Ordering;

use http::StatusCode;
use serde_json::{Map, Value};

use super::calls::ProviderCall;
use super::no_tokens::{NoTokens, failed};
use super::provider::SignInProvider;
use crate::auth::oauth_client::{Endpoint, OAuthResponse};
use crate::auth::provider::{Metadata, Optional};
use crate::tokens::sign_in::known_claims::KnownClaims;

/// The user that UserInfo is asked about.
#[derive(Clone, Copy)]
pub(super) struct OfUser<'u> {
    pub(super) access_token: &'u str,
    /// Of the ID token.
    pub(super) subject: &'u str,
}

impl SignInProvider {
    /// Adds the claims of UserInfo to those of a login. Without a response, removes what UserInfo has stated before, if
    /// the login goes on.
    ///
    /// `signed`: the claims of the ID token that came with the access token.
    pub(super) async fn add_user_info(
        &self,
        metadata: &Metadata,
        user: OfUser<'_>,
        signed: &Map<String, Value>,
        claims: &mut KnownClaims,
    ) -> Result<(), NoTokens> {
        let rules = &self.settings.rules;
        // A refresh without an ID token has none of its own: those of the last one still decide.
        let others = claims.without_user_info();
        let can_decide = !rules.cannot_decide_by(&others.claims());
        let is_needed = !can_decide || claims.have_user_info();
        let stated = match &metadata.userinfo {
            Optional::Usable(endpoint) => self.ask_user_info(endpoint, user, is_needed).await,
            Optional::Unusable(problem) => Err(NoTokens::Failed(problem.clone())),
            Optional::Absent if claims.have_user_info() => Err(failed("the provider has no UserInfo any more")),
            Optional::Absent => return Ok(()),
        };
        let problem = match stated {
            Ok(mut stated) => {
                stated.retain(|name, _| rules.concern(name));
                claims.replace_user_info(stated, signed);
                return Ok(());
            }
            Err(problem) => problem,
        };
        let goes_on = match &problem {
            NoTokens::Failed(_) => can_decide,
            // The next response may say more.
            NoTokens::Unavailable(_) => !is_needed,
            NoTokens::OtherUser(_) | NoTokens::InvalidGrant => false,
        };
        if !goes_on {
            return Err(problem);
        }
        if !self.warned.user_info.swap(true, Ordering::Relaxed) {
            let provider = &*self.provider.name;
            let detail = problem.detail();
            tracing::warn!(provider, detail, "sessions go on without the claims that only UserInfo has");
        }
        *claims = others;
        Ok(())
    }

    /// Does not wait for an endpoint that hangs if the login can go on without it.
    async fn ask_user_info(
        &self,
        endpoint: &Endpoint,
        user: OfUser<'_>,
        is_needed: bool,
    ) -> Result<Map<String, Value>, NoTokens> {
        if is_needed || !self.breakers.of(ProviderCall::UserInfo).is_open() {
            return self.user_info(endpoint, user).await;
        }
        let with = self.clone();
        let endpoint = endpoint.clone();
        let access_token = user.access_token.to_owned();
        // Its response closes the circuit. One call at a time is made.
        tokio::spawn(async move {
            let request = with.provider.client.get(&endpoint, &access_token);
            let _ = with.call(ProviderCall::UserInfo, Box::pin(request)).await;
        });
        Err(NoTokens::Unavailable("UserInfo: no response in time to the last calls".to_owned()))
    }

    async fn user_info(&self, endpoint: &Endpoint, user: OfUser<'_>) -> Result<Map<String, Value>, NoTokens> {
        let request = self.provider.client.get(endpoint, user.access_token);
        let sent = self.call(ProviderCall::UserInfo, Box::pin(request)).await;
        let response = sent.map_err(|problem| NoTokens::Unavailable(format!("UserInfo: {problem}")))?;
        if response.status.is_server_error() || response.status == StatusCode::TOO_MANY_REQUESTS {
            return Err(NoTokens::Unavailable(format!("UserInfo: status {}", response.status)));
        }
        let claims = response.object().ok_or_else(|| NoTokens::Failed(refusal(&response)))?;
        // The access token can be that of another user (Core section 5.3.2).
        match claims.get("sub").and_then(Value::as_str) {
            Some(same) if same == user.subject => Ok(claims),
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
