//! The providers at which browsers sign in, from the configuration.

use std::sync::Arc;

use crate::auth::provider::Providers;
use crate::broker::sign_in::{Breakers, CallCounts, SignInProvider, SignInProviders};
use crate::config::Config;
use crate::telemetry::metrics::Metrics;

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

pub(super) fn register_metrics(counts: &Arc<CallCounts>, metrics: &mut Metrics) {
    let calls = counts.clone();
    let help = "Calls to providers for sign-ins by provider, call and outcome";
    metrics.counters("provider_calls", help, move || calls.labelled());
    let sign_ins = counts.clone();
    let help = "Sign-ins for which a provider issued no refresh token, although the gateway asked for one";
    metrics.counters("sign_ins_without_refresh_token", help, move || sign_ins.labelled_without_refresh_token());
}
