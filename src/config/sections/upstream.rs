//! `[[upstream]]`: the backends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use http::{HeaderName, Uri, header};

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::limits::{MAX_TIMEOUT, MIN_TIMEOUT, Timeouts};
use crate::config::sections::placed::{Placed, duplicates};
use crate::config::sections::{client_certificate, health, host, pem};
use crate::protocols::proxy_protocol::Version;
use crate::upstream::{Balance, Key, MAX_SERVERS, Protocol, ServerSettings, UpstreamSettings, UpstreamTlsSettings};

/// Of a server. It bounds what it costs to find the server of a key.
const MAX_WEIGHT: usize = 100;

const DEFAULT_NAME: &str = "backend";

/// Default of `max_concurrent_requests`. Each request has its own connection.
const HTTP1_REQUESTS: usize = 256;
/// Default with `protocol = "h2"`, where all share one connection. Backends should allow at least 100 (RFC 9113 section
/// 6.5.2). hyper does not report what a backend allows; requests above that would wait inside hyper.
const HTTP2_REQUESTS: usize = 100;

const HASH: Shape = Shape::Pattern("^(subject|header:.+)$");
const SERVER: Shape = Shape::Pattern("^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+/*$");

/// `is_removed`: returns true for a header that no backend gets.
pub(super) fn upstreams(
    root: &mut Table<'_>,
    timeouts: &Timeouts,
    is_removed: impl Fn(&HeaderName) -> bool,
) -> Vec<Placed<UpstreamSettings>> {
    let upstreams = root.tables("upstream", |table| upstream(table, timeouts, &is_removed));
    if upstreams.is_empty() {
        let error = ConfigError::new(
            "no upstream is defined",
            "expected [[upstream]] with servers = [\"http://127.0.0.1:3000\"]",
        );
        root.reject("upstream", error.help("add the servers to which the gateway forwards requests").missing());
    }
    for (first, later) in duplicates(&upstreams, |upstream| &upstream.name) {
        let message = format!("two upstreams have the name `{}`", later.value.name);
        let error = ConfigError::new(message, "expected a different name")
            .help("give each upstream a different `name`; routes refer to it")
            .related(&first.place, "first used here");
        root.report().add(error.at(&later.place));
    }
    upstreams
}

/// The place of each upstream in the list, by its name. Of two with the same name, the first.
pub(super) fn numbers(upstreams: &[Placed<UpstreamSettings>]) -> HashMap<&str, usize> {
    let names = upstreams.iter().map(|upstream| upstream.value.name.as_str());
    names.enumerate().map(|(number, name)| (name, number)).rev().collect()
}

fn upstream(
    table: &mut Table<'_>,
    timeouts: &Timeouts,
    is_removed: &impl Fn(&HeaderName) -> bool,
) -> Placed<UpstreamSettings> {
    let written = table.take("name", Shape::Pattern("^[A-Za-z0-9._-]{1,64}$"));
    table.default("name", DEFAULT_NAME);
    let name = written.and_then(|value| value.parse(name)).unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let servers = servers(table).unwrap_or_default();
    warn_of_cleartext(table, &servers);
    let protocol = table.choice("protocol", Protocol::Http1, &[("http1", Protocol::Http1), ("h2", Protocol::Http2)]);
    let proxy_protocol = proxy_protocol(table, protocol);
    let max_concurrent_requests = match protocol {
        Protocol::Http1 => HTTP1_REQUESTS,
        Protocol::Http2 => HTTP2_REQUESTS,
    };
    // HTTP/2 has `:authority` instead.
    let is_pseudo = |name: &HeaderName| protocol == Protocol::Http2 && *name == header::HOST;
    let has_tls = servers.is_empty() || servers.iter().any(|server| server.tls);
    let value = UpstreamSettings {
        name,
        weights: weights(table, servers.len()),
        servers,
        protocol,
        balance: balance(table, &|name| is_removed(name) || is_pseudo(name)),
        tls: tls(table, has_tls),
        idle_timeout: table.duration("idle_timeout", Duration::from_secs(4), MIN_TIMEOUT..=MAX_TIMEOUT),
        max_connection_age: table.duration("max_connection_age", Duration::from_mins(10), MIN_TIMEOUT..=MAX_TIMEOUT),
        dns_refresh_interval: table.duration(
            "dns_refresh_interval",
            Duration::from_secs(10),
            Duration::from_secs(1)..=MAX_TIMEOUT,
        ),
        max_concurrent_requests: table.integer("max_concurrent_requests", max_concurrent_requests, 1..=100_000),
        reserve_percent: table.integer("reserve_percent", 25, 0..=90),
        connect_timeout: table.duration("connect_timeout", timeouts.upstream_connect, MIN_TIMEOUT..=MAX_TIMEOUT),
        response_timeout: table.duration("response_timeout", timeouts.upstream_response, MIN_TIMEOUT..=MAX_TIMEOUT),
        preserve_host: table.boolean("preserve_host", true),
        rewrite_redirects: table.boolean("rewrite_redirects", true),
        proxy_protocol,
        retry_budget_percent: table.integer("retry_budget_percent", 20, 0..=100),
        health_check: health::health_check(table),
        ejection: health::ejection(table),
    };
    Placed { value, place: table.place("name") }
}

