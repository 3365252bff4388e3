//! `[[upstream]]`: the backends.

use std::time::Duration;

use http::Uri;

use crate::config::check::limits::{LONGEST, SHORTEST, Timeouts};
use crate::config::check::{Placed, host, pem};
use crate::config::fault::Fault;
use crate::config::read::Table;
use crate::proxy_protocol::Version;
use crate::upstream::{Protocol, ServerSettings, Settings};

const DEFAULT_NAME: &str = "backend";

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
    let ca_file = table.path("ca_file");
    if let Some(path) = &ca_file {
        table.accept("ca_file", pem::certificates(path));
        if !servers.is_empty() && !servers.iter().any(|server| server.tls) {
            // Whoever names a CA believes that this connection is encrypted.
            let fault = Fault::new("no server of this upstream is reached by TLS", "expected servers with https://");
            table.wrong("ca_file", fault.help("write https:// in `servers`, or remove `ca_file`"));
        }
    }
    let proxy_protocol = proxy_protocol(table, protocol);
    let value = Settings {
        name,
        servers,
        protocol,
        ca_file,
        idle_timeout: table.duration("idle_timeout", Duration::from_secs(4), SHORTEST..=LONGEST),
        connections: table.whole("connections", 256, 1..=100_000),
        connect_timeout: table.duration("connect_timeout", timeouts.upstream_connect, SHORTEST..=LONGEST),
        response_timeout: table.duration("response_timeout", timeouts.upstream_response, SHORTEST..=LONGEST),
        preserve_host: table.flag("preserve_host", true),
        proxy_protocol,
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
    value.list_of(example, server)
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
