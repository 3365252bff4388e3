//! A provider with the rules for those who sign in there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;

use super::calls::{Breakers, CallCounts, CallOutcome, ProviderCall};
use crate::auth::oauth_client::{Endpoint, OAuthClientError, OAuthResponse};
use crate::auth::provider::{Metadata, Optional, Provider, Providers};
use crate::store::ProviderLogin;
use crate::telemetry::outage::OutageChange;
use crate::tokens::family::Family;
use crate::tokens::jwt::SignedInAt;
use crate::tokens::jwt::signed::SignedToken;
use crate::tokens::sign_in::rules::SignInRules;
use crate::tokens::sign_in::token_response::TokenResponse;
use crate::types::clock::{Clock, UnixTime, Uptime};
use crate::types::reject::{Reject, with_causes};

/// The keys of `[[provider]]` that concern sign-ins.
#[derive(Clone, Debug, PartialEq)]
pub struct SignInProviderSettings {
    /// `provider.scopes`, separated by spaces.
    pub scopes: String,
    /// `provider.authorization_parameters`
    pub parameters: BTreeMap<String, String>,
    pub rules: SignInRules,
    /// `provider.max_staleness`: how long logins live on while the provider does not respond.
    pub max_staleness: Duration,
    /// `provider.consecutive_timeouts`
    pub consecutive_timeouts: usize,
}

impl SignInProviderSettings {
    /// Returns true if the same users can sign in as by `others`, and get the same scopes and claims.
    pub fn admit_as(&self, others: &SignInProviderSettings) -> bool {
        self.rules == others.rules && self.scopes == others.scopes && self.parameters == others.parameters
    }

    /// Returns true if the provider is asked for a refresh token: by OpenID Connect Core section 11, or as at Google.
    pub(super) fn ask_for_refresh_token(&self) -> bool {
        let is_offline = self.parameters.get("access_type").is_some_and(|kind| kind == "offline");
        is_offline || self.scopes.split(' ').any(|scope| scope == "offline_access")
    }
}

#[derive(Clone)]
pub struct SignInProvider {
    pub provider: Arc<Provider>,
    pub settings: SignInProviderSettings,
    /// What is known of it.
    pub known: Arc<Providers>,
    pub warned: Arc<Warned>,
    pub breakers: Arc<Breakers>,
    /// Of all providers.
    pub counts: Arc<CallCounts>,
}

/// The warnings about a provider that the log has. Each sign-in would repeat them.
#[derive(Debug, Default)]
pub struct Warned {
    pkce: AtomicBool,
    pub(super) user_info: AtomicBool,
    refresh_token: AtomicBool,
    sealed: AtomicBool,
}

/// Why a token was not revoked at its provider.
pub(super) struct NotRevoked {
    pub(super) problem: String,
    /// If true, other tokens cannot be revoked there either.
    pub(super) is_down: bool,
}

impl SignInProvider {
    /// Its endpoints, for the start of a sign-in.
    pub fn metadata_to_start(&self) -> Result<Metadata, Reject> {
        let metadata = self.metadata()?;
        if !metadata.has_pkce && !self.warned.pkce.swap(true, Ordering::Relaxed) {
            let provider = &*self.provider.name;
            tracing::warn!(provider, "the provider does not announce PKCE (S256), and may not check it");
        }
        Ok(metadata)
    }

    /// Its endpoints, as far as they are known.
    pub fn metadata(&self) -> Result<Metadata, Reject> {
        self.known.metadata(&self.provider)
    }

    /// As [`SignInProvider::metadata`]. A gateway that has just started waits for them: the user is at the end of a
    /// sign-in that began before.
    pub async fn metadata_to_end(&self, now: Uptime) -> Result<Metadata, Reject> {
        self.known.first_metadata(&self.provider, now).await
    }

    /// Counts a sign-in for which the provider issued no refresh token, and warns, if the gateway asks for one.
    pub(super) fn without_refresh_token(&self) {
        if !self.settings.ask_for_refresh_token() {
            return;
        }
        self.counts.count_without_refresh_token(&self.provider.name);
        if self.warned.refresh_token.swap(true, Ordering::Relaxed) {
            return;
        }
        let provider = &*self.provider.name;
        tracing::warn!(
            provider,
            "the provider issues no refresh token, although the gateway asks for one: it is not asked again about a \
             session until that ends; set authorization_parameters = [\"prompt=consent\"], or allow refresh tokens for \
             this client at the provider"
        );
    }

    /// Warns that the tokens of an ended session cannot be opened.
    pub(super) fn cannot_open(&self) {
        if self.warned.sealed.swap(true, Ordering::Relaxed) {
            return;
        }
        let provider = &*self.provider.name;
        tracing::warn!(
            provider,
            "cannot revoke tokens of ended sessions: the provider had another issuer when these sessions began, or their \
             root secret is missing; the gateway keeps them for a day"
        );
    }