/// Not with HTTP/2: one connection carries many clients, and the header names one.
fn proxy_protocol(table: &mut Table<'_>, protocol: Protocol) -> Option<Version> {
    let choices = [("off", None), ("v1", Some(Version::V1)), ("v2", Some(Version::V2))];
    let version = table.choice("proxy_protocol", None, &choices)?;
    if protocol == Protocol::Http2 {
        let error = ConfigError::new("the PROXY protocol does not work with HTTP/2", "expected `protocol = \"http1\"`");
        table.reject(
            "proxy_protocol",
            error.help("remove one of the two; without it, X-Forwarded-For names the client of each request"),
        );
    }
    Some(version)
}

/// The values of `balance`.
#[derive(Clone, Copy, PartialEq)]
enum Strategy {
    RoundRobin,
    LeastRequests,
    Hash,
}

fn balance(table: &mut Table<'_>, is_removed: &impl Fn(&HeaderName) -> bool) -> Balance {
    let strategies =
        [("round_robin", Strategy::RoundRobin), ("least_requests", Strategy::LeastRequests), ("hash", Strategy::Hash)];
    let strategy = table.choice("balance", Strategy::RoundRobin, &strategies);
    let key = match strategy {
        Strategy::Hash => table.required("hash", HASH, "\"subject\""),
        Strategy::RoundRobin | Strategy::LeastRequests => table.take("hash", HASH),
    };
    if key.is_some() && strategy != Strategy::Hash {
        let error = ConfigError::new("`hash` has no effect here", "expected `balance = \"hash\"` in this table");
        table.reject("hash", error.help("add `balance = \"hash\"`, or remove `hash`"));
    }
    let key = key.and_then(|value| value.parse(|text| hash_key(text, is_removed))).unwrap_or(Key::Subject);
    match strategy {
        Strategy::RoundRobin => Balance::RoundRobin,
        Strategy::LeastRequests => Balance::LeastRequests,
        Strategy::Hash => Balance::Hash(key),
    }
}

fn hash_key(text: &str, is_removed: &impl Fn(&HeaderName) -> bool) -> Result<Key, ConfigError> {
    let expected = "expected \"subject\", or \"header:\" and a header name";
    if text == "subject" {
        return Ok(Key::Subject);
    }
    let shown = text.escape_debug();
    let name =
        text.strip_prefix("header:").ok_or_else(|| ConfigError::new(format!("unknown value \"{shown}\""), expected))?;
    let name: HeaderName =
        name.parse().map_err(|_| ConfigError::new(format!("\"{shown}\" has no valid header name"), expected))?;
    if is_removed(&name) {
        Err(ConfigError::new(format!("the gateway removes {name} from every request"), expected)
            .help("name another header, or keep this one with `forwarding.keep`"))
    } else {
        Ok(Key::Header(name))
    }
}

/// TLS settings without an https:// server are an error: the operator would expect encrypted connections.
fn tls(table: &mut Table<'_>, has_tls: bool) -> UpstreamTlsSettings {
    let ca_file = table.path("ca_file");
    if let Some(path) = &ca_file {
        table.accept("ca_file", pem::certificates(path));
    }
    let client = client_certificate::read(table);
    let server_name = table.take("tls_server_name", Shape::Text).and_then(|value| value.parse(host::parse));
    for key in ["ca_file", "client_certificate", "client_key", "tls_server_name"] {
        if table.has(key) && !has_tls {
            let error =
                ConfigError::new(format!("`{key}` has no effect without TLS"), "expected servers with https://");
            table.reject(key, error.help(format!("write https:// in `servers`, or remove `{key}`")));
        }
    }
    UpstreamTlsSettings { ca_file, client, server_name }
}

fn name(text: &str) -> Result<String, ConfigError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    Err(ConfigError::new(
        "this name is not valid in logs and metrics",
        "expected 1 to 64 letters, digits, `-`, `_` or `.`",
    ))
}

