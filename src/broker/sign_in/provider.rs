//! A provider with the rules for those who sign in there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::auth::oauth_client::Endpoint;
use crate::auth::provider::{Metadata, Provider, Providers};
use crate::tokens::jwt::signed::SignedToken;
use crate::tokens::sign_in::rules::SignInRules;
use crate::tokens::sign_in::token_response::TokenResponse;
use crate::types::clock::{Clock, UnixTime};
use crate::types::reject::{Reject, with_causes};

/// The keys of `[[provider]]` that concern sign-ins.
#[derive(Clone, Debug, PartialEq)]
pub struct SignInSettings {
    /// `provider.scopes`, separated by spaces.
    pub scopes: String,
    /// `provider.authorization_parameters`
    pub parameters: BTreeMap<String, String>,
    pub rules: SignInRules,
    /// `provider.max_staleness`: how long logins live on while the provider does not respond.
    pub max_staleness: Duration,
}

#[derive(Clone)]
pub struct SignInProvider {
    pub provider: Arc<Provider>,
    pub settings: SignInSettings,
    /// What is known of it.
    pub known: Arc<Providers>,
    /// True when the log has the warning about PKCE.
    pub warned: Arc<AtomicBool>,
}

impl SignInProvider {
    /// Its endpoints, for the start of a sign-in.
    pub fn metadata_to_start(&self) -> Result<Metadata, Reject> {
        let metadata = self.metadata()?;
        if !metadata.has_pkce && !self.warned.swap(true, Ordering::Relaxed) {
            let provider = &*self.provider.name;
            tracing::warn!(provider, "the provider does not announce PKCE (S256), and may not check it");
        }
        Ok(metadata)
    }

    /// Its endpoints, as far as they are known.
    pub fn metadata(&self) -> Result<Metadata, Reject> {
        self.known.metadata(&self.provider)
    }

    /// Revokes a token at the provider (RFC 7009), or says why not.
    pub(super) async fn revoke(&self, endpoint: &Endpoint, token: &UnusedToken, now: UnixTime) -> Result<(), String> {
        let fields = [("token", token.text.as_str()), ("token_type_hint", token.hint)];
        let response = Box::pin(self.provider.client.post(endpoint, &fields, now)).await;
        let status = response.map_err(|error| with_causes(&error))?.status;
        if status.is_success() { Ok(()) } else { Err(format!("status {status}")) }
    }

    /// Revokes a token that no session has. Once, and without waiting: it also ends by itself.
    pub(super) fn revoke_unused(&self, metadata: &Metadata, unused: UnusedToken, now: UnixTime) {
        let Some(endpoint) = metadata.revocation.clone() else { return };
        let with = self.clone();
        tokio::spawn(async move {
            if let Err(problem) = with.revoke(&endpoint, &unused, now).await {
                tracing::warn!(provider = &*with.provider.name, problem, "cannot revoke tokens at a provider");
            }
        });
    }

    /// Verifies the signature of a token of this provider.
    pub(super) async fn verify(&self, token: &str, clock: &dyn Clock) -> Result<SignedToken, Reject> {
        self.known.verify(&self.provider, token, clock.uptime()).await
    }
}

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

    pub(super) fn refresh(text: String) -> Self {
        UnusedToken { text, hint: "refresh_token" }
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

    pub fn named(&self, name: &str) -> Option<&SignInProvider> {
        self.0.iter().find(|known| *known.provider.name == *name)
    }
}
