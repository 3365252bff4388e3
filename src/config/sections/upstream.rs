//! `[[upstream]]`: the backends.

use std::time::Duration;

use http::Uri;

use crate::config::document::error::Fault;
use crate::config::document::table::Table;
use crate::config::sections::limits::{LONGEST, SHORTEST, Timeouts};
use crate::config::sections::{Placed, health, host, pem};
use crate::protocols::proxy_protocol::Version;
use crate::protocols::tls::CertificateFiles;
use crate::upstream::{Balance, Key, MOST_SERVERS, Protocol, ServerSettings, Settings, TlsSettings};

const DEFAULT_NAME: &str = "backend";

/// Requests at once to a server, each over a connection of its own.
const CONNECTIONS: usize = 256;
/// Over one connection: no backend should allow fewer (RFC 9113 section 6.5.2). hyper knows what it allows and does not tell; what
/// is beyond that waits there unseen.
const STREAMS: usize = 100;

pub(super) fn upstreams(root: &mut Table<'_>, timeouts: &Timeouts) -> Vec<Placed<Settings>> {
    let upstreams = root.tables("upstream", |table| upstream(table, timeouts));
    if upstreams.is_empty() {
        let fault =
            Fault::new("there is no upstream", "expected [[upstream]] with servers = [\"http://127.0.0.1:3000\"]");
        root.wrong("upstream", fault.help("say where the requests go that are let through").of_absence());
    }
    for (index, upstream) in upstreams.iter().enumerate() {
        if let Some(first) = upstreams[..index].iter().find(|first| first.value.name == upstream.value.name) {
            let fault =
                Fault::new(format!("two upstreams are called `{}`", upstream.value.name), "expected another name")
                    .help("routes name the upstream that they lead to: give each a `name` of its own")
                    .related(&first.place, "the first one is here");
            root.reading().record(fault.at(&upstream.place));
        }
    }
    upstreams
}

fn upstream(table: &mut Table<'_>, timeouts: &Timeouts) -> Placed<Settings> {
    let name = table.take("name").and_then(|value| value.parse(name)).unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let servers = servers(table).unwrap_or_default();
    let protocol = table.choice("protocol", Protocol::Http1, &[("http1", Protocol::Http1), ("h2", Protocol::Http2)]);
    let proxy_protocol = proxy_protocol(table, protocol);
    let max_concurrent_requests = match protocol {
        Protocol::Http1 => CONNECTIONS,
        Protocol::Http2 => STREAMS,
    };
    let has_tls = servers.is_empty() || servers.iter().any(|server| server.tls);
    let value = Settings {
        name,
        servers,
        protocol,
        balance: balance(table),
        tls: tls(table, has_tls),
        idle_timeout: table.duration("idle_timeout", Duration::from_secs(4), SHORTEST..=LONGEST),
        max_connection_age: table.duration("max_connection_age", Duration::from_mins(10), SHORTEST..=LONGEST),
        dns_refresh_interval: table.duration(
            "dns_refresh_interval",
            Duration::from_secs(10),
            Duration::from_secs(1)..=LONGEST,
        ),
        max_concurrent_requests: table.whole("max_concurrent_requests", max_concurrent_requests, 1..=100_000),
        reserve_percent: table.whole("reserve_percent", 25, 0..=90),
        connect_timeout: table.duration("connect_timeout", timeouts.upstream_connect, SHORTEST..=LONGEST),
        response_timeout: table.duration("response_timeout", timeouts.upstream_response, SHORTEST..=LONGEST),
        preserve_host: table.flag("preserve_host", true),
        proxy_protocol,
        retry_budget_percent: table.whole("retry_budget_percent", 20, 0..=100),
        health_check: health::health_check(table),
        ejection: health::ejection(table),
    };
    Placed { value, place: table.place("name") }
}

/// Over HTTP/2, one connection carries many clients, and its header could name one of them alone.
fn proxy_protocol(table: &mut Table<'_>, protocol: Protocol) -> Option<Version> {
    let choices = [("off", None), ("v1", Some(Version::V1)), ("v2", Some(Version::V2))];
    let version = table.choice("proxy_protocol", None, &choices)?;
    if protocol == Protocol::Http2 {
        let fault = Fault::new("the PROXY protocol names one client for a whole connection", "expected HTTP/1.1");
        table.wrong(
            "proxy_protocol",
            fault.help("remove it, or `protocol = \"h2\"`: X-Forwarded-For names the client of each request"),
        );
    }
    Some(version)
}

/// Words of `balance`.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    RoundRobin,
    LeastRequests,
    Hash,
}

fn balance(table: &mut Table<'_>) -> Balance {
    let ways = [("round_robin", Way::RoundRobin), ("least_requests", Way::LeastRequests), ("hash", Way::Hash)];
    let way = table.choice("balance", Way::RoundRobin, &ways);
    let key = match way {
        Way::Hash => table.required("hash", "\"subject\""),
        Way::RoundRobin | Way::LeastRequests => table.take("hash"),
    };
    if key.is_some() && way != Way::Hash {
        let fault = Fault::new("this decides nothing", "expected it beside `balance = \"hash\"`");
        table.wrong("hash", fault.help("write `balance = \"hash\"`, or remove `hash`"));
    }
    let key = key.and_then(|value| value.parse(hash_key)).unwrap_or(Key::Subject);
    match way {
        Way::RoundRobin => Balance::RoundRobin,
        Way::LeastRequests => Balance::LeastRequests,
        Way::Hash => Balance::Hash(key),
    }
}

