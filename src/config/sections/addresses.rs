//! Addresses of listeners against each other, and, when asked, against what this machine has free.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use crate::admin;
use crate::config::document::error::{ConfigError, Place};
use crate::config::document::table::Table;
use crate::config::sections::placed::Placed;
use crate::config::settings::Probe;
use crate::protocols::socket;
use crate::server::ListenerSettings;

pub(super) fn check(
    root: &Table<'_>,
    listeners: &[Placed<ListenerSettings>],
    admin: &Placed<admin::Settings>,
    probe: Probe,
) {
    let listeners = listeners.iter().map(|listener| (listener.value.address, &listener.place));
    let all: Vec<(SocketAddr, &Place)> = listeners.chain([(admin.value.address, &admin.place)]).collect();
    for (index, (address, place)) in all.iter().enumerate() {
        let earlier = all[..index].iter().find(|(earlier, _)| overlap(*earlier, *address));
        if let Some((other, other_place)) = earlier {
            root.report().add(taken_twice(*address, *other).related(other_place, "the first one is here").at(place));
        } else if probe == Probe::Addresses
            && let Err(error) = socket::probe(*address)
        {
            root.report().add(cannot_bind(*address, &error).at(place));
        }
    }
}

/// Would one listener take connections of the other? `0.0.0.0` and `[::]` stand for every address of their family, and
/// for that alone: listeners on `[::]` take IPv6 only.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    // Port 0 is a free one, chosen by the system: never the same twice.
    let same_port = a.port() == b.port() && a.port() != 0;
    let same_family = a.is_ipv4() == b.is_ipv4();
    same_port && same_family && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}

fn taken_twice(address: SocketAddr, other: SocketAddr) -> ConfigError {
    let message = match address == other {
        true => format!("two listeners on {address}"),
        false => format!("{address} and {other} overlap"),
    };
    ConfigError::new(message, "expected an address of its own").help("give one of them another port")
}

fn cannot_bind(address: SocketAddr, error: &io::Error) -> ConfigError {
    let port = address.port();
    match error.kind() {
        ErrorKind::AddrInUse => ConfigError::new(format!("{address} is in use"), "expected an address that is free")
            .help(format!("`ss -ltnp 'sport = :{port}'` shows by whom; stop that, or choose another port")),
        ErrorKind::AddrNotAvailable => {
            ConfigError::new(format!("{} is no address of this machine", address.ip()), "expected one of its own")
                .help("`ip address` lists them; \"0.0.0.0\" stands for all")
        }
        ErrorKind::PermissionDenied => {
            ConfigError::new(format!("this user may not listen on port {port}"), "expected 1024 or above")
                .help("or give the capability: AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit")
        }
        _ if address.is_ipv6() => ConfigError::new(
            format!("cannot listen on {address}: {error}"),
            "expected an address that can be listened on",
        )
        .help("does this machine have IPv6?"),
        _ => ConfigError::new(
            format!("cannot listen on {address}: {error}"),
            "expected an address that can be listened on",
        ),
    }
}
