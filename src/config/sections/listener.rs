//! `[[listener]]`: addresses and TLS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::{Value, choose};
use crate::config::sections::acme::{self, Acme};
use crate::config::sections::placed::Placed;
use crate::config::sections::{listener_clients, pem, public_url};
use crate::protocols::http::forwarded::Forwarding;
use crate::protocols::tls::{CertificateFiles, CertificateSource, ServerTlsSettings};
use crate::server::ListenerSettings;

/// The folder of the self-signed certificate.
const SELF_SIGNED_FOLDER: &str = "tls";

/// IPv4 only: with `[::]`, the gateway would not start on a machine without IPv6.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);

/// The form of `listener.address` and `admin.address`.
pub(super) const ADDRESS: Shape = Shape::Pattern("^.+:[0-9]+$");

pub(super) fn listeners(root: &mut Table<'_>, forwarding: &Forwarding, acme: &Acme) -> Vec<Placed<ListenerSettings>> {
    let listeners = root.tables("listener", |table| listener(table, forwarding, acme));
    if !listeners.is_empty() {
        return listeners.into_iter().flatten().collect();
    }
    root.defaults_of("listener", |table| {
        listener(table, forwarding, acme);
        table.default("address", DEFAULT_ADDRESS.to_string());
    });
    let value = ListenerSettings {
        address: DEFAULT_ADDRESS,
        tls: self_signed(root),
        clients: None,
        proxy_protocol: false,
        public_url: None,
    };
    vec![Placed { value, place: root.place("listener") }]
}

/// `None` without a valid address. All other keys are checked anyway.
fn listener(table: &mut Table<'_>, forwarding: &Forwarding, acme: &Acme) -> Option<Placed<ListenerSettings>> {
    let address = table.required("address", ADDRESS, "\"0.0.0.0:8443\"");
    let address = address.and_then(|value| value.parse(socket_address));
    let tls = tls(table, Some(acme)).unwrap_or_else(|| self_signed(table));
    table.default("tls", "self-signed");
    let clients = listener_clients::read(table, tls != ServerTlsSettings::Off);
    let proxy_protocol = proxy_protocol(table, forwarding);
    let public_url = table.take("public_url", Shape::Pattern("^https?://.+$"));
    let public_url = public_url.and_then(|value| value.parse(public_url::parse)).map(Arc::new);
    let value = ListenerSettings { address: address?, tls, clients, proxy_protocol, public_url };
    Some(Placed { value, place: table.place("address") })
}

/// Only trusted proxies may send the header.
fn proxy_protocol(table: &mut Table<'_>, forwarding: &Forwarding) -> bool {
    let proxy_protocol = table.boolean("proxy_protocol", false);
    if proxy_protocol && forwarding.trusted.is_empty() {
        let error = ConfigError::new(
            "no proxy is trusted, so all connections would be closed",
            "expected the networks of your proxies in forwarding.trusted",
        );
        let help = "add `trusted = [\"10.0.0.0/24\"]` under [forwarding], or remove `proxy_protocol`";
        table.reject("proxy_protocol", error.help(help));
    }
    proxy_protocol
}

pub(super) fn socket_address(text: &str) -> Result<SocketAddr, ConfigError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let error = ConfigError::new(
        format!("\"{text}\" is not an address"),
        "expected an IP address and a port, for example \"0.0.0.0:8443\" or \"[::1]:8443\"",
    );
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let has_port = port.parse::<u16>().is_ok();
    Err(if text.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) {
        error.help(format!("write the IPv6 address in brackets and add the port: \"[{text}]:8443\""))
    } else if text.parse::<IpAddr>().is_ok() {
        error.help(format!("add the port: \"{text}:8443\""))
    } else if has_port && matches!(host, "" | "*") {
        error
            .help(format!("write \"0.0.0.0:{port}\" for all IPv4 addresses, or \"[::]:{port}\" for all IPv6 addresses"))
    } else if has_port && host == "localhost" {
        error.help(format!("write \"127.0.0.1:{port}\""))
    } else if text.contains("://") {
        error.help("remove the scheme; the key `tls` selects TLS")
    } else {
        error
    })
}

