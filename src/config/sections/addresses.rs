//! Checks that no two listeners share an address and, before a start, that each address is free on this machine.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use crate::admin::AdminSettings;
use crate::config::document::error::{ConfigError, Place};
use crate::config::document::table::Table;
use crate::config::sections::placed::Placed;
use crate::config::settings::Probe;
use crate::protocols::socket;
use crate::server::ListenerSettings;

pub(super) fn check(
    root: &Table<'_>,
    listeners: &[Placed<ListenerSettings>],
    admin: &Placed<AdminSettings>,
    probe: Probe,
) {
    let listeners = listeners.iter().map(|listener| (listener.value.address, &listener.place));
    let all: Vec<(SocketAddr, &Place)> = listeners.chain([(admin.value.address, &admin.place)]).collect();
    for (index, (address, place)) in all.iter().enumerate() {
        let earlier = all[..index].iter().find(|(earlier, _)| overlap(*earlier, *address));
        if let Some((other, other_place)) = earlier {
            root.report().add(taken_twice(*address, *other).related(other_place, "first used here").at(place));
        } else if probe == Probe::Addresses
            && let Err(error) = socket::probe(*address)
        {
            root.report().add(cannot_bind(*address, &error).at(place));
        }
    }
}

/// Returns true if one listener would accept connections of the other. `0.0.0.0` and `[::]` mean all addresses of their
/// family only: listeners on `[::]` accept IPv6 only.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    // With port 0, the system picks a free port: two of them never conflict.
    let same_port = a.port() == b.port() && a.port() != 0;
    let same_family = a.is_ipv4() == b.is_ipv4();
    same_port && same_family && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}

fn taken_twice(address: SocketAddr, other: SocketAddr) -> ConfigError {
    let message = if address == other {
        format!("two listeners have the address {address}")
    } else {
        format!("{address} and {other} overlap")
    };
    ConfigError::new(message, "expected a different address").help("give one of them another port")
}

fn cannot_bind(address: SocketAddr, error: &io::Error) -> ConfigError {
    let port = address.port();
    match error.kind() {
        ErrorKind::AddrInUse => ConfigError::new(format!("{address} is in use"), "expected a free address").help(
            format!("`ss -ltnp 'sport = :{port}'` shows the program that uses it; stop it, or choose another port"),
        ),
        ErrorKind::AddrNotAvailable => {
            ConfigError::new(format!("{} is not an address of this machine", address.ip()), "expected a local address")
                .help("`ip address` lists the local addresses; \"0.0.0.0\" means all of them")
        }
        ErrorKind::PermissionDenied => {
            ConfigError::new(format!("no permission to listen on port {port}"), "expected port 1024 or above")
                .help("choose another port, or set AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit")
        }
        _ if address.is_ipv6() => {
            ConfigError::new(format!("cannot listen on {address}: {error}"), "expected a usable address")
                .help("check that IPv6 is enabled on this machine, or use an IPv4 address")
        }
        _ => ConfigError::new(format!("cannot listen on {address}: {error}"), "expected a usable address"),
    }
}
