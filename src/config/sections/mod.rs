//! From the tables of `gateway.toml` to a [`Config`], with all errors at once.
//!
//! Each file reads and checks one section. Checks across sections are here, or in the file of the section that is read
//! later. A check changes nothing on disk and sends nothing over the network.

mod access_log;
mod acme;
mod addresses;
mod admin;
mod audit;
mod client_certificate;
mod cors;
mod event_delivery;
mod event_stream;
mod files;
mod forward_auth;
mod forwarding;
mod header_rules;
mod health;
mod host;
mod https;
mod identity;
mod introspection;
mod issuer;
mod key_kind;
mod keys;
mod limits;
mod listener;
mod listener_clients;
mod login;
mod oauth;
mod oauth_authorization;
mod oauth_client;
mod oauth_client_certificate;
mod oauth_clients;
mod oauth_exchange;
mod oauth_warnings;
mod own_hosts;
mod own_paths;
mod path_forms;
mod pem;
mod placed;
mod postgres;
mod proof;
mod provider;
mod public_url;
mod rate;
mod respond;
mod route;
mod route_clients;
mod route_conflicts;
mod route_index;
mod route_path;
mod route_resource;
mod route_warnings;
mod rules;
mod sign_in;
mod sign_in_keys;
mod store;
mod strip_prefix;
mod throttle;
mod token;
mod token_exchange;
mod tokens;
mod trace;
mod upstream;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::settings::{Config, Probe, Watch};
use crate::config::values::Values;
pub(super) use files::writable;

/// How often files are read that the gateway watches.
const FILE_POLL: Duration = Duration::from_secs(2);

/// Only `admin.socket`, and `[store]` for its default.
pub(super) fn admin_socket(root: &mut Table<'_>) -> PathBuf {
    let beside = store::beside(&mut root.part("store"));
    admin::socket_path(&mut root.part("admin"), &beside)
}

