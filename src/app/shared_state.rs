//! State that all requests share and that outlives a reload: store, revocations, keys, upstreams.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::acme;
use super::auth_state::{AuthState, stored_credentials};
use super::authorization::AuthorizationState;
use super::error::StartError;
use super::event_streams::EventStreams;
use super::issuer_keys::{self, KeyWatch};
use super::open_store::{self, max_token_life};
use super::own_keys;
use super::proofs;
use super::removed_fields;
use super::root_secrets::{self, agree, read_roots};
use super::shared_store;
use super::sign_in_providers;
use super::stored;
use super::sweeping;
use super::takeover;
use super::upstreams::UpstreamWatch;
use crate::auth::api_keys::ApiKeys;
use crate::auth::bad_signatures::BadSignatures;
use crate::auth::handles::Handles;
use crate::auth::introspection::Introspection;
use crate::auth::provider::{Provider, Providers};
use crate::auth::registered_clients::ClientKeys;
use crate::auth::renewals::Renewals;
use crate::auth::revocations::Revocations;
use crate::auth::token_cache::TokenCache;
use crate::broker::sign_in::{CallCounts, LoginRefresh, Refresher, SignInProviders};
use crate::broker::{Broker, BrokerSettings, Detached, RefreshCounts, RefreshTurns, ReportCounts};
use crate::config::{Config, Finding, ForeignIssuer};
use crate::gateway::Gateway;
use crate::gateway::cookie_refresh::CookieRefresh;
use crate::gateway::forward::Forwarder;
use crate::gateway::forward_auth::ForwardAuth;
use crate::gateway::front::Fronts;
use crate::gateway::provider_events::{LogoutReceiver, Receivers};
use crate::gateway::route::{Capture, Route};
use crate::gateway::sign_in::SignIn;
use crate::gateway::token_calls::TokenCalls;
use crate::limits::rate_limit::RateLimits;
use crate::limits::throttle::Throttle;
use crate::protocols::tls::TicketSource;
use crate::server::acme::Entries;
use crate::store::{Backlog, Store};
use crate::telemetry::metrics::{Metrics, RequestsByRoute};
use crate::telemetry::snapshots::{Others, Servers, Snapshots};
use crate::types::clock::{Clock, SteadyClock};

pub(super) struct SharedState {
    pub(super) store: Arc<dyn Store>,
    backlog: Arc<Backlog>,
    pub(super) auth: AuthState,
    pub(super) broker: Arc<Broker>,
    pub(super) bad_signatures: Arc<BadSignatures>,
    pub(super) upstreams: Arc<UpstreamWatch>,
    pub(super) key_watch: KeyWatch,
    pub(super) event_streams: EventStreams,
    /// Of `[[oauth.client]]`.
    pub(super) client_keys: Arc<ClientKeys>,
    pub(super) authorization: AuthorizationState,
    client_key_watch: KeyWatch,
    pub(super) providers: Arc<Providers>,
    /// The providers of the active gateway.
    pub(super) sign_ins: Arc<ArcSwap<SignInProviders>>,
    pub(super) login_refresh: Arc<LoginRefresh>,
    provider_calls: Arc<CallCounts>,
    provider_watch: KeyWatch,
    pub(super) clock: Arc<dyn Clock>,
    /// Who can open the session tickets of the listeners.
    pub(super) tickets: TicketSource,
    /// The names for an ACME server.
    pub(super) acme: Arc<Entries>,
    /// The cache of the active gateway. Each gateway has its own, because its entries hold headers by its
    /// configuration.
    token_cache: Arc<ArcSwap<TokenCache>>,
    /// How the active gateway asks about opaque tokens.
    pub(super) introspection: Arc<ArcSwap<Introspection>>,
    /// The counters of the routes of the active gateway.
    requests_by_route: Arc<ArcSwap<RequestsByRoute>>,
    /// The store keeps revocations for this long, so no token may live longer.
    max_token_life: Duration,
}

