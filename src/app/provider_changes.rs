//! Warnings about a reload of `[[provider]]` or `[[oauth.exchange]]`: what it means for the sessions that began before
//! it.

use std::collections::BTreeSet;

use crate::auth::provider::Provider;
use crate::broker::sign_in::SignInProviderSettings;
use crate::config::Config;

/// One warning for each provider or issuer of which sessions do not go on as the new configuration would begin them.
pub(super) fn warnings(current: &Config, next: &Config) -> Vec<String> {
    let signed_in_at = current.sign_in.iter().flat_map(|settings| &settings.providers);
    let of_providers = signed_in_at.flat_map(|(provider, settings)| warnings_of(provider, settings, next));
    let before = exchanged(current);
    let after = exchanged(next);
    let of_issuers = before.difference(&after).map(|issuer| {
        format!(
            "no [[oauth.exchange]] takes tokens of {issuer} any more: sessions that began with them go on; to end all of \
             them, run: bearward token revoke --all --issuer {issuer}"
        )
    });
    of_providers.chain(of_issuers).collect()
}

/// The issuers with exchanged tokens that are refreshed.
fn exchanged(config: &Config) -> BTreeSet<&str> {
    let rules = config.oauth.exchange.iter().filter(|rule| rule.refresh_token);
    rules.map(|rule| rule.issuer.as_str()).collect()
}

fn warnings_of(provider: &Provider, settings: &SignInProviderSettings, next: &Config) -> Vec<String> {
    let Provider { name, issuer, .. } = provider;
    let still_there = next.sign_in.iter().flat_map(|settings| &settings.providers);
    let mut of_name = still_there.filter(|(next, _)| next.name == *name);
    let Some((now, rules)) = of_name.next() else {
        return vec![format!(
            "provider {name} was removed: its sessions are rejected, and their streams end; the tokens that it issued \
             to the gateway stay valid there until they expire"
        )];
    };
    if now.issuer != *issuer {
        return vec![format!(
            "provider {name} has another issuer: sessions that began at {issuer} are rejected, and their streams end; \
             the tokens that it issued to the gateway stay valid there until they expire"
        )];
    }
    let mut warnings = Vec::new();
    if now.client.client_id != provider.client.client_id {
        warnings.push(format!(
            "provider {name} has another client_id: a session that began before goes on, but its next refresh there can \
             end it, because the refresh token is of the old client, and logout tokens of the old client are rejected; \
             to end all of them, run: bearward token revoke --all --issuer {issuer}"
        ));
    }
    if !rules.admit_as(settings) {
        warnings.push(format!(
            "provider {name} has other rules for sign-ins: a session that began before goes on under the old ones until \
             its next refresh there; until it ends if it has no refresh token, or if an older version of bearward \
             began it and refreshes state no claims; to end all of them, run: bearward token revoke --all --issuer \
             {issuer}"
        ));
    }
    warnings
}
