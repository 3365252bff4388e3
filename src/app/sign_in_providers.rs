//! The providers at which browsers sign in, from the configuration.

use std::sync::Arc;

use crate::auth::provider::Providers;
use crate::broker::sign_in::{Breakers, CallCounts, SignInProvider, SignInProviders};
use crate::config::Config;

/// Those of `[[provider]]` that a route names, with a circuit breaker of their own and the calls counted so far.
pub(super) fn of(config: &Config, known: &Arc<Providers>, counts: &Arc<CallCounts>) -> Arc<SignInProviders> {
    config.providers.iter().for_each(|provider| counts.expect(&provider.name));
    let providers = config.sign_in.iter().flat_map(|settings| &settings.providers);
    let with_rules = providers.map(|(provider, settings)| SignInProvider {
        provider: provider.clone(),
        settings: settings.clone(),
        known: known.clone(),
        warned: Arc::default(),
        breakers: Arc::new(Breakers::new(settings.consecutive_timeouts)),
        counts: counts.clone(),
    });
    Arc::new(SignInProviders::new(with_rules.collect()))
}
