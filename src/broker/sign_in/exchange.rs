//! The calls to a provider for tokens: with the code of a sign-in, and with a refresh token. Both end with the same
//! checks.
//!
//! A response says what is new. What it leaves out is as requested after a sign-in, and as before after a refresh (RFC
//! 6749 sections 5.1 and 6): it never means more than that.

use std::time::Duration;

use serde_json::{Map, Value};

use super::calls::ProviderCall;
use super::no_tokens::{NoTokens, failed};
use super::provider::SignInProvider;
use super::user_info::OfUser;
use crate::auth::oauth_client::OAuthResponse;
use crate::auth::provider::{Metadata, Optional};
use crate::tokens::family::Family;
use crate::tokens::sign_in::attempt::Attempt;
use crate::tokens::sign_in::id_token::{Asked, Check, Earlier, IdToken, WrongToken};
use crate::tokens::sign_in::known_claims::KnownClaims;
use crate::tokens::sign_in::provider_tokens::ProviderTokens;
use crate::tokens::sign_in::token_response::{self, TokenResponse};
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};

/// How long before their end the tokens are refreshed.
const AHEAD: Duration = Duration::from_mins(1);
/// How long an access token lives if the provider has never said it.
const DEFAULT_LIFETIME: Duration = Duration::from_hours(1);

/// What a provider responded. No `Debug`: it has tokens.
pub(super) struct Responded {
    /// Of any successful response, also if the rest cannot be used: it may be the only one that works from now on.
    pub(super) refresh_token: Option<String>,
    pub(super) tokens: Result<TokenResponse, NoTokens>,
}

/// Tokens of the provider, checked.
pub(super) struct Checked {
    pub(super) response: TokenResponse,
    /// `None` after a refresh without one.
    pub(super) id_token: Option<IdToken>,
    /// `None`: an older version of the gateway began the session, and this refresh says nothing of them.
    pub(super) claims: Option<KnownClaims>,
    /// Those of `provider.scopes` that are granted.
    pub(super) scope: String,
    /// Of the access token.
    pub(super) lifetime: Duration,
}

impl Checked {
    /// How long the provider's tokens need no refresh.
    pub(super) fn fresh_for(&self) -> Duration {
        self.lifetime.saturating_sub(AHEAD).max(self.lifetime / 2)
    }
}

/// A login before its refresh.
#[derive(Clone, Copy)]
pub(super) struct Before<'b> {
    pub(super) tokens: &'b ProviderTokens,
    pub(super) family: &'b Family,
}

impl Before<'_> {
    /// If nothing says where the claims come from, a new ID token replaces all of them, and so does UserInfo.
    fn claims(&self, has_id_token: bool) -> KnownClaims {
        match &self.tokens.claims {
            Some(known) => known.clone(),
            None if has_id_token => KnownClaims::default(),
            None => KnownClaims::of_family(self.family.claims.clone()),
        }
    }
}

/// What the response must match.
#[derive(Clone, Copy)]
struct Match<'m> {
    nonce: &'m str,
    asked: Asked<'m>,
    /// `None`: this is the first one.
    before: Option<Before<'m>>,
}

impl Match<'_> {
    fn earlier(&self) -> Option<Earlier<'_>> {
        let tokens = self.before?.tokens;
        Some(Earlier { subject: &tokens.subject, auth_time: tokens.auth_time })
    }
}

impl SignInProvider {
    /// With the code of the browser (RFC 6749 section 4.1.3, RFC 7636 section 4.5).
    pub(super) async fn exchange_code(
        &self,
        metadata: &Metadata,
        attempt: &Attempt,
        code: &str,
        redirect_uri: &str,
        clock: &dyn Clock,
    ) -> Responded {
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
        let asked = Asked { since: attempt.authenticated_since(), ..Asked::by(&self.settings.parameters) };
        self.check(metadata, response, Match { nonce: &attempt.nonce, asked, before: None }, clock).await
    }

    /// RFC 6749 section 6.
    pub(super) async fn exchange_refresh_token(
        &self,
        metadata: &Metadata,
        tokens: &ProviderTokens,
        clock: &dyn Clock,
    ) -> Responded {
        let Some(refresh_token) = tokens.refresh_token.as_deref() else {
            return Responded { refresh_token: None, tokens: Err(NoTokens::InvalidGrant) };
        };
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        self.post(ProviderCall::Refresh, metadata, &fields, clock).await
    }

    pub(super) async fn check_refreshed(
        &self,
        metadata: &Metadata,
        response: TokenResponse,
        before: Before<'_>,
        clock: &dyn Clock,
    ) -> Result<Checked, NoTokens> {
        let expected = Match { nonce: &before.tokens.nonce, asked: Asked::default(), before: Some(before) };
        self.check(metadata, response, expected, clock).await
    }

