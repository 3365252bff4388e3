//! A provider with the rules for those who sign in there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::provider::{Metadata, Provider, Providers};
use crate::tokens::jwt::signed::SignedToken;
use crate::tokens::sign_in::rules::SignInRules;
use crate::types::clock::Clock;
use crate::types::reject::Reject;

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
}

impl SignInProvider {
    /// Its endpoints, as far as they are known.
    pub fn metadata(&self) -> Result<Metadata, Reject> {
        self.known.metadata(&self.provider)
    }

    /// Verifies the signature of a token of this provider.
    pub(super) async fn verify(&self, token: &str, clock: &dyn Clock) -> Result<SignedToken, Reject> {
        self.known.verify(&self.provider, token, clock.uptime()).await
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
