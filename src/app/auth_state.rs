//! The state that decisions about tokens read: keys, revocations, and what was seen of other tokens.

use std::collections::HashSet;
use std::sync::Arc;

use crate::auth::api_keys::ApiKeys;
use crate::auth::authenticate::Authenticator;
use crate::auth::flights::Flights;
use crate::auth::handles::Handles;
use crate::auth::introspected_tokens::IntrospectedTokens;
use crate::auth::introspection::{Introspection, IntrospectionCounts};
use crate::auth::keyring::Keyring;
use crate::auth::known_tokens::KnownTokens;
use crate::auth::proof_verifier::ProofVerifier;
use crate::auth::proofs::Proofs;
use crate::auth::renewals::Renewals;
use crate::auth::revocations::Revocations;
use crate::auth::seen_generations::SeenGenerations;
use crate::auth::store_reads::StoredCredentialSettings;
use crate::auth::token_cache::TokenCache;
use crate::auth::token_exchange::{ExchangeCounts, TokenExchange};
use crate::config::{Config, ForeignIssuer};
use crate::gateway::cors::Cors;
use crate::gateway::decide::Decider;
use crate::gateway::forwarded_token::UpstreamTokens;
use crate::gateway::route::{Route, TokenForwarding};
use crate::gateway::route_table::RouteTable;
use crate::gateway::streams::{ActiveRoutes, TokenChecks};
use crate::store::Freshness;
use crate::telemetry::metrics::{Metrics, RequestsByRoute};
use crate::tokens::jwt::replacement::ReplacementSettings;
use crate::types::clock::{Clock, UnixTime};

pub(super) struct AuthState {
    pub(super) keyring: Arc<Keyring>,
    pub(super) revocations: Arc<Revocations>,
    pub(super) seen_generations: Arc<SeenGenerations>,
    pub(super) renewals: Arc<Renewals>,
    pub(super) api_keys: Arc<ApiKeys>,
    /// For the streams of opaque tokens.
    pub(super) introspected_tokens: Arc<IntrospectedTokens>,
    pub(super) introspection_counts: Arc<IntrospectionCounts>,
    pub(super) exchange_counts: Arc<ExchangeCounts>,
    pub(super) handles: Arc<Handles>,
    pub(super) proofs: Proofs,
    /// Of the active gateway.
    pub(super) routes: Arc<ActiveRoutes>,
    /// `None`: the store belongs to this gateway alone.
    freshness: Option<Arc<Freshness>>,
}

impl AuthState {
    pub(super) fn new(
        keyring: Arc<Keyring>,
        revocations: Arc<Revocations>,
        api_keys: ApiKeys,
        handles: Handles,
        freshness: Option<Arc<Freshness>>,
        now: UnixTime,
    ) -> Self {
        AuthState {
            keyring,
            revocations,
            seen_generations: Arc::default(),
            renewals: Arc::default(),
            api_keys: Arc::new(api_keys),
            introspected_tokens: Arc::default(),
            introspection_counts: Arc::default(),
            exchange_counts: Arc::default(),
            handles: Arc::new(handles),
            proofs: Proofs::of_process(now),
            routes: Arc::default(),
            freshness,
        }
    }

    /// With the same keys and revocations. A token that is only explained confirms no refresh and renews no stream.
    pub(super) fn without_effects(&self) -> Self {
        let api_keys = self.api_keys.without_effects();
        let handles = self.handles.without_effects();
        let keyring = self.keyring.clone();
        let revocations = self.revocations.clone();
        let state =
            AuthState::new(keyring, revocations, api_keys, handles, self.freshness.clone(), UnixTime::default());
        AuthState { proofs: self.proofs.without_effects(), ..state }
    }

    pub(super) fn register_metrics(&self, metrics: &mut Metrics) {
        let counts = self.introspection_counts.clone();
        let help = "Questions to introspection endpoints, by outcome";
        metrics.counters("introspections", help, move || counts.labelled());
        let counts = self.introspection_counts.clone();
        let help = "Seconds from a question to an introspection endpoint until its answer";
        metrics.histograms("introspection_seconds", help, move || counts.durations());
        let counts = self.exchange_counts.clone();
        let help = "Exchanges of tokens at other servers, by outcome";
        metrics.counters("token_exchanges", help, move || counts.labelled());
        let revocations = self.revocations.clone();
        metrics.gauge("revocations", "Revocations in memory", move || revocations.count() as f64);
        let revocations = self.revocations.clone();
        let help = "Number of the newest revocation in the store's log that is enforced";
        metrics.gauge("revocation_sequence", help, move || revocations.sequence() as f64);
        let proofs = self.proofs.clone();
        metrics.gauge("used_proofs", "Used DPoP proofs in memory", move || proofs.count() as f64);
        let api_keys = self.api_keys.clone();
        metrics.counters("api_key_reads", "API keys read from the store", move || {
            api_keys.reads().map(|(result, count)| (vec![("result", result.to_owned())], count as f64)).to_vec()
        });
    }