fn self_signed(table: &Table<'_>) -> ServerTlsSettings {
    ServerTlsSettings::SelfSigned { folder: table.report().base().join(SELF_SIGNED_FOLDER) }
}

/// The tables of a list have the keys of the single table.
fn tls_shape() -> Shape {
    let words = Shape::Choice(["self-signed", "off"].map(str::to_owned).to_vec());
    Shape::Any(vec![words, Shape::Table, Shape::some(Shape::Table)])
}

/// `None` if the key is missing or wrong. `acme`: `None` for a listener without such names.
pub(super) fn tls(table: &mut Table<'_>, acme: Option<&Acme>) -> Option<ServerTlsSettings> {
    let value = table.take("tls", tls_shape())?;
    if value.is_string() {
        let words = [("self-signed", true), ("off", false)];
        return value
            .parse(|text| choose(text, &words).map_err(explain_tls))
            .map(|on| if on { self_signed(table) } else { ServerTlsSettings::Off });
    }
    let read = |table: &mut Table<'_>| source(table, acme);
    let sources: Vec<_> = if value.is_list() {
        several(&value).into_iter().filter_map(|table| table.read(read)).collect()
    } else {
        value.table()?.read(read).into_iter().collect()
    };
    (!sources.is_empty()).then_some(ServerTlsSettings::Certificates(sources))
}

/// Required, unless there are names for an ACME server.
fn file(table: &mut Table<'_>, key: &'static str, example: &str) -> Option<PathBuf> {
    let file = table.path(key);
    if !table.has(key) {
        let error = ConfigError::new(format!("`{key}` is missing"), format!("expected `{key} = {example}`"));
        table.reject(key, error.missing());
    }
    file
}

fn explain_tls(mut error: ConfigError) -> ConfigError {
    error.expected.push_str(" or { certificate = \"…\", key = \"…\" }");
    error
}

fn several<'a>(list: &Value<'a>) -> Vec<Table<'a>> {
    let tables = list.list("[{ certificate = \"…\", key = \"…\" }]").unwrap_or_default();
    if tables.is_empty() {
        list.reject(
            ConfigError::new("the list is empty", "expected at least one { certificate = \"…\", key = \"…\" }")
                .help("add a certificate, or set `tls = \"off\"` for cleartext"),
        );
    }
    tables.into_iter().filter_map(Value::table).collect()
}

/// Files, or names for an ACME server.
fn source(table: &mut Table<'_>, acme: Option<&Acme>) -> Option<CertificateSource> {
    let Some(acme) = acme else { return certificate(table).map(CertificateSource::Files) };
    let names = table.take("acme", Shape::some(acme::NAME));
    if !table.has("acme") {
        return certificate(table).map(CertificateSource::Files);
    }
    for key in ["certificate", "key"] {
        if table.path(key).is_some() {
            let error = ConfigError::new(format!("`{key}` has no effect beside `acme`"), "expected files or names");
            table.reject(key, error.help("write two tables: [{ acme = […] }, { certificate = \"…\", key = \"…\" }]"));
        }
    }
    let names = names?;
    let example = "[\"api.example.com\"]";
    if names.list(example)?.is_empty() {
        table.reject("acme", ConfigError::new("the list is empty", "expected at least one name"));
    }
    let names = names.list_of(example, acme::name)?;
    acme::check_names(table, &names, acme.names_per_listener).then_some(CertificateSource::Acme(names))
}

fn certificate(table: &mut Table<'_>) -> Option<CertificateFiles> {
    let certificate = file(table, "certificate", "\"tls/fullchain.pem\"");
    let key = file(table, "key", "\"tls/key.pem\"");
    let chain = certificate.as_deref().and_then(|path| table.accept("certificate", pem::certificates(path)));
    let private_key = key.as_deref().and_then(|path| table.accept("key", pem::private_key(path)));
    let files = CertificateFiles { certificate: certificate?, key: key? };
    if let Some(chain) = &chain {
        pem::warn_unless_valid_now(table, "certificate", &files.certificate, chain);
    }
    if let (Some(chain), Some(private_key)) = (chain, private_key) {
        pem::check_pair(table, "", chain, private_key, &files);
    }
    Some(files)
}
