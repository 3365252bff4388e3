//! What the gateway sets on the sockets of its clients.

use std::fs;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::support::{Gateway, Upstream};

/// The kind of timer that a socket of this machine waits for, and its time in hundredths of a second (`tr` and
/// `tm->when` of /proc/net/tcp).
fn timer(local: SocketAddr, remote: SocketAddr) -> (u8, u64) {
    let [local, remote] = [local, remote].map(|address| {
        let SocketAddr::V4(address) = address else { panic!("IPv4: {address}") };
        format!("{:08X}:{:04X}", u32::from_le_bytes(address.ip().octets()), address.port())
    });
    let table = fs::read_to_string("/proc/net/tcp").expect("a table");
    let mut sockets = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let socket = sockets.find(|fields| fields[1] == local && fields[2] == remote).expect("the socket of the gateway");
    let (kind, when) = socket[5].split_once(':').expect("a timer");
    (kind.parse().expect("a number"), u64::from_str_radix(when, 16).expect("a number"))
}

/// Nothing else ends an idle WebSocket of a client that lost its network. The kernel looks for the client after 60 s.
#[tokio::test]
async fn the_kernel_looks_for_silent_clients() {
    const KEEPALIVE: u8 = 2;
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for address in [gateway.address(), gateway.tls_address()] {
        let client = TcpStream::connect(address).await.expect("the gateway listens");
        let (kind, when) = timer(address, client.local_addr().expect("connected"));
        assert_eq!(kind, KEEPALIVE, "{address}");
        assert!((1..=60 * 100).contains(&when), "{address}: {when}");
    }
}
