//! The calls to a provider for tokens: with the code of a sign-in, and with a refresh token. Both end with the same
//! checks.

use std::time::Duration;

use serde_json::{Map, Value};

use super::calls::ProviderCall;
use super::provider::SignInProvider;
use crate::auth::oauth_client::OAuthResponse;
use crate::auth::provider::Metadata;
use crate::tokens::sign_in::attempt::Attempt;
use crate::tokens::sign_in::id_token::{Asked, Check, Earlier, IdToken};
use crate::tokens::sign_in::provider_tokens::ProviderTokens;
use crate::tokens::sign_in::token_response::{self, TokenResponse};
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};

/// How long before their end the tokens are refreshed.
const AHEAD: Duration = Duration::from_mins(1);

/// Why there are no tokens.
pub(super) enum NoTokens {
    /// The provider rejects the code or the refresh token for good.
    InvalidGrant,
    /// It responds with something that cannot be used.
    Failed(String),
    /// It responds with tokens that are not for this login. They never will be.
    OtherLogin(String),
    /// It does not respond.
    Unavailable(String),
}

impl NoTokens {
    /// For the browser that signs in.
    pub(super) fn reject(self) -> Reject {
        match self {
            NoTokens::InvalidGrant => Reject::new(Reason::SignInFailed, "the provider rejects the code: invalid_grant"),
            NoTokens::Failed(detail) | NoTokens::OtherLogin(detail) => Reject::new(Reason::SignInFailed, detail),
            NoTokens::Unavailable(detail) => Reject::new(Reason::ProviderUnavailable, detail),
        }
    }

    /// For the log.
    pub(super) fn detail(self) -> String {
        match self {
            NoTokens::InvalidGrant => "invalid_grant".to_owned(),
            NoTokens::Failed(detail) | NoTokens::OtherLogin(detail) | NoTokens::Unavailable(detail) => detail,
        }
    }
}

/// Tokens of the provider, checked.
pub(super) struct Checked {
    pub(super) response: TokenResponse,
    /// `None` after a refresh without one.
    pub(super) id_token: Option<IdToken>,
    /// Of the ID token, with those of UserInfo that it lacks.
    pub(super) claims: Option<Map<String, Value>>,
    /// Those of `provider.scopes` that were granted.
    pub(super) scope: String,
}

impl Checked {
    /// How long the provider's tokens need no refresh.
    pub(super) fn fresh_for(&self) -> Duration {
        let lifetime = self.response.lifetime;
        lifetime.saturating_sub(AHEAD).max(lifetime / 2)
    }
}

/// What the ID token must match.
#[derive(Clone, Copy)]
struct Match<'m> {
    nonce: &'m str,
    asked: Asked<'m>,
    earlier: Option<Earlier<'m>>,
}

