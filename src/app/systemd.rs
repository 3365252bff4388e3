//! Notifications to systemd.

use std::env;
use std::fmt::Write;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sd_notify::NotifyState;

/// Notifies systemd if it has started the gateway. A failed notification changes nothing for clients.
pub fn notify_systemd(states: &[NotifyState<'_>]) {
    let socket = env::var_os("NOTIFY_SOCKET").unwrap_or_default();
    // The name of a socket that has no file. `sd_notify` takes it for a path.
    let sent = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => send_to_abstract(name, states),
        None => sd_notify::notify(states),
    };
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot notify systemd, which may end the gateway if it waits for that");
    }
}

fn send_to_abstract(name: &[u8], states: &[NotifyState<'_>]) -> io::Result<()> {
    let mut message = String::new();
    for state in states {
        // A String takes everything.
        let _ = writeln!(message, "{state}");
    }
    let address = SocketAddr::from_abstract_name(name)?;
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}