fn hash_key(text: &str) -> Result<Key, Fault> {
    let expected = "expected \"subject\", or \"header:\" and the name of a header";
    if text == "subject" {
        return Ok(Key::Subject);
    }
    let shown = text.escape_debug();
    let name = text.strip_prefix("header:").ok_or_else(|| Fault::new(format!("\"{shown}\" is no key"), expected))?;
    name.parse().map(Key::Header).map_err(|_| Fault::new(format!("\"{shown}\" names no header"), expected))
}

/// Whoever names a CA, a certificate or a name believes that this connection is encrypted.
fn tls(table: &mut Table<'_>, has_tls: bool) -> TlsSettings {
    let ca_file = table.path("ca_file");
    if let Some(path) = &ca_file {
        table.accept("ca_file", pem::certificates(path));
    }
    let client = client_certificate(table);
    let server_name = table.take("tls_server_name").and_then(|value| value.parse(host::parse));
    for key in ["ca_file", "client_certificate", "client_key", "tls_server_name"] {
        if table.has(key) && !has_tls {
            let fault = Fault::new("no server of this upstream is reached by TLS", "expected servers with https://");
            table.wrong(key, fault.help(format!("write https:// in `servers`, or remove `{key}`")));
        }
    }
    TlsSettings { ca_file, client, server_name }
}

fn client_certificate(table: &mut Table<'_>) -> Option<CertificateFiles> {
    let (certificate, key) = (table.path("client_certificate"), table.path("client_key"));
    let chain = certificate.as_deref().and_then(|path| table.accept("client_certificate", pem::certificates(path)));
    let private_key = key.as_deref().and_then(|path| table.accept("client_key", pem::private_key(path)));
    match (table.has("client_certificate"), table.has("client_key")) {
        (true, false) => {
            let fault = Fault::new("its private key is missing", "expected `client_key` beside it");
            table.wrong("client_certificate", fault.help("a certificate can be shown only by who has its key"));
        }
        (false, true) => {
            let fault = Fault::new("its certificate is missing", "expected `client_certificate` beside it");
            table.wrong("client_key", fault);
        }
        _ => {}
    }
    let files = CertificateFiles { certificate: certificate?, key: key? };
    if let (Some(chain), Some(private_key)) = (chain, private_key) {
        table.accept("client_key", pem::key_fits(chain, private_key, &files));
    }
    Some(files)
}

fn name(text: &str) -> Result<String, Fault> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    Err(Fault::new("this name is not usable in logs and metrics", "expected 1 to 64 letters, digits, `-`, `_` or `.`"))
}

fn servers(table: &mut Table<'_>) -> Option<Vec<ServerSettings>> {
    let example = "[\"http://127.0.0.1:3000\"]";
    let value = table.required("servers", example)?;
    if value.list(example)?.is_empty() {
        value.wrong(Fault::new("there is no server", format!("expected at least one, as {example}")));
    }
    let servers = value.list_of(example, server)?;
    if servers.len() > MOST_SERVERS {
        let fault =
            Fault::new(format!("these are {} servers", servers.len()), format!("expected at most {MOST_SERVERS}"));
        value.wrong(fault.help("a name with several addresses is one server, and all of them are used"));
    }
    Some(servers)
}

/// `http://host:port`, or https. The path of a request is passed on as it came, so that none can stand here.
fn server(text: &str) -> Result<ServerSettings, Fault> {
    let expected = "expected http:// or https://, a host and a port";
    if text.contains('@') {
        return Err(Fault::new("a URL with a user name or password", expected)
            .help("nothing secret stands in this file; requests keep the credentials they came with")
            .confidential());
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(Fault::new(format!("\"{text}\" is not a URL"), expected).help(format!("write \"http://{text}\"")));
    };
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        "h2c" | "grpc" => {
            let fault = Fault::new(format!("{scheme}:// is not a scheme of HTTP"), expected);
            return Err(fault.help("write http:// here and `protocol = \"h2\"` in this [[upstream]]"));
        }
        _ => return Err(Fault::new(format!("{scheme}:// cannot be reached"), expected)),
    };
    if rest.trim_end_matches('/').contains(['/', '?', '#']) {
        return Err(Fault::new("a URL with a path", expected)
            .help("the path of a request is passed on byte for byte; nothing is put before it"));
    }
    let uri: Uri = text.parse().map_err(|_| Fault::new(format!("\"{text}\" is not a URL"), expected))?;
    let authority = uri.authority().ok_or_else(|| Fault::new(format!("\"{text}\" names no host"), expected))?;
    let host = host::parse(authority.host())?;
    let port = match authority.as_str().strip_prefix(authority.host()) {
        None | Some("") if tls => 443,
        None | Some("") => 80,
        Some(_) => authority
            .port_u16()
            .filter(|port| *port != 0)
            .ok_or_else(|| Fault::new(format!("\"{text}\" has no valid port"), "expected a port from 1 to 65535"))?,
    };
    Ok(ServerSettings { tls, host, port })
}
