//! Addresses on which nothing listens, and which no other test gets.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::net::TcpSocket;

/// An address that rejects connections while this value lives: a socket has it, and does not listen. A listener that is
/// dropped leaves its port to the next one that asks for any.
pub struct ClosedPort {
    pub address: SocketAddr,
    _socket: TcpSocket,
}

impl ClosedPort {
    #[allow(clippy::new_without_default)]
    pub fn new() -> ClosedPort {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        ClosedPort { address: socket.local_addr().expect("an address"), _socket: socket }
    }
}

/// A port below those that the system gives to connections and to listeners on port 0, so that it stays free until a
/// program listens on it. It does not contain the ports of the pages, because tests replace those by their digits.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 10_000).expect("below 10,000");
    let ports = std::iter::repeat_with(|| 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000);
    let is_plain = |port: &u16| !["3000", "8443", "9443"].iter().any(|named| port.to_string().contains(named));
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
    ports.take(1000).filter(is_plain).find(is_free).expect("a free port")
}

pub fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}
