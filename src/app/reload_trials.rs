//! Endpoints that a reload tries once they are active, because they replace others that may have worked. A mistyped URL
//! or a wrong secret would otherwise show only in the responses to clients.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::shared_state::SharedState;
use crate::auth::introspection::{IntrospectionSettings, Introspector};
use crate::auth::keyring::Keyring;
use crate::auth::token_exchange::TokenExchangeSettings;
use crate::broker::sign_in::SignInProvider;
use crate::config::Config;
use crate::gateway::Gateway;
use crate::types::clock::Clock;

/// Maximum time of one trial. `client_timeout` may be longer.
const TRIAL_LIMIT: Duration = Duration::from_secs(5);

/// The endpoints to try.
pub(super) struct Trials {
    introspectors: Vec<Arc<Introspector>>,
    exchanges: Vec<TokenExchangeSettings>,
    providers: Vec<SignInProvider>,
}

impl Trials {
    /// Those of `next` that replace one of the same issuer or name in `current`.
    pub(super) fn of(current: &Config, next: &Config, gateway: &Gateway) -> Self {
        let replaces_issuer = |next: &&Arc<Introspector>| {
            let before = current.issuers.iter().find(|issuer| issuer.policy.issuer == next.policy.issuer);
            let is_same = |before: &IntrospectionSettings| before.is_asked_as(&next.settings);
            before.is_some_and(|before| !before.introspection.as_ref().is_some_and(is_same))
        };
        let replaces_exchange = |next: &&TokenExchangeSettings| {
            let before = current.token_exchanges.iter().find(|exchange| exchange.name == next.name);
            before.is_some_and(|before| !before.is_asked_as(next))
        };
        let replaces_provider = |next: &&SignInProvider| {
            let before = current.providers.iter().find(|provider| provider.name == next.provider.name);
            before.is_some_and(|before| !before.is_asked_as(&next.provider))
        };
        let introspectors = gateway.decider.authenticator.introspection.introspectors().iter();
        let providers = gateway.sign_in.iter().flat_map(|sign_in| sign_in.providers.all());
        Trials {
            introspectors: introspectors.filter(replaces_issuer).cloned().collect(),
            exchanges: next.token_exchanges.iter().filter(replaces_exchange).cloned().collect(),
            providers: providers.filter(replaces_provider).cloned().collect(),
        }
    }

    /// Asks all endpoints at once. Returns a warning for each that would fail for every token. Do not call it on the
    /// control thread.
    pub(super) fn run(self, state: &SharedState) -> Vec<String> {
        if self.introspectors.is_empty() && self.exchanges.is_empty() && self.providers.is_empty() {
            return Vec::new();
        }
        let keyring = state.auth.keyring.clone();
        let clock = state.clock.clone();
        state.key_watch.run(TRIAL_LIMIT, self.warnings(keyring, clock)).unwrap_or_default()
    }

    async fn warnings(self, keyring: Arc<Keyring>, clock: Arc<dyn Clock>) -> Vec<String> {
        let mut trials = JoinSet::new();
        for asked in self.introspectors {
            let keyring = keyring.clone();
            let clock = clock.clone();
            let name = format!("introspection of {}", asked.policy.issuer);
            trials.spawn(async move { found(&name, timeout(TRIAL_LIMIT, asked.probe(&keyring, &*clock)).await) });
        }
        for settings in self.exchanges {
            let clock = clock.clone();
            let name = format!("token_exchange {}", settings.name);
            trials.spawn(async move { found(&name, timeout(TRIAL_LIMIT, settings.probe(&*clock)).await) });
        }
        for with in self.providers {
            let clock = clock.clone();
            let name = format!("provider {}", with.provider.name);
            trials.spawn(async move { found(&name, timeout(TRIAL_LIMIT, with.probe(&*clock)).await) });
        }
        trials.join_all().await.into_iter().flatten().collect()
    }
}

fn found(name: &str, result: Result<Result<(), String>, tokio::time::error::Elapsed>) -> Option<String> {
    let error = match result {
        Ok(result) => result.err()?,
        Err(_) => format!("no response within {} s", TRIAL_LIMIT.as_secs()),
    };
    Some(format!("{name}: {error}"))
}