    /// Makes a call, unless the endpoint hangs. The error is for the log. Callers box the request: its future
    /// over TLS is large.
    pub(super) async fn call(
        &self,
        call: ProviderCall,
        request: impl Future<Output = Result<OAuthResponse, OAuthClientError>>,
    ) -> Result<OAuthResponse, String> {
        let name = &self.provider.name;
        let Some(turn) = self.breakers.of(call).begin() else {
            self.counts.count(name, call, CallOutcome::Skipped);
            return Err("the provider did not respond in time to the last calls, and is asked again soon".to_owned());
        };
        let response = request.await;
        turn.end(response.as_ref().is_err_and(OAuthClientError::is_timeout));
        self.counts.count(name, call, CallOutcome::of(&response));
        let response = response.map_err(|error| with_causes(&error));
        self.note(call, &response);
        response
    }

    /// A provider that rejects a call works.
    fn note(&self, call: ProviderCall, response: &Result<OAuthResponse, String>) {
        let error = match response {
            Ok(response) if response.status.is_server_error() => format!("status {}", response.status),
            Ok(_) => String::new(),
            Err(error) => error.clone(),
        };
        let provider = &*self.provider.name;
        let issuer = &*self.provider.issuer;
        match self.breakers.outage_of(call).note(&error, Instant::now()) {
            Some(OutageChange::Failed { others }) => tracing::error!(
                provider,
                issuer,
                call = call.as_str(),
                error,
                other_changes = others,
                "an endpoint of the provider fails: users cannot sign in, or their sessions cannot be refreshed"
            ),
            Some(OutageChange::Ended) => {
                tracing::info!(provider, issuer, call = call.as_str(), "the endpoint of the provider works again");
            }
            None => {}
        }
    }

    /// Revokes a token at the provider (RFC 7009), or says why not.
    pub(super) async fn revoke(
        &self,
        endpoint: &Endpoint,
        token: &UnusedToken,
        now: UnixTime,
    ) -> Result<(), NotRevoked> {
        let fields = [("token", token.text.as_str()), ("token_type_hint", token.hint)];
        let response =
            self.call(ProviderCall::Revocation, Box::pin(self.provider.client.post(endpoint, &fields, now))).await;
        let status = response.map_err(|problem| NotRevoked { problem, is_down: true })?.status;
        if status.is_success() {
            Ok(())
        } else {
            Err(NotRevoked { problem: format!("status {status}"), is_down: is_of_all_tokens(status) })
        }
    }

    /// Revokes a token that no session has. Once, and without waiting: it also ends by itself.
    pub(super) fn revoke_unused(&self, metadata: &Metadata, unused: UnusedToken, now: UnixTime) {
        let Optional::Usable(endpoint) = metadata.revocation.clone() else { return };
        let with = self.clone();
        tokio::spawn(async move {
            if let Err(NotRevoked { problem, .. }) = with.revoke(&endpoint, &unused, now).await {
                tracing::warn!(provider = &*with.provider.name, problem, "cannot revoke tokens at a provider");
            }
        });
    }

    /// Verifies the signature of a token of this provider.
    pub(super) async fn verify(&self, token: &str, clock: &dyn Clock) -> Result<SignedToken, Reject> {
        self.known.verify(&self.provider, token, clock.uptime()).await
    }
}

/// The `token_type_hint` of RFC 7009 section 2.1.
const REFRESH: &str = "refresh_token";

/// A token of a provider that is to be revoked there. No `Debug`: it must not reach a log.
pub(super) struct UnusedToken {
    text: String,
    hint: &'static str,
}

impl UnusedToken {
    /// The access tokens end with their refresh token (RFC 7009 section 2.1).
    pub(super) fn of(response: &TokenResponse) -> Self {
        match &response.refresh_token {
            Some(token) => UnusedToken::refresh(token.clone()),
            None => UnusedToken { text: response.access_token.clone(), hint: "access_token" },
        }
    }

    pub(super) fn is_refresh_token(&self) -> bool {
        self.hint == REFRESH
    }

    pub(super) fn refresh(text: String) -> Self {
        UnusedToken { text, hint: REFRESH }
    }
}

/// Those of the active configuration.
#[derive(Default)]
pub struct SignInProviders(Vec<SignInProvider>);

impl SignInProviders {
    pub fn new(providers: Vec<SignInProvider>) -> Self {
        SignInProviders(providers)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn all(&self) -> &[SignInProvider] {
        &self.0
    }

    pub fn named(&self, name: &str) -> Option<&SignInProvider> {
        self.0.iter().find(|known| *known.provider.name == *name)
    }

    /// The provider of a login. `None` if it was removed, or has another issuer since a reload: that one must see no
    /// token of the issuer before it.
    pub fn of(&self, family: &Family, login: &ProviderLogin) -> Option<&SignInProvider> {
        let origin = family.origin.as_ref()?;
        self.named(&login.provider).filter(|with| *with.provider.issuer == *origin.issuer)
    }

    /// Where the logins that count began.
    pub fn places(&self) -> Vec<SignedInAt> {
        let place = |with: &SignInProvider| SignedInAt {
            provider: with.provider.name.clone(),
            issuer: with.provider.issuer.clone(),
        };
        self.0.iter().map(place).collect()
    }
}

/// Returns true if the provider would answer the same for each other token: it fails, has had too many requests, or
/// does not know the gateway as its client (RFC 7009 section 2.2.1).
fn is_of_all_tokens(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_fails_is_not_asked_about_each_token() {
        for (status, expected) in [(500, true), (503, true), (429, true), (401, true), (400, false), (404, false)] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(is_of_all_tokens(status), expected, "{status}");
        }
    }
}
