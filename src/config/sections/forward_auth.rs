//! `[forward_auth]`: other proxies that ask the gateway about each request. Off until it has a path.

use std::cell::Cell;

use ipnet::IpNet;

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::{files, forwarding, route_path};
use crate::gateway::forward_auth::{CHECK_PATH, Callers, Dialect, ForwardAuthSettings};
use crate::gateway::route::Route;
use crate::protocols::http::forwarded::{ClientCert, Forwarding};

const DIALECTS: [(&str, Dialect); 4] = [
    ("x-forwarded", Dialect::XForwarded),
    ("x-original", Dialect::XOriginal),
    ("prefix", Dialect::Prefix),
    ("ext_authz_grpc", Dialect::ExtAuthzGrpc),
];

/// `None` without a path.
pub(super) fn read(table: &mut Table<'_>, routes: &[Route], forwarding: &Forwarding) -> Option<ForwardAuthSettings> {
    let path = table.take("path", Shape::Pattern("^(/|$)"));
    let path = path.map(|value| value.parse(route_path::path_or_off).flatten());
    let dialect = table.take("dialect", Shape::choice(&DIALECTS)).and_then(|value| value.choice(&DIALECTS));
    let is_grpc = dialect == Some(Dialect::ExtAuthzGrpc);
    let path_of_dialect = if is_grpc { CHECK_PATH } else { "" };
    table.default("path", path_of_dialect);
    let path = path.unwrap_or_else(|| is_grpc.then(|| CHECK_PATH.to_owned()));
    let from = table.take("from", Shape::list(forwarding::NETWORK));
    table.default("from", Vec::<String>::new());
    // Also those that are no networks: they have errors of their own.
    let written = Cell::new(0);
    let network = |text| {
        written.set(written.get() + 1);
        forwarding::network(text)
    };
    let from = from.and_then(|value| value.list_of("[\"10.0.0.5\"]", network));
    let is_for_everyone = if from.is_some() { written.get() == 0 } else { !table.has("from") };
    let from = from.unwrap_or_default();
    let secret = table.path("secret_file").and_then(|path| table.accept("secret_file", files::random_secret(&path)));
    let Some(path) = path else {
        report_without_path(table);
        return None;
    };
    if dialect.is_none() && !table.has("dialect") {
        let error = ConfigError::new("`dialect` is missing", "expected `dialect = \"x-forwarded\"`");
        let help = "Traefik and Caddy: \"x-forwarded\"; nginx: \"x-original\"; Envoy: \"prefix\" or \"ext_authz_grpc\"";
        table.reject("dialect", error.help(help).missing());
    }
    if is_grpc && path != CHECK_PATH {
        let error = ConfigError::new("Envoy does not call this path", format!("expected \"{CHECK_PATH}\""));
        table.reject("path", error.help("remove `path`; \"\" turns the dialect off"));
    }
    if is_for_everyone && !table.has("secret_file") {
        let error = ConfigError::new("every client could ask", "expected `from` or `secret_file` in this table");
        let key = if table.has("path") { "path" } else { "dialect" };
        table.reject(key, error.help("list the addresses of the proxies in `from`, for example [\"10.0.0.5\"]"));
    }
    warn_of_trusted(table, &from, is_grpc, forwarding);
    let settings = ForwardAuthSettings {
        path,
        dialect: dialect?,
        callers: Callers::new(from.into_iter().collect(), secret.as_deref().map(<[u8]>::trim_ascii))?,
    };
    report_same_path(table, &settings, routes);
    Some(settings)
}

/// `from`: empty for proxies at every address, with the secret.
fn warn_of_trusted(table: &Table<'_>, from: &[IpNet], is_grpc: bool, forwarding: &Forwarding) {
    let trusted = &forwarding.trusted;
    let is_trusted = |network: &IpNet| trusted.iter().any(|other| network.contains(other) || other.contains(network));
    if !table.has("secret_file") && from.iter().any(is_trusted) {
        let warning = ConfigError::new(
            "a proxy in `forwarding.trusted` may ask without a secret",
            "if it forwards requests of clients to the gateway, they may ask too",
        );
        table.warn("from", warning.help("set `secret_file`, or let the proxy reject requests for this path"));
    }
    let may_be_trusted = from.iter().any(is_trusted) || from.is_empty() && !trusted.is_empty();
    // Over gRPC, the header is not read.
    if !is_grpc && forwarding.client_cert != ClientCert::Off && may_be_trusted {
        let warning = ConfigError::new(
            "a client can name any certificate, if the proxy asks with its Client-Cert",
            "`forwarding.client_certificate` is on, and this proxy is trusted",
        );
        let help = "let the proxy set or remove Client-Cert in its calls, as the files in deploy/beside do";
        table.warn("dialect", warning.help(help));
    }
}

fn report_without_path(table: &Table<'_>) {
    for key in ["dialect", "from", "secret_file"] {
        if table.has(key) && !table.has("path") {
            let error =
                ConfigError::new(format!("`{key}` has no effect without `path`"), "expected `path` in this table");
            table.reject(key, error.missing());
        }
    }
}

fn report_same_path(table: &Table<'_>, settings: &ForwardAuthSettings, routes: &[Route]) {
    if let Some(route) = routes.iter().find(|route| settings.is_call(&route.path)) {
        let error = ConfigError::new(format!("a route has the path {}", route.path), "expected a different path");
        table.reject("path", error.help("change one of the two; calls of proxies would hide the route"));
    }
}