impl SharedState {
    /// `predecessor`: the gateway that this one takes over from. It closes the store, and then tells which proofs were
    /// used.
    pub(super) async fn build(
        config: &Config,
        clock: Arc<dyn Clock>,
        predecessor: Option<&UnixStream>,
    ) -> Result<Self, StartError> {
        let now = clock.now();
        let store_patience = if predecessor.is_some() { takeover::STORE_WAIT } else { Duration::ZERO };
        let is_old = root_secrets::exists(&config.store.secret);
        let roots = read_roots(&config.store.secret)?;
        let revocations = Arc::new(Revocations::new());
        let store = open_store::open(config, revocations.clone(), clock.clone(), store_patience)?;
        let roots = Arc::new(agree(&config.store, roots, is_old, now)?);
        open_store::load_revocations(config, &*store, &revocations).await?;
        let clock = shared_store::clock(&*store, clock);
        let now = clock.now();
        let tickets = shared_store::tickets(&*store, &roots, now).await;
        let acme = acme::open(config, &store, &roots).await;
        let (keyring, own_keys) = own_keys::start(config, &store, &roots, now).await?;
        let key_watch = KeyWatch::new(keyring.clone(), clock.clone(), config.file_poll);
        key_watch.start(&config.issuers).await?;
        let client_keys = Arc::new(ClientKeys::default());
        let client_key_watch = KeyWatch::new(client_keys.clone(), clock.clone(), config.file_poll);
        client_key_watch.start(&issuer_keys::of_clients(config)).await?;
        let providers = Arc::new(Providers::default());
        let provider_watch = KeyWatch::new(providers.clone(), clock.clone(), config.file_poll);
        provider_watch.start(&issuer_keys::of_providers(config)).await?;
        let api_keys = ApiKeys::of_store(stored_credentials(config), store.clone());
        let seen_generations = Arc::default();
        let broker = Arc::new(Broker {
            settings: broker_settings(config),
            store: store.clone(),
            roots: roots.clone(),
            keyring: keyring.clone(),
            own_keys,
            seen_generations: Arc::clone(&seen_generations),
            throttle: Arc::new(Throttle::new(&config.throttle, clock.clone())),
            refresh_turns: RefreshTurns::default(),
            refreshes: RefreshCounts::default(),
            reports: ReportCounts::default(),
            detached: Detached::here(),
            clock: Arc::new(SteadyClock::new(clock.clone())),
        });
        let provider_calls = Arc::default();
        let sign_ins = Arc::new(ArcSwap::from(sign_in_providers::of(config, &providers, &provider_calls)));
        let renewals: Arc<Renewals> = Arc::default();
        let login_refresh = LoginRefresh::new(broker.clone(), sign_ins.clone(), clock.clone(), renewals.clone());
        let refresher = Refresher(login_refresh.clone());
        let handles = Handles::of_store(stored_credentials(config), roots, store.clone(), Arc::new(refresher));
        let mut auth = AuthState::new(keyring, revocations, api_keys, handles, store.freshness(), now);
        auth.seen_generations = seen_generations;
        auth.renewals = renewals;
        auth.proofs = proofs::of_store(config, &store, predecessor, &*clock);
        let limits = &config.limits;
        let bad_signatures =
            BadSignatures::new(limits.bad_signatures, limits.introspected_bad_signatures, config.workers);
        let token_cache = Arc::new(ArcSwap::from_pointee(TokenCache::new(config.limits.token_cache_size)));
        let event_streams = EventStreams::new(&config.event_streams, &token_cache, &auth.renewals);
        Ok(SharedState {
            store,
            backlog: Arc::default(),
            auth,
            broker,
            bad_signatures: Arc::new(bad_signatures),
            upstreams: Arc::new(UpstreamWatch::new()),
            key_watch,
            event_streams,
            client_keys,
            authorization: AuthorizationState::default(),
            client_key_watch,
            providers,
            sign_ins,
            login_refresh,
            provider_calls,
            provider_watch,
            clock,
            tickets,
            acme,
            token_cache,
            introspection: Arc::default(),
            requests_by_route: Arc::default(),
            max_token_life: max_token_life(config),
        })
    }

    /// Builds the gateway of a configuration. It becomes active when [`SharedState::activate`] was called and
    /// connections use it. `previous_rates` are those of the gateway before it.
    pub(super) fn gateway(&self, config: &Config, previous_rates: &RateLimits) -> Result<Gateway, StartError> {
        for route in config.routes.iter().filter(|route| !route.enforce) {
            tracing::warn!(
                route = &*route.name,
                "enforce = false: the gateway reports requests that it should reject, and forwards them"
            );
        }
        let names = config.routes.iter().map(|route| &route.name);
        let requests = RequestsByRoute::new(names, config.workers, &self.requests_by_route.load());
        Ok(Gateway {
            clock: self.clock.clone(),
            decider: self.auth.decider(config, config.limits.token_cache_size, &requests),
            requests_by_route: Arc::new(requests),
            fronts: Fronts {
                forwarding: config.forwarding.clone(),
                forward_auth: config.forward_auth.clone().map(|settings| {
                    let decides_by_method = config.routes.iter().any(Route::decides_by_method);
                    let kept = &config.forwarding.fields.keep;
                    Box::new(ForwardAuth::new(settings, &config.identity, kept, decides_by_method))
                }),
            },
            token_calls: TokenCalls {
                broker: self.broker.clone(),
                keyring: self.auth.keyring.clone(),
                endpoints: config.oauth.clone(),
                receivers: self.receivers(config),
                client_keys: self.client_keys.clone(),
                client_documents: self.authorization.documents.clone(),
                authorization_counts: self.authorization.counts.clone(),
                cookie_refresh: CookieRefresh::default(),
                body_idle: config.connections.body_idle,
                min_upload_rate: config.connections.min_upload_rate,
                body_timeout: config.connections.token_call_body,
            },
            forwarder: self.forwarder(config)?,
            sign_in: config.sign_in.clone().map(|settings| {
                let providers = sign_in_providers::of(config, &self.providers, &self.provider_calls);
                let max_head = config.connections.request_header_size;
                Box::new(SignIn::new(settings, providers, self.broker.clone(), max_head, self.clock.clone()))
            }),
            rates: RateLimits::reloaded(previous_rates, config.all_rates().cloned(), config.rates.len()),
            max_login_response: config.login.max_response_size,
            request_timeout: config.connections.request,
        })
    }

