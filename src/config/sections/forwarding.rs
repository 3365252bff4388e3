//! `[forwarding]`: the proxies that may set the address of a client, and the headers that no client may set.

use std::net::IpAddr;

use http::HeaderName;
use ipnet::IpNet;

use crate::auth::identity::Identity;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::identity::HEADER;
use crate::config::sections::placed::Placed;
use crate::protocols::http::client_cert::CLIENT_CERT;
use crate::protocols::http::forwarded::{ClientCert, Forwarding};
use crate::protocols::http::headers;
use crate::protocols::http::name_pattern::NamePattern;
use crate::protocols::http::removed_fields::{FieldRules, removed_by_default};
use crate::protocols::tls::ServerTlsSettings;
use crate::server::ListenerSettings;

/// An address or a network.
pub(super) const NETWORK: Shape = Shape::Pattern("^[0-9a-fA-F.:]+(/[0-9]+)?$");

const EXPECTED_NAME: &str = "expected the name of a header, or a beginning with `-*`, for example \"X-SSL-*\"";

/// `identity`: what `[identity]` sets. `keep` must not name it.
pub(super) fn read(table: &mut Table<'_>, identity: &Identity) -> Forwarding {
    let trusted =
        table.take("trusted", Shape::list(NETWORK)).and_then(|value| value.list_of("[\"10.0.0.0/8\"]", network));
    let sets_real_ip = table.boolean("x_real_ip", false);
    let words = [("off", ClientCert::Off), ("any", ClientCert::Any), ("verified", ClientCert::Verified)];
    let client_cert = table.choice("client_certificate", ClientCert::Off, &words);
    let remove = table.take("remove", Shape::list(HEADER)).and_then(|value| value.list_of("[\"X-Tenant\"]", removed));
    let real_ip = sets_real_ip.then_some(headers::X_REAL_IP.as_str());
    let own = identity.names().map(|name| name.as_str()).chain(headers::own_fields()).chain(real_ip);
    let own = own.chain((client_cert != ClientCert::Off).then_some(CLIENT_CERT.as_str()));
    let own: Vec<NamePattern> = own.map(NamePattern::exact).collect();
    let keep = table
        .take("keep", Shape::list(HEADER))
        .and_then(|value| value.list_of("[\"X-SSL-*\"]", |text| kept(text, &own)));
    for key in ["trusted", "remove", "keep"] {
        table.default(key, Vec::<String>::new());
    }
    let fields = FieldRules { remove: remove.unwrap_or_default(), keep: keep.unwrap_or_default() };
    let forwarding = Forwarding { trusted: trusted.unwrap_or_default(), sets_real_ip, client_cert, fields };
    if client_cert != ClientCert::Off && forwarding.trusted.is_empty() && !table.has("trusted") {
        let error = ConfigError::new("no proxy is trusted", "expected the networks of your proxies in `trusted`");
        table.reject("client_certificate", error);
    }
    if let Some(network) = forwarding.trusted.iter().find(|network| is_wide(network)) {
        let warning = ConfigError::new(
            format!("{network} contains addresses of clients"),
            "these may send any client address in X-Forwarded-For",
        );
        table.warn("trusted", warning.help("list only the proxies in front of the gateway"));
    }
    forwarding
}

/// Returns true for a network that is larger than any private one. Several such networks can contain all addresses.
fn is_wide(network: &IpNet) -> bool {
    match network {
        IpNet::V4(network) => network.prefix_len() < 8,
        // fc00::/7 is private (RFC 4193).
        IpNet::V6(network) => network.prefix_len() < 16 && (network.network().segments()[0] & 0xfe00) != 0xfc00,
    }
}

/// Returns false if each request has the address of a proxy instead of that of its client: clients use `https://`
/// (`issuer`), no listener has TLS, and no proxy is trusted. A balancer that passes TLS on without the PROXY protocol
/// cannot be seen here.
pub(super) fn knows_addresses(listeners: &[Placed<ListenerSettings>], forwarding: &Forwarding, issuer: &str) -> bool {
    let has_tls = listeners.iter().any(|listener| listener.value.tls != ServerTlsSettings::Off);
    has_tls || !forwarding.trusted.is_empty() || !issuer.starts_with("https://")
}

/// Returns true if no backend gets this header: the gateway removes it, and does not set it.
pub(super) fn reaches_no_backend(name: &HeaderName, forwarding: &Forwarding, identity: &Identity) -> bool {
    let real_ip = forwarding.sets_real_ip.then_some(&headers::X_REAL_IP);
    if identity.set_names().chain(&headers::ORIGIN).chain(real_ip).any(|set| set == name) {
        return false;
    }
    let name = name.as_str().as_bytes();
    // Another spelling of a header that the gateway sets.
    let own = identity.names().map(HeaderName::as_str).chain(headers::own_fields());
    if own.map(NamePattern::exact).any(|own| own.matches(name)) {
        return true;
    }
    let FieldRules { remove, keep } = &forwarding.fields;
    removed_by_default().chain(remove.iter().cloned()).any(|removed| removed.matches(name))
        && !keep.iter().any(|kept| kept.matches(name))
}

fn pattern(text: &str) -> Result<NamePattern, ConfigError> {
    let error = || ConfigError::new(format!("\"{}\" is not a header name", text.escape_debug()), EXPECTED_NAME);
    NamePattern::parse(text).ok_or_else(error)
}

fn removed(text: &str) -> Result<NamePattern, ConfigError> {
    let pattern = pattern(text)?;
    match headers::essential_fields().find(|name| pattern.matches(name.as_bytes())) {
        None => Ok(pattern),
        Some(name) => Err(ConfigError::new(format!("{text} would remove {name}"), EXPECTED_NAME)
            .help("remove it from the list; requests need this header")),
    }
}

/// `own`: the headers that the gateway sets, or always removes. A beginning in `keep` may cover one: it is removed
/// anyway.
fn kept(text: &str, own: &[NamePattern]) -> Result<NamePattern, ConfigError> {
    let pattern = pattern(text)?;
    if own.contains(&pattern) {
        return Err(ConfigError::new(format!("a client must not set {text}"), EXPECTED_NAME)
            .help("remove it from the list; the gateway sets this header itself, or forwards it never"));
    }
    if removed_by_default().any(|removed| removed.covers(&pattern) || pattern.covers(&removed)) {
        return Ok(pattern);
    }
    Err(ConfigError::new(format!("{text} is not removed by default"), EXPECTED_NAME)
        .help("remove it from the list; `keep` is for headers in the list at `remove`"))
}

pub(super) fn network(text: &str) -> Result<IpNet, ConfigError> {
    let expected = "expected a network, for example \"10.0.0.0/8\" or \"fd00::/8\"";
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    let Ok(network) = text.parse::<IpNet>() else {
        return Err(ConfigError::new(format!("\"{}\" is not a network", text.escape_debug()), expected));
    };
    if network.prefix_len() == 0 {
        return Err(ConfigError::new("this network contains all addresses", expected)
            .help("any client could forge its address; list only the proxies in front of the gateway"));
    }
    if network.trunc() != network {
        return Err(ConfigError::new(format!("{text} is an address with a prefix length"), expected).help(format!(
            "write the network, \"{}\", or the address, \"{}\"",
            network.trunc(),
            network.addr()
        )));
    }
    Ok(network)
}
