//! From the tables of `gateway.toml` to a [`Config`], with every fault at once.
//!
//! Each section has its file, which reads its keys and checks them. What concerns several sections is checked here or
//! where the later of them is read. Checking changes nothing on disk and sends nothing over the network.

mod addresses;
mod audit;
mod files;
mod forwarding;
mod health;
mod host;
mod identity;
mod issuer;
mod keys;
mod limits;
mod listener;
mod login;
mod oauth;
mod pem;
mod rate;
mod route;
mod rules;
mod throttle;
mod token;
mod tokens;
mod upstream;

use std::thread;
use std::time::Duration;

use crate::admin;
use crate::config::document::error::Place;
use crate::config::document::table::Table;
use crate::config::{Config, Probe, StoreSettings, Watch};
use crate::telemetry::access_log::{self, Format, Target};

/// Something read, and where it stands in the file.
struct Placed<T> {
    value: T,
    place: Place,
}

/// `[admin]` alone.
pub(super) fn admin(table: &mut Table<'_>) -> admin::Settings {
    listener::admin(table).value
}

/// The whole file. A fault in it leaves a value that is only good for finding further faults.
pub(super) fn gateway(root: &mut Table<'_>, probe: Probe) -> Config {
    let words = [("certificates", Watch::Certificates), ("all", Watch::All), ("off", Watch::Off)];
    let watch = root.choice("watch", Watch::Certificates, &words);
    let workers = workers(root);
    let limits = root.table("limits", limits::limits);
    let timeouts = root.table("timeouts", limits::timeouts);
    let forwarding = root.table("forwarding", forwarding::read);
    let listeners = listener::listeners(root, &forwarding);
    let admin = root.table("admin", listener::admin);
    addresses::check(root, &listeners, &admin, probe);

    let store = root.table("store", |table| store(table, timeouts.store));
    let tokens = root.table("tokens", |table| tokens::read(table, limits.sessions_per_subject));
    let issuers = issuer::issuers(root, &tokens.issuer);

    let upstreams = upstream::upstreams(root, &timeouts);
    let mut rates = rate::rates(root);
    let mut routes = route::routes(root, &upstreams, &issuers.names, &tokens.audience);
    rate::place(&mut rates, &mut routes);
    let identity = root.table("identity", identity::read);
    let login = root.table("login", login::read);
    let oauth = root.table("oauth", |table| oauth::read(table, &routes, &issuers.names));
    let access_log = root.table("access_log", access_log);
    let audit = root.table("audit", |table| audit::read(table, &store.sqlite));

    Config {
        watch,
        workers,
        listeners: listeners.into_iter().map(|listener| listener.value).collect(),
        connections: limits::connection(&limits, &timeouts),
        admin: admin.value,
        store,
        tokens,
        issuers: issuers.accepted,
        upstreams: upstreams.into_iter().map(|upstream| upstream.value).collect(),
        rates,
        routes,
        identity,
        login,
        oauth,
        forwarding,
        access_log,
        audit,
        limits: limits.others,
        throttle: root.table("throttle", throttle::read),
    }
}

fn workers(root: &mut Table<'_>) -> usize {
    match root.whole("workers", 0, 0..=1024) {
        0 => thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    }
}

fn store(table: &mut Table<'_>, patience: Duration) -> StoreSettings {
    let sqlite = table.path("sqlite").unwrap_or_else(|| table.reading().base().join("bearward.db"));
    table.accept("sqlite", files::writable_later(&sqlite));
    let secret = files::secret(table, "secret_file", "secret_env", "bearward.secret");
    StoreSettings { sqlite, secret, patience }
}

fn access_log(table: &mut Table<'_>) -> access_log::Settings {
    let target = match table.take("file") {
        None => Target::Stdout,
        Some(value) => match value.text() {
            None | Some("stdout") => Target::Stdout,
            Some("off") => Target::Off,
            Some(_) => value.path().map_or(Target::Stdout, Target::File),
        },
    };
    if let Target::File(path) = &target {
        table.accept("file", files::writable_later(path));
    }
    let format = table.choice("format", Format::Json, &[("json", Format::Json), ("text", Format::Text)]);
    access_log::Settings { target, format }
}