    /// The checks that end a stream when its token is no longer valid.
    pub(super) fn token_checks(&self, clock: Arc<dyn Clock>) -> TokenChecks {
        TokenChecks {
            clock,
            revocations: self.revocations.clone(),
            keyring: self.keyring.clone(),
            renewals: self.renewals.clone(),
            introspected_tokens: self.introspected_tokens.clone(),
            login_providers: self.handles.providers.clone(),
            routes: self.routes.clone(),
            freshness: self.freshness.clone(),
        }
    }

    /// Decides about requests by this configuration. `cache_size` is that of the token cache in bytes.
    /// `requests`: the counters of its routes.
    pub(super) fn decider(&self, config: &Config, cache_size: usize, requests: &RequestsByRoute) -> Decider {
        let authenticator = Authenticator {
            known: KnownTokens {
                keyring: self.keyring.clone(),
                revocations: self.revocations.clone(),
                token_cache: Arc::new(TokenCache::with_replacements(cache_size, replacements(config))),
                seen_generations: self.seen_generations.clone(),
                renewals: self.renewals.clone(),
                lookups: Flights::default(),
                identity: config.identity.clone(),
            },
            api_keys: self.api_keys.clone(),
            introspection: Arc::new(self.introspection(config)),
            handles: self.handles.clone(),
            proof_verifier: ProofVerifier {
                proofs: self.proofs.clone(),
                own_hosts: config.own_hosts(),
                max_used: config.limits.used_proofs,
            },
            freshness: self.freshness.clone(),
            token_size: config.limits.token_size,
        };
        let counted = |route: &Route| Route { requests: requests.of(&route.name), ..route.clone() };
        let routes: Vec<_> = config.routes.iter().map(counted).collect();
        let sign_in = config.sign_in.as_ref().map(|settings| settings.paths.clone());
        let routes = RouteTable::new(&routes, config.workers)
            .with_endpoints(&config.oauth)
            .with_receivers(config.report_paths());
        let routes = routes.with_sign_in(sign_in);
        Decider {
            routes: Arc::new(routes.with_issuer(&config.tokens.issuer)),
            authenticator,
            cors: Cors::new(config.cors.clone(), config.routes.iter().map(|route| &route.cors)),
            https: config.https.clone(),
            headers: config.connections.request_header_count,
            header_list_size: config.connections.request_header_size,
            uri_size: config.connections.uri_size,
        }
    }
}

impl AuthState {
    /// How this configuration replaces tokens for upstreams.
    pub(super) fn upstream_tokens(&self, config: &Config) -> UpstreamTokens {
        let issuer = config.tokens.issuer.as_str().into();
        UpstreamTokens {
            keyring: self.keyring.clone(),
            replacement: ReplacementSettings { issuer, lifetime: config.tokens.lifetimes.access },
            exchanges: self.exchanges(config),
        }
    }

    fn exchanges(&self, config: &Config) -> Vec<TokenExchange> {
        let exchange = |(number, settings)| {
            let counts = self.exchange_counts.clone();
            TokenExchange::new(number, settings, config.limits.token_size, counts)
        };
        config.token_exchanges.iter().cloned().enumerate().map(exchange).collect()
    }

    /// How this configuration asks about opaque tokens.
    fn introspection(&self, config: &Config) -> Introspection {
        let asked = |issuer: &ForeignIssuer| Some((issuer.policy.clone(), issuer.introspection.clone()?));
        let asked = config.issuers.iter().filter_map(asked);
        Introspection::new(asked, self.introspected_tokens.clone(), self.introspection_counts.clone())
    }
}

/// How this configuration reads API keys and the handles of logins. A change requires a restart.
pub(super) fn stored_credentials(config: &Config) -> StoredCredentialSettings {
    StoredCredentialSettings {
        audience: config.tokens.audience.clone(),
        lifetime: config.tokens.lifetimes.access,
        timeout: config.store.timeout,
    }
}

/// The number of other tokens that can replace one: of the gateway for each audience, and of other servers.
fn replacements(config: &Config) -> usize {
    let audiences = config.routes.iter().filter_map(|route| match &route.token_forwarding {
        TokenForwarding::Replace(audience) => Some(audience),
        TokenForwarding::Pass | TokenForwarding::Drop | TokenForwarding::Exchange(_) => None,
    });
    let subjects = config.token_exchanges.iter().map(|exchange| &exchange.subject_audience);
    let audiences: HashSet<_> = audiences.chain(subjects.filter(|audience| !audience.is_empty())).collect();
    audiences.len() + config.token_exchanges.len()
}