impl SignInProvider {
    /// With the code of the browser (RFC 6749 section 4.1.3, RFC 7636 section 4.5).
    pub(super) async fn exchange_code(
        &self,
        metadata: &Metadata,
        attempt: &Attempt,
        (code, redirect_uri): (&str, &str),
        clock: &dyn Clock,
    ) -> Result<TokenResponse, NoTokens> {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", &attempt.verifier),
        ];
        self.post(ProviderCall::Code, metadata, &fields, clock).await
    }

    pub(super) async fn check_first(
        &self,
        metadata: &Metadata,
        response: TokenResponse,
        attempt: &Attempt,
        clock: &dyn Clock,
    ) -> Result<Checked, NoTokens> {
        if response.id_token.is_none() {
            return Err(failed("the response has no id_token"));
        }
        let asked = Asked::by(&self.settings.parameters);
        self.check(metadata, response, Match { nonce: &attempt.nonce, asked, earlier: None }, clock).await
    }

    /// RFC 6749 section 6.
    pub(super) async fn exchange_refresh_token(
        &self,
        metadata: &Metadata,
        tokens: &ProviderTokens,
        clock: &dyn Clock,
    ) -> Result<TokenResponse, NoTokens> {
        let refresh_token = tokens.refresh_token.as_deref().ok_or(NoTokens::InvalidGrant)?;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        self.post(ProviderCall::Refresh, metadata, &fields, clock).await
    }

    pub(super) async fn check_refreshed(
        &self,
        metadata: &Metadata,
        response: TokenResponse,
        tokens: &ProviderTokens,
        clock: &dyn Clock,
    ) -> Result<Checked, NoTokens> {
        let earlier = Some(Earlier { subject: &tokens.subject, auth_time: tokens.auth_time });
        let expected = Match { nonce: &tokens.nonce, asked: Asked::default(), earlier };
        self.check(metadata, response, expected, clock).await
    }

    async fn post(
        &self,
        call: ProviderCall,
        metadata: &Metadata,
        fields: &[(&str, &str)],
        clock: &dyn Clock,
    ) -> Result<TokenResponse, NoTokens> {
        let sent = self.call(call, Box::pin(self.provider.client.post(&metadata.token, fields, clock.now()))).await;
        let response = sent.map_err(NoTokens::Unavailable)?;
        match response.object() {
            Some(object) => token_response::read(&object).map_err(failed),
            None => Err(no_tokens(&response)),
        }
    }

    /// Everything that the tokens must say before anything is done with them.
    async fn check(
        &self,
        metadata: &Metadata,
        response: TokenResponse,
        expected: Match<'_>,
        clock: &dyn Clock,
    ) -> Result<Checked, NoTokens> {
        let (mut id_token, mut claims) = (None, None);
        if let Some(text) = &response.id_token {
            let signed = self.verify(text, clock).await.map_err(unverified)?;
            let check = Check {
                header: &signed.header,
                claims: &signed.claims,
                issuer: &self.provider.issuer,
                client_id: &self.provider.client.client_id,
                nonce: expected.nonce,
                access_token: &response.access_token,
                asked: expected.asked,
                earlier: expected.earlier,
                now: clock.now(),
            };
            id_token =
                Some(check.run().map_err(|wrong| NoTokens::OtherLogin(format!("the ID token is rejected: {wrong}")))?);
            claims = Some(signed.claims);
        }
        let subject = id_token.as_ref().map(|token| token.subject.as_str());
        let subject = subject.or(expected.earlier.map(|earlier| earlier.subject)).unwrap_or_default();
        let lacks = claims.as_ref().is_none_or(|claims| self.settings.rules.lack(claims));
        if lacks && let Some(more) = self.user_info(metadata, &response.access_token, subject).await? {
            let claims = claims.get_or_insert_default();
            // The signed ones count.
            for (name, value) in more {
                claims.entry(name).or_insert(value);
            }
        }
        let scope = self.granted(&response);
        Ok(Checked { response, id_token, claims, scope })
    }

    /// The claims of UserInfo (Core section 5.3). `None` if the provider has none.
    async fn user_info(
        &self,
        metadata: &Metadata,
        access_token: &str,
        subject: &str,
    ) -> Result<Option<Map<String, Value>>, NoTokens> {
        let Some(endpoint) = &metadata.userinfo else { return Ok(None) };
        let sent = self.call(ProviderCall::UserInfo, Box::pin(self.provider.client.get(endpoint, access_token))).await;
        let response = sent.map_err(NoTokens::Unavailable)?;
        if response.status.is_server_error() {
            return Err(NoTokens::Unavailable(format!("UserInfo: status {}", response.status)));
        }
        let claims = response
            .object()
            .ok_or_else(|| NoTokens::Failed(format!("UserInfo: status {} without a JSON object", response.status)))?;
        // The access token can be that of another user (Core section 5.3.2).
        match claims.get("sub").and_then(Value::as_str) == Some(subject) {
            true => Ok(Some(claims)),
            false => Err(NoTokens::OtherLogin("sub of UserInfo is not that of the ID token".to_owned())),
        }
    }

    /// A provider cannot grant what the gateway did not ask for: it could be a scope of the gateway's own.
    fn granted(&self, response: &TokenResponse) -> String {
        let asked = &self.settings.scopes;
        let Some(granted) = &response.scope else { return asked.clone() };
        let is_asked = |scope: &&str| asked.split(' ').any(|asked| asked == *scope);
        granted.split(' ').filter(is_asked).collect::<Vec<_>>().join(" ")
    }
}

fn failed(detail: &'static str) -> NoTokens {
    NoTokens::Failed(detail.to_owned())
}

fn unverified(reject: Reject) -> NoTokens {
    let detail = format!("the ID token is rejected: {}: {}", reject.reason.code(), reject.detail);
    // The provider signs with a key before it publishes it everywhere. That says nothing about the login.
    match reject.reason.status().is_server_error() || reject.reason == Reason::UnknownKey {
        true => NoTokens::Unavailable(detail),
        false => NoTokens::OtherLogin(detail),
    }
}

fn no_tokens(response: &OAuthResponse) -> NoTokens {
    let detail = |what: &str| format!("token endpoint: status {}, {what}", response.status);
    match response.error() {
        Some(code) if code == "invalid_grant" => NoTokens::InvalidGrant,
        Some(code) if response.status.is_client_error() => NoTokens::Failed(detail(&code)),
        Some(code) => NoTokens::Unavailable(detail(&code)),
        None if response.status.is_server_error() => NoTokens::Unavailable(detail("no error code")),
        None => NoTokens::Failed(detail("no JSON object")),
    }
}
