//! `[forwarding]`: the proxies that may set the address of a client.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::protocols::http::forwarded::Forwarding;

pub(super) fn read(table: &mut Table<'_>) -> Forwarding {
    let trusted = table.take("trusted").and_then(|value| value.list_of("[\"10.0.0.0/8\"]", network));
    let forwarding = Forwarding { trusted: trusted.unwrap_or_default() };
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

fn network(text: &str) -> Result<IpNet, ConfigError> {
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