/// The whole file. If there are errors, the result is incomplete and only used to find more errors.
pub(super) fn gateway(root: &mut Table<'_>, probe: Probe) -> Config {
    let include = root.take("include", Shape::list(Shape::Path));
    root.default("include", Vec::<String>::new());
    let base = root.report().base();
    let include = include.and_then(|value| value.list_of("[\"conf.d/*.toml\"]", |text| Ok(base.join(text))));
    let include = include.unwrap_or_default();
    let words = [("certificates", Watch::Certificates), ("all", Watch::All), ("off", Watch::Off)];
    let watch = root.choice("watch", Watch::Certificates, &words);
    let workers = workers(root);
    let limits = root.table("limits", limits::limits);
    let timeouts = root.table("timeouts", limits::timeouts);
    let identity = root.table("identity", identity::read);
    let forwarding = root.table("forwarding", |table| forwarding::read(table, &identity));
    let acme = root.table("acme", acme::read);
    let listeners = listener::listeners(root, &forwarding, &acme);
    let store = root.table("store", |table| store::read(table, timeouts.store));
    let admin = root.table("admin", |table| admin::read(table, &store.beside));
    addresses::check(root, &listeners, &admin, probe);

    let mut tokens = root.table("tokens", |table| tokens::read(table, &listeners, limits.sessions_per_subject));
    let mut issuers = issuer::issuers(root, &tokens.issuer);
    let (providers, placed_providers) = provider::providers(root);
    let provider_names: Vec<_> = providers.iter().map(|(provider, _)| provider.name.clone()).collect();

    let upstreams =
        upstream::upstreams(root, &timeouts, |name| forwarding::reaches_no_backend(name, &forwarding, &identity));
    let cors = root.table("cors", |table| cors::read(table, &cors::Cors::default()));
    let mut rates = rate::rates(root);
    let login = root.table("login", login::read);
    let reserved = header_rules::Reserved::new(&identity, &login.headers, &forwarding);
    let maintenance = root.table("maintenance", respond::maintenance);
    let token_exchanges = token_exchange::token_exchanges(root, &tokens);
    let upstream_numbers = upstream::numbers(&upstreams);
    let context = route::Context {
        upstreams: &upstreams,
        upstream_numbers: &upstream_numbers,
        issuers: &issuers.names,
        foreign_issuers: &issuers.accepted,
        own_audience: &tokens.audience,
        token_exchanges: &token_exchanges,
        cors: &cors,
        providers: &provider_names,
        store: store.postgres(),
        reserved: &reserved,
        maintenance: &maintenance,
        can_verify_clients: route_clients::can_verify(&listeners, &forwarding),
    };
    let mut routes = route::routes(root, &context);
    rate::number_all(&mut rates, &mut routes);
    tokens.resources = route_resource::urls(&routes);
    for issuer in &mut issuers.accepted {
        issuer.policy.resources = tokens.resources.clone();
    }
    let https = root.table("https", |table| https::read(table, &listeners, &forwarding, &routes, &tokens.issuer));
    let clients = oauth::Clients {
        possible: route_clients::certificates(&listeners, &forwarding),
        knows_addresses: forwarding::knows_addresses(&listeners, &forwarding, &tokens.issuer),
    };
    let oauth = root.table("oauth", |table| oauth::read(table, &routes, &issuers, &placed_providers, &tokens, clients));
    let browsers = sign_in::Browsers::new(&routes, &oauth, &tokens.issuer);
    let (sign_in_path, sign_in) =
        root.table("sign_in", |table| sign_in::read(table, &providers, &browsers, &tokens.lifetimes));
    if oauth.authorization.is_some() {
        // The routes without a resource of their own are it. Only tokens of clients have it in `aud`.
        tokens.gateway_resource = oauth.resources.of_gateway.as_ref().map(|resource| resource.url.clone());
    }
    let forward_auth = root.table("forward_auth", |table| forward_auth::read(table, &routes, &forwarding));
    let (event_streams, pushed) = event_stream::event_streams(root, &tokens.issuer, &routes);
    let own = own_paths::OwnPaths {
        issuer: &tokens.issuer,
        oauth: &oauth,
        sign_in: (&sign_in_path, sign_in.is_some()),
        providers: &placed_providers,
        forward_auth: forward_auth.as_ref(),
        pushed: &pushed,
        routes: &routes,
    };
    own_paths::check(root, &own);
    let own_cors = cors.own_policy(oauth.application_origins());
    let access_log = root.table("access_log", access_log::read);
    let audit = root.table("audit", |table| audit::read(table, &store.beside));
    let trace = root.table("trace", trace::read);

    let places: Vec<_> = listeners.iter().map(|listener| listener.place.clone()).collect();
    let config = Config {
        // Known when all keys are read.
        values: Values::default(),
        files: Vec::new(),
        include,
        watch,
        file_poll: FILE_POLL,
        workers,
        acme: acme.settings,
        listeners: listeners.into_iter().map(|listener| listener.value).collect(),
        connections: limits::connection(&limits, &timeouts),
        admin: admin.value,
        store,
        tokens,
        issuers: issuers.accepted,
        providers: providers.into_iter().map(|(provider, _)| provider).collect(),
        upstreams: upstreams.into_iter().map(|upstream| upstream.value).collect(),
        rates,
        routes,
        token_exchanges: token_exchanges.settings,
        identity,
        login,
        oauth,
        sign_in_path,
        sign_in,
        cors: own_cors,
        https,
        forwarding,
        event_streams,
        forward_auth,
        access_log,
        audit,
        trace,
        limits: limits.others,
        throttle: root.table("throttle", throttle::read),
    };
    own_hosts::report(root, &config, &places);
    config
}

fn workers(root: &mut Table<'_>) -> usize {
    match root.integer("workers", 0, 0..=1024) {
        0 => thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    }
}
