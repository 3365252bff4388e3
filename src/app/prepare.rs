//! What has to stand before the first connection: secrets, store, revocation set, keys.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::keys::KeyWatch;
use super::own_keys;
use super::secrets::read_roots;
use super::upstreams::UpstreamWatch;
use crate::auth::authenticate::Authenticator;
use crate::auth::keyring::Keyring;
use crate::auth::renewals::Renewals;
use crate::auth::revocations::Revocations;
use crate::auth::seen_generations::SeenGenerations;
use crate::auth::token_cache::TokenCache;
use crate::broker::{self, Broker};
use crate::config::Config;
use crate::gateway::Gateway;
use crate::gateway::decide::Decider;
use crate::gateway::forward::Forwarder;
use crate::gateway::route::{Capture, Route, TokenForwarding};
use crate::gateway::route_table::RouteTable;
use crate::gateway::streams::TokenChecks;
use crate::gateway::token_calls::TokenCalls;
use crate::limits::rate_limit::RateLimits;
use crate::limits::throttle::Throttle;
use crate::protocols::http::headers::{Hygiene, METHOD_OVERRIDES};
use crate::store::Store;
use crate::store::sqlite::{self, SqliteStore};
use crate::telemetry::audit_log::Target;
use crate::telemetry::metrics::Metrics;
use crate::tokens::family::revocation::Revocation;
use crate::tokens::jwt::replacement::ReplacementSettings;
use crate::tokens::login::LoginHeaders;
use crate::types::clock::{Clock, UnixTime};

/// Everything that requests share and that outlives a change of routes.
pub(super) struct SharedState {
    pub(super) store: Arc<dyn Store>,
    pub(super) revocations: Arc<Revocations>,
    pub(super) seen_generations: Arc<SeenGenerations>,
    renewals: Arc<Renewals>,
    pub(super) broker: Arc<Broker>,
    pub(super) upstreams: Arc<UpstreamWatch>,
    keyring: Arc<Keyring>,
    key_watch: KeyWatch,
    clock: Arc<dyn Clock>,
    /// The cache of the gateway in force. Each gets its own: entries hold headers that its configuration decided.
    token_cache: Arc<ArcSwap<TokenCache>>,
    /// No issuer's tokens may live longer: revocations are remembered so long.
    longest_life: Duration,
}

impl SharedState {
    /// `patience`: so long may another gateway take to let go of the store.
    pub(super) async fn build(config: &Config, clock: Arc<dyn Clock>, patience: Duration) -> Result<Self, String> {
        let now = clock.now();
        let roots = Arc::new(read_roots(&config.store.secret)?);
        let revocations = Arc::new(Revocations::new());
        let store: Arc<dyn Store> = Arc::new(open_store(config, revocations.clone(), clock.clone(), patience)?);
        load_revocations(&*store, &revocations, now).await?;
        let (keyring, own_keys) = own_keys::start(config, &store, &roots, now).await?;
        let key_watch = KeyWatch::new(keyring.clone(), clock.clone());
        key_watch.start(&config.issuers).await?;
        let seen_generations = Arc::new(SeenGenerations::default());
        let broker = Arc::new(Broker {
            settings: broker_settings(config),
            store: store.clone(),
            roots,
            keyring: keyring.clone(),
            own_keys,
            seen_generations: seen_generations.clone(),
            throttle: Arc::new(Throttle::new(&config.throttle)),
        });
        let token_cache = Arc::new(ArcSwap::from_pointee(TokenCache::new(config.limits.token_cache_size)));
        let longest_life = longest_life(config);
        let (upstreams, renewals) = (Arc::new(UpstreamWatch::new()), Arc::default());
        Ok(SharedState {
            store,
            revocations,
            seen_generations,
            renewals,
            broker,
            upstreams,
            keyring,
            key_watch,
            clock,
            token_cache,
            longest_life,
        })
    }

    /// What streams are ended on.
    pub(super) fn token_checks(&self) -> TokenChecks {
        TokenChecks {
            clock: self.clock.clone(),
            revocations: self.revocations.clone(),
            keyring: self.keyring.clone(),
            renewals: self.renewals.clone(),
        }
    }

