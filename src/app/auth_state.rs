//! What decisions about tokens read: keys, revocations, and what was seen of other tokens.

use std::collections::HashSet;
use std::sync::Arc;

use crate::auth::api_keys::{ApiKeySettings, ApiKeys};
use crate::auth::authenticate::Authenticator;
use crate::auth::keyring::Keyring;
use crate::auth::renewals::Renewals;
use crate::auth::revocations::Revocations;
use crate::auth::seen_generations::SeenGenerations;
use crate::auth::token_cache::TokenCache;
use crate::config::Config;
use crate::gateway::cors::Cors;
use crate::gateway::decide::Decider;
use crate::gateway::route::{Route, TokenForwarding};
use crate::gateway::route_table::RouteTable;
use crate::gateway::streams::TokenChecks;
use crate::store::Freshness;
use crate::telemetry::metrics::RequestsByRoute;
use crate::types::clock::Clock;

pub(super) struct AuthState {
    pub(super) keyring: Arc<Keyring>,
    pub(super) revocations: Arc<Revocations>,
    pub(super) seen_generations: Arc<SeenGenerations>,
    pub(super) renewals: Arc<Renewals>,
    pub(super) api_keys: Arc<ApiKeys>,
    /// `None`: the store belongs to this gateway alone.
    freshness: Option<Arc<Freshness>>,
}

impl AuthState {
    pub(super) fn new(
        keyring: Arc<Keyring>,
        revocations: Arc<Revocations>,
        api_keys: ApiKeys,
        freshness: Option<Arc<Freshness>>,
    ) -> Self {
        AuthState {
            keyring,
            revocations,
            seen_generations: Arc::default(),
            renewals: Arc::default(),
            api_keys: Arc::new(api_keys),
            freshness,
        }
    }

    /// With the same keys and revocations. A token that is only explained confirms no refresh and renews no stream.
    pub(super) fn without_effects(&self) -> Self {
        let api_keys = self.api_keys.without_effects();
        AuthState::new(self.keyring.clone(), self.revocations.clone(), api_keys, self.freshness.clone())
    }

    /// The checks that end a stream when its token is no longer valid.
    pub(super) fn token_checks(&self, clock: Arc<dyn Clock>) -> TokenChecks {
        TokenChecks {
            clock,
            revocations: self.revocations.clone(),
            keyring: self.keyring.clone(),
            renewals: self.renewals.clone(),
            freshness: self.freshness.clone(),
        }
    }

    /// Decides about requests by this configuration. `cache_size` is that of the token cache in bytes.
    /// `requests`: the counters of its routes.
    pub(super) fn decider(&self, config: &Config, cache_size: usize, requests: &RequestsByRoute) -> Decider {
        let authenticator = Authenticator {
            keyring: self.keyring.clone(),
            revocations: self.revocations.clone(),
            token_cache: Arc::new(TokenCache::with_replacements(cache_size, replacement_audiences(&config.routes))),
            seen_generations: self.seen_generations.clone(),
            renewals: self.renewals.clone(),
            api_keys: self.api_keys.clone(),
            freshness: self.freshness.clone(),
            identity: config.identity.clone(),
            token_size: config.limits.token_size,
        };
        let counted = |route: &Route| Route { requests: requests.of(&route.name), ..route.clone() };
        let routes: Vec<_> = config.routes.iter().map(counted).collect();
        let routes = RouteTable::new(&routes).with_endpoints(&config.oauth);
        Decider {
            routes: routes.with_issuer(&config.tokens.issuer),
            authenticator,
            cors: Cors::new(config.cors.clone(), config.routes.iter().map(|route| &route.cors)),
            https: config.https.clone(),
            headers: config.connections.request_header_count,
            header_list_size: config.connections.request_header_size,
            uri_size: config.connections.uri_size,
        }
    }
}

/// How this configuration reads API keys. A change requires a restart.
pub(super) fn api_key_settings(config: &Config) -> ApiKeySettings {
    ApiKeySettings {
        audience: config.tokens.audience.clone(),
        lifetime: config.tokens.lifetimes.access,
        timeout: config.store.timeout,
    }
}

/// The number of audiences for which a token can be replaced.
fn replacement_audiences(routes: &[Route]) -> usize {
    let audiences = routes.iter().filter_map(|route| match &route.token_forwarding {
        TokenForwarding::Replace(audience) => Some(audience),
        TokenForwarding::Pass | TokenForwarding::Drop => None,
    });
    audiences.collect::<HashSet<_>>().len()
}