fn servers(table: &mut Table<'_>) -> Option<Vec<ServerSettings>> {
    let example = "[\"http://127.0.0.1:3000\"]";
    let value = table.required("servers", Shape::some(SERVER), example)?;
    if value.list(example)?.is_empty() {
        value.reject(ConfigError::new(
            "the list is empty",
            format!("expected at least one server, for example {example}"),
        ));
    }
    let servers = value.list_of(example, server)?;
    if servers.len() > MAX_SERVERS {
        let error =
            ConfigError::new(format!("too many servers: {}", servers.len()), format!("expected at most {MAX_SERVERS}"));
        value.reject(error.help("use a host name with several addresses; it counts as one server"));
    }
    Some(servers)
}

/// `count`: the number of servers.
fn weights(table: &mut Table<'_>, count: usize) -> Vec<usize> {
    let value = table.take("weights", Shape::list(Shape::Integer(0..=MAX_WEIGHT)));
    table.default("weights", Vec::<usize>::new());
    let Some(value) = value else { return Vec::new() };
    let Some(items) = value.list("[3, 1]") else { return Vec::new() };
    let weights: Vec<usize> = items.iter().filter_map(|item| item.integer(0..=MAX_WEIGHT)).collect();
    if !items.is_empty() && items.len() != count && count > 0 {
        let error = ConfigError::new(
            format!("{} weights for {count} servers", items.len()),
            "expected one for each of `servers`, in their order",
        );
        value.reject(error.related(&table.place("servers"), "the servers"));
    } else if !weights.is_empty() && weights.iter().all(|weight| *weight == 0) {
        let error = ConfigError::new("no server would get requests", "expected a weight that is not 0");
        value.reject(error.help("to answer without a backend, see [maintenance]"));
    }
    if weights.len() == items.len() { weights } else { Vec::new() }
}

/// Names are not looked up: a check sends nothing over the network.
fn warn_of_cleartext(table: &Table<'_>, servers: &[ServerSettings]) {
    let is_public = |host: &str| host.parse::<IpAddr>().is_ok_and(|address| !is_private(address));
    let Some(server) = servers.iter().find(|server| !server.tls && is_public(&server.host)) else { return };
    let warning = ConfigError::new(
        format!("tokens go to {} in cleartext, over a public network", server.host),
        "each network on the way can read and change the requests",
    );
    table.warn("servers", warning.help("write https://, or use a private address"));
}

/// Returns true for addresses that the internet does not route (RFC 1918, 3927, 4193, 4291, 6598).
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let is_shared = address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64;
            address.is_private() || address.is_loopback() || address.is_link_local() || is_shared
        }
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local(),
    }
}

/// A final dot is kept: the resolver then adds no search domains, of which Kubernetes has several.
fn server_host(text: &str) -> Result<String, ConfigError> {
    match text.strip_suffix('.').filter(|name| name.parse::<IpAddr>().is_err()) {
        Some(name) => host::parse(name).map(|name| format!("{name}.")),
        None => host::parse(text),
    }
}

/// `http://host:port` or `https://host:port`. A path is rejected: paths of requests are forwarded unchanged.
fn server(text: &str) -> Result<ServerSettings, ConfigError> {
    let expected = "expected http:// or https://, a host and a port";
    if text.contains('@') {
        return Err(ConfigError::new("the URL contains a user name or password", expected)
            .help("remove it; secrets do not belong in this file, and requests keep their own credentials")
            .confidential());
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(
            ConfigError::new(format!("\"{text}\" is not a URL"), expected).help(format!("write \"http://{text}\""))
        );
    };
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        "h2c" | "grpc" => {
            let error = ConfigError::new(format!("unknown scheme {scheme}://"), expected);
            return Err(error.help("write http:// here, and add `protocol = \"h2\"` to this [[upstream]]"));
        }
        _ => return Err(ConfigError::new(format!("unknown scheme {scheme}://"), expected)),
    };
    if rest.trim_end_matches('/').contains(['/', '?', '#']) {
        return Err(ConfigError::new("the URL contains a path", expected)
            .help("remove the path; the gateway forwards the path of each request unchanged"));
    }
    let uri: Uri = text.parse().map_err(|_| ConfigError::new(format!("\"{text}\" is not a URL"), expected))?;
    let authority = uri.authority().ok_or_else(|| ConfigError::new(format!("\"{text}\" has no host"), expected))?;
    let host = server_host(authority.host())?;
    let port = match authority.as_str().strip_prefix(authority.host()) {
        None | Some("") if tls => 443,
        None | Some("") => 80,
        Some(_) => authority.port_u16().filter(|port| *port != 0).ok_or_else(|| {
            ConfigError::new(format!("\"{text}\" has no valid port"), "expected a port from 1 to 65535")
        })?,
    };
    Ok(ServerSettings { tls, host, port })
}
