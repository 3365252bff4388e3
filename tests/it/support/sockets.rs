//! The sockets of this machine, as the kernel lists them.

use std::fs;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::wait::eventually_ok;

/// The kind of timer that a socket of this machine waits for, and its time in hundredths of a second (`tr` and
/// `tm->when` of /proc/net/tcp). `None` if the table lacks the socket: it is no snapshot, and others open and close
/// sockets while it is read.
fn timer(local: SocketAddr, remote: SocketAddr) -> Option<(u8, u64)> {
    let [local, remote] = [local, remote].map(|address| {
        let SocketAddr::V4(address) = address else { panic!("IPv4: {address}") };
        format!("{:08X}:{:04X}", u32::from_le_bytes(address.ip().octets()), address.port())
    });
    let table = fs::read_to_string("/proc/net/tcp").expect("a table");
    let mut sockets = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let socket = sockets.find(|fields| fields[1] == local && fields[2] == remote)?;
    let (kind, when) = socket[5].split_once(':').expect("a timer");
    Some((kind.parse().expect("a number"), u64::from_str_radix(when, 16).expect("a number")))
}

/// Checks that the kernel looks for this client of the gateway after 60 s of silence. It first waits for other timers
/// of the connection, such as that of a segment that is not acknowledged yet.
pub async fn assert_kept_alive(client: &TcpStream) {
    const KEEPALIVE: u8 = 2;
    let [gateway, own] = [client.peer_addr(), client.local_addr()].map(|address| address.expect("connected"));
    let when = eventually_ok("the timer of TCP keepalive", async || match timer(gateway, own) {
        Some((KEEPALIVE, when)) => Ok(when),
        other => Err(format!("{gateway}: {other:?}")),
    })
    .await;
    assert!((1..=60 * 100).contains(&when), "{gateway}: {when}");
}