    /// One for this configuration, which is in force when [`SharedState::put_in_force`] has been called and requests come to it.
    /// `before`: the rates of the one that it comes after.
    pub(super) fn gateway(
        &self,
        config: &Config,
        clock: Arc<dyn Clock>,
        before: &RateLimits,
    ) -> Result<Gateway, String> {
        for route in config.routes.iter().filter(|route| !route.enforce) {
            tracing::warn!(route = &*route.name, "enforce = false: what should be refused is only reported");
        }
        let captures_logins = config.routes.iter().any(|route| route.capture == Some(Capture::Login));
        let login = captures_logins.then(|| config.login.headers.clone());
        let overrides = METHOD_OVERRIDES.iter().filter(|_| config.routes.iter().any(Route::decides_by_method));
        let removed = overrides.chain(login.iter().flat_map(LoginHeaders::names));
        let hygiene = Hygiene::new(config.identity.names()).with_names(removed);
        Ok(Gateway {
            clock,
            decider: decider(
                config,
                (self.keyring.clone(), self.revocations.clone()),
                (self.seen_generations.clone(), self.renewals.clone()),
                config.limits.token_cache_size,
            ),
            forwarding: config.forwarding.clone(),
            token_calls: TokenCalls {
                broker: self.broker.clone(),
                keyring: self.keyring.clone(),
                endpoints: config.oauth.clone(),
                body_idle: config.connections.body_idle,
                min_upload_rate: config.connections.min_upload_rate,
            },
            forwarder: Forwarder {
                upstreams: self.upstreams.prepare(config)?,
                hygiene: Arc::new(hygiene),
                login,
                body_idle: config.connections.body_idle,
                min_upload_rate: config.connections.min_upload_rate,
                body_size: config.connections.body_size.unwrap_or(u64::MAX),
                keyring: self.keyring.clone(),
                replacement: ReplacementSettings {
                    issuer: config.tokens.issuer.as_str().into(),
                    lifetime: config.tokens.lifetimes.access,
                },
            },
            rates: RateLimits::reloaded(before, config.all_rates().cloned(), config.rates.len()),
            max_login_response: config.login.max_response_size,
            request_timeout: config.connections.request,
        })
    }

    /// Puts in force what another gateway has written since it has the store that was this one's: revocations, and which keys of
    /// ours are good.
    pub(super) fn follow_store(&self, config: &Config) -> Result<(), String> {
        let now = self.clock.now();
        let known = self.revocations.sequence();
        let entries =
            sqlite::stored_revocations(&config.store.sqlite, known, now).map_err(|error| error.to_string())?;
        for entry in &entries {
            self.revocations.enforce(entry, now);
        }
        // The operator's own is not changed while we run.
        if config.tokens.signing_key_file.is_none() {
            self.keyring.replace_own(own_keys::as_they_are(config, now)?.own().clone());
        }
        Ok(())
    }

    /// From now on, what belongs to this gateway is looked after and shown.
    pub(super) fn put_in_force(&self, gateway: &Gateway) {
        self.upstreams.put_in_force(&gateway.forwarder.upstreams);
        self.token_cache.store(gateway.decider.authenticator.token_cache.clone());
    }

    /// Reads the keys of other issuers again and puts them in force. Nothing changes if one of them is unfit.
    pub(super) fn reload_keys(&self, config: &Config) -> Result<(), String> {
        if longest_life(config) > self.longest_life {
            return Err("an issuer's max_lifetime is longer than any at the start: that takes a restart".into());
        }
        self.key_watch.restart(&config.issuers)
    }