    async fn post(
        &self,
        call: ProviderCall,
        metadata: &Metadata,
        fields: &[(&str, &str)],
        clock: &dyn Clock,
    ) -> Responded {
        let sent = self.call(call, Box::pin(self.provider.client.post(&metadata.token, fields, clock.now()))).await;
        let response = match sent {
            Ok(response) => response,
            Err(problem) => return Responded { refresh_token: None, tokens: Err(NoTokens::Unavailable(problem)) },
        };
        let is_success = response.status.is_success();
        let refresh_token = is_success.then(|| token_response::refresh_token(&response.body)).flatten();
        let tokens = match response.object() {
            Some(object) => token_response::read(&object).map_err(failed),
            None => Err(no_tokens(&response)),
        };
        Responded { refresh_token, tokens }
    }

    /// Everything that the tokens must say before anything is done with them.
    async fn check(
        &self,
        metadata: &Metadata,
        response: TokenResponse,
        expected: Match<'_>,
        clock: &dyn Clock,
    ) -> Result<Checked, NoTokens> {
        let rules = &self.settings.rules;
        let has_id_token = response.id_token.is_some();
        let mut claims = expected.before.map(|before| before.claims(has_id_token)).unwrap_or_default();
        let mut id_token = None;
        let mut signed = Map::new();
        if let Some(text) = &response.id_token {
            let (checked, stated) = self.check_id_token(text, &response.access_token, expected, clock).await?;
            claims.replace_signed(&stated);
            id_token = Some(checked);
            signed = stated;
        }
        let subject = id_token.as_ref().map(|token| token.subject.as_str());
        let subject = subject.or(expected.earlier().map(|earlier| earlier.subject)).unwrap_or_default();
        let knows_none = !has_id_token
            && metadata.userinfo == Optional::Absent
            && expected.before.is_some_and(|before| before.tokens.claims.is_none());
        if !knows_none && (!has_id_token || rules.lack(&signed)) {
            let user = OfUser { access_token: &response.access_token, subject };
            self.add_user_info(metadata, user, &signed, &mut claims).await?;
        }
        let scope = self.granted(&response, expected.before);
        let lifetime = response.lifetime.or(expected.before.and_then(|before| before.tokens.access_lifetime()));
        let lifetime = lifetime.unwrap_or(DEFAULT_LIFETIME);
        Ok(Checked { response, id_token, claims: (!knows_none).then_some(claims), scope, lifetime })
    }

    /// What an ID token says, and its claims that the rules may need.
    async fn check_id_token(
        &self,
        text: &str,
        access_token: &str,
        expected: Match<'_>,
        clock: &dyn Clock,
    ) -> Result<(IdToken, Map<String, Value>), NoTokens> {
        let mut signed = self.verify(text, clock).await.map_err(unverified)?;
        let check = Check {
            header: &signed.header,
            claims: &signed.claims,
            issuer: &self.provider.issuer,
            client_id: &self.provider.client.client_id,
            nonce: expected.nonce,
            access_token,
            asked: expected.asked,
            earlier: expected.earlier(),
            now: clock.now(),
        };
        let id_token = check.run().map_err(rejected)?;
        signed.claims.retain(|name, _| self.settings.rules.concern(name));
        Ok((id_token, signed.claims))
    }

    /// A provider cannot grant what the gateway did not ask for: it could be a scope of the gateway's own.
    fn granted(&self, response: &TokenResponse, before: Option<Before<'_>>) -> String {
        let asked = &*self.settings.scopes;
        let unchanged = before.map_or(asked, |before| &before.family.scope);
        let granted = response.scope.as_deref().unwrap_or(unchanged);
        let is_asked = |scope: &&str| asked.split(' ').any(|asked| asked == *scope);
        granted.split(' ').filter(is_asked).collect::<Vec<_>>().join(" ")
    }
}

fn unverified(reject: Reject) -> NoTokens {
    let detail = format!("the ID token is rejected: {}: {}", reject.reason.code(), reject.detail);
    // The provider signs with a key before it publishes it everywhere.
    if reject.reason.status().is_server_error() || reject.reason == Reason::UnknownKey {
        NoTokens::Unavailable(detail)
    } else {
        NoTokens::Failed(detail)
    }
}

fn rejected(wrong: WrongToken) -> NoTokens {
    let detail = format!("the ID token is rejected: {}", wrong.detail());
    match wrong {
        WrongToken::OtherUser(_) => NoTokens::OtherUser(detail),
        WrongToken::Unusable(_) => NoTokens::Failed(detail),
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
