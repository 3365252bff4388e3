//! `Type=notify`: the gateway notifies systemd when it is ready, when it reloads and when it stops.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tempfile::TempDir;

use super::upgrade::text;
use super::write;
use crate::support::Upstream;
use crate::support::ports::free_address;
use crate::support::program::Program;

fn assert_notified(socket: &UnixDatagram, name: OsString) {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    write(folder.path(), &text(&upstream, free_address(), "127.0.0.1:0", ""));
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let next = || {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).expect("a notification");
        String::from_utf8(message[..length].to_vec()).expect("UTF-8")
    };
    let program = Program::start_with(("NOTIFY_SOCKET", name.as_os_str()), folder.path(), &["serve"]);
    assert_eq!(next().trim(), "READY=1");
    program.signal("HUP");
    let reloading = next();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert_eq!(next().trim(), "READY=1");
    program.signal("TERM");
    assert_eq!(next().trim(), "STOPPING=1");
    assert!(program.wait().0.success());
}

#[test]
fn systemd_is_notified_of_start_reload_and_stop() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("notify");
    assert_notified(&UnixDatagram::bind(&path).expect("bound"), path.into());
}

/// A service manager of a user, or of a container, may have a socket without a file (sd_notify(3)).
#[test]
fn a_socket_without_a_file_is_notified() {
    let name = format!("bearward-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    assert_notified(&UnixDatagram::bind_addr(&address).expect("bound"), format!("@{name}").into());
}