    /// Where identity providers report, in the order of [`Config::report_paths`].
    fn receivers(&self, config: &Config) -> Receivers {
        let logout = |provider: &Arc<Provider>| {
            LogoutReceiver::new(provider.clone(), self.providers.clone(), self.clock.clone())
        };
        let logouts = config.providers.iter().map(|provider| Arc::new(logout(provider))).collect();
        Receivers { logouts, streams: self.event_streams.receivers.clone() }
    }

    fn forwarder(&self, config: &Config) -> Result<Forwarder, StartError> {
        let has = |capture| config.routes.iter().any(|route| route.capture == Some(capture));
        let captures_logins = has(Capture::Login) || has(Capture::CookieLogin);
        let login = captures_logins.then(|| config.login.headers.clone());
        Ok(Forwarder {
            upstreams: self.upstreams.prepare(config)?,
            hygiene: Arc::new(removed_fields::hygiene(config, login.as_ref())),
            sets_real_ip: config.forwarding.sets_real_ip,
            login,
            has_login_cookies: has(Capture::CookieLogin),
            has_sign_in: config.sign_in.is_some(),
            body_idle: config.connections.body_idle,
            write: config.connections.write,
            min_upload_rate: config.connections.min_upload_rate,
            body_size: config.connections.body_size.unwrap_or(u64::MAX),
            header_list_size: config.connections.request_header_size,
            tokens: self.auth.upstream_tokens(config),
            certificate_headers: config.identity.certificate.clone(),
        })
    }

    /// Applies what the gateway that has taken over wrote to the store: revocations and signing keys.
    pub(super) fn follow_store(&self, config: &Config) -> Result<(), StartError> {
        let now = self.clock.now();
        let revocations = &self.auth.revocations;
        for entry in &stored::revocations(&config.store, revocations.sequence())? {
            revocations.enforce(entry);
        }
        if let Some(own) = own_keys::stored(config, self.broker.own_keys.in_file(), now)? {
            self.auth.keyring.replace_own(own);
        }
        Ok(())
    }

    /// Starts the tasks of this gateway's upstreams, and shows its state in the metrics. The API keys that the gateway
    /// before it knows stay known: the store may not respond now.
    pub(super) fn activate(&self, gateway: &Gateway) {
        self.upstreams.activate(&gateway.forwarder.upstreams);
        self.requests_by_route.store(gateway.requests_by_route.clone());
        self.auth.routes.replace(gateway.decider.routes.clone());
        let providers = gateway.sign_in.as_ref().map(|sign_in| sign_in.providers.clone()).unwrap_or_default();
        self.auth.handles.providers.replace(providers.places());
        self.sign_ins.store(providers);
        let authenticator = &gateway.decider.authenticator;
        for key in self.token_cache.load().api_keys() {
            let identity = authenticator.known.identity.of(&key.token);
            authenticator.known.token_cache.insert(Arc::new(key.with_identity(identity)));
        }
        self.token_cache.store(authenticator.known.token_cache.clone());
        self.introspection.store(authenticator.introspection.clone());
    }

    /// Reads the keys of the other issuers, of providers and of clients again, and activates them. An invalid key file
    /// changes nothing. Returns a warning for each source that has not answered yet.
    pub(super) fn reload_keys(&self, config: &Config) -> Result<Vec<String>, StartError> {
        self.check_keys(config)?;
        let clients = issuer_keys::of_clients(config);
        self.client_key_watch.check(&clients)?;
        let prepared = [
            (&self.key_watch, self.key_watch.prepare_reload(&config.issuers)?),
            (&self.provider_watch, self.provider_watch.prepare_reload(&issuer_keys::of_providers(config))?),
            (&self.client_key_watch, self.client_key_watch.prepare_reload(&clients)?),
        ];
        self.key_watch.wait_for(prepared.iter().map(|(_, prepared)| prepared));
        Ok(prepared.into_iter().flat_map(|(watch, prepared)| watch.finish_reload(prepared)).collect())
    }