    /// What of this can be measured.
    pub(super) fn register_metrics(&self, metrics: &mut Metrics) {
        self.key_watch.register_metrics(metrics);
        self.upstreams.register_metrics(metrics);
        let clock = self.clock.clone();
        own_keys::register_metrics(&self.broker.own_keys, metrics, move || clock.now());
        let revocations = self.revocations.clone();
        metrics.gauge("revocations", "Entries in the revocation set", move || revocations.len() as f64);
        let revocations = self.revocations.clone();
        metrics.gauge("revocation_sequence", "Newest entry of the store's log that is enforced", move || {
            revocations.sequence() as f64
        });
        let token_cache = self.token_cache.clone();
        metrics.gauge("known_tokens", "Tokens in the verified-token cache", move || token_cache.load().len() as f64);
    }
}

/// Who may do what by this configuration. `cache`: bytes for known tokens.
pub(super) fn decider(
    config: &Config,
    (keyring, revocations): (Arc<Keyring>, Arc<Revocations>),
    (seen_generations, renewals): (Arc<SeenGenerations>, Arc<Renewals>),
    cache: usize,
) -> Decider {
    let authenticator = Authenticator {
        keyring,
        revocations,
        token_cache: Arc::new(TokenCache::with_replacements(cache, audiences(&config.routes))),
        seen_generations,
        renewals,
        identity: config.identity.clone(),
        token_size: config.limits.token_size,
    };
    let routes = RouteTable::new(&config.routes).with_endpoints(&config.oauth).described_by(&config.tokens.issuer);
    Decider {
        routes,
        authenticator,
        headers: config.connections.request_header_count,
        uri_size: config.connections.uri_size,
    }
}

/// For so many different ones a token may be replaced.
fn audiences(routes: &[Route]) -> usize {
    let replaced = routes.iter().filter_map(|route| match &route.token_forwarding {
        TokenForwarding::Replace(audience) => Some(audience),
        TokenForwarding::Pass | TokenForwarding::Drop => None,
    });
    replaced.collect::<HashSet<_>>().len()
}

fn broker_settings(config: &Config) -> broker::Settings {
    let tokens = &config.tokens;
    broker::Settings {
        issuer: tokens.issuer.clone(),
        audience: tokens.audience.clone(),
        lifetimes: tokens.lifetimes,
        token_size: config.limits.token_size,
        sessions_per_subject: tokens.sessions_per_subject,
        store_timeout: config.store.timeout,
        expires_at_milliseconds: tokens.expires_at_milliseconds,
        extra_fields: tokens.extra_fields,
    }
}

/// A clock may be set back by so much while a token lives: that token lives longer than anybody could count on when it was
/// revoked, and stays revoked nevertheless.
const CLOCK_STEP: Duration = Duration::from_mins(5);

fn open_store(
    config: &Config,
    revocations: Arc<Revocations>,
    clock: Arc<dyn Clock>,
    patience: Duration,
) -> Result<SqliteStore, String> {
    let settings = sqlite::Settings {
        issuer: config.tokens.issuer.clone(),
        longest_life: longest_life(config) + CLOCK_STEP,
        longest_family: config.tokens.lifetimes.absolute + CLOCK_STEP,
        audit: if config.audit.target == Target::Off { 0 } else { config.audit.outbox },
    };
    let enforce = Arc::new(move |revocation: &Revocation| revocations.enforce(revocation, clock.now()));
    let opened = SqliteStore::open_within(patience, &config.store.sqlite, settings, enforce);
    opened.map_err(|error| format!("store.sqlite: {error}"))
}

/// The longest that any accepted token can live, clock skew included.
fn longest_life(config: &Config) -> Duration {
    let own = config.tokens.lifetimes.access + config.tokens.clock_skew;
    let foreign = config.issuers.iter().map(|issuer| issuer.policy.max_lifetime + issuer.policy.clock_skew);
    foreign.fold(own, Duration::max)
}

/// The whole set, before anything is served: a gateway that starts with a part of it would let revoked tokens in.
async fn load_revocations(store: &dyn Store, revocations: &Revocations, now: UnixTime) -> Result<(), String> {
    let entries = store.revocations_since(0, now).await.map_err(|error| error.to_string())?;
    for entry in &entries {
        revocations.enforce(entry, now);
    }
    revocations.remove_expired();
    tracing::info!(entries = entries.len(), "loaded the revocation set");
    Ok(())
}