    /// Fails if the gateway has forgotten revocations of tokens that these issuers would let live longer.
    pub(super) fn check_keys(&self, config: &Config) -> Result<(), StartError> {
        if max_token_life(config) > self.max_token_life { Err(StartError::MaxLifetime) } else { Ok(()) }
    }

    /// The issuers because of which [`SharedState::check_keys`] fails.
    pub(super) fn too_long_lifetimes(&self, config: &Config) -> Vec<Finding> {
        let life = |issuer: &ForeignIssuer| issuer.policy.max_lifetime + issuer.policy.clock_skew;
        let too_long = |(number, issuer): (usize, &ForeignIssuer)| {
            (life(issuer) > self.max_token_life).then(|| {
                let longest = self.max_token_life.saturating_sub(issuer.policy.clock_skew).as_secs();
                Finding::error(
                    format!("issuer[{number}].max_lifetime"),
                    "a reload cannot raise the maximum lifetime of tokens above that at the start",
                    format!("expected at most \"{longest}s\" until the next start"),
                    Some("restart the gateway to use this file: it may have forgotten revocations of older tokens"),
                )
            })
        };
        config.issuers.iter().enumerate().filter_map(too_long).collect()
    }

    /// The task that puts signing keys in force that other gateways have changed.
    pub(super) fn follow_keys(&self) -> impl Future<Output = ()> + use<> {
        let keys = self.broker.own_keys.clone();
        let keyring = self.auth.keyring.clone();
        shared_store::follow_keys(self.store.freshness(), keys, keyring, self.clock.clone())
    }

    /// The task that deletes expired rows.
    pub(super) fn sweep_regularly(&self) -> impl Future<Output = ()> + use<> {
        sweeping::sweep_regularly(self.store.clone(), self.clock.clone(), self.backlog.clone())
    }

    /// The task that uses new keys of session tickets.
    pub(super) fn follow_ticket_keys(&self) -> impl Future<Output = ()> + use<> {
        let store = self.store.clone();
        let roots = self.broker.roots.clone();
        shared_store::follow_ticket_keys(self.tickets.clone(), store, roots, self.clock.clone())
    }

    /// Of what these metrics count, and of the state of this gateway.
    pub(super) fn snapshots(&self, metrics: Arc<Metrics>) -> Snapshots {
        let token_cache = self.token_cache.clone();
        let upstreams = self.upstreams.current.clone();
        let others = move || {
            let mut servers = Servers::default();
            let reports = upstreams.load().iter().flat_map(|upstream| upstream.report()).collect::<Vec<_>>();
            reports.iter().for_each(|report| servers.count(report.state));
            Others { tokens_known: token_cache.load().count() as u64, servers }
        };
        Snapshots::new(metrics, Box::new(others))
    }

    pub(super) fn register_metrics(&self, metrics: &mut Metrics) {
        self.key_watch.register_metrics(metrics, &issuer_keys::OF_ISSUERS);
        self.provider_watch.register_metrics(metrics, &issuer_keys::OF_PROVIDERS);
        self.client_key_watch.register_metrics(metrics, &issuer_keys::OF_CLIENTS);
        self.upstreams.register_metrics(metrics);
        shared_store::register_metrics(&*self.store, metrics);
        sweeping::register_metrics(&self.backlog, &self.clock, metrics);
        let clock = self.clock.clone();
        own_keys::register_metrics(&self.broker.own_keys, metrics, move || clock.now());
        let by_route = self.requests_by_route.clone();
        metrics.counters("route_requests", "Requests by route and status class", move || by_route.load().labelled());
        self.auth.register_metrics(metrics);
        self.authorization.register_metrics(metrics);
        acme::register_metrics(&self.acme, metrics);
        self.event_streams.register_metrics(&self.broker, &self.clock, metrics);
        sign_in_providers::register_metrics(&self.provider_calls, metrics);
        let broker = self.broker.clone();
        metrics.counters("refreshes", "Refreshes by outcome", move || broker.refreshes.by_outcome());
        let token_cache = self.token_cache.clone();
        metrics.gauge("token_cache_entries", "Tokens in the token cache", move || token_cache.load().count() as f64);
    }
}

fn broker_settings(config: &Config) -> BrokerSettings {
    let tokens = &config.tokens;
    BrokerSettings {
        issuer: tokens.issuer.clone(),
        audience: tokens.audience.clone(),
        resources: tokens.resources.iter().chain(&tokens.gateway_resource).cloned().collect(),
        lifetimes: tokens.lifetimes,
        token_size: config.limits.token_size,
        sessions_per_subject: tokens.sessions_per_subject,
        store_timeout: config.store.timeout,
        expires_at_milliseconds: tokens.expires_at_milliseconds,
        extra_fields: tokens.extra_fields,
        certificate_bound: tokens.certificate_bound,
        lifetime_jitter: tokens.lifetime_jitter,
    }
}
