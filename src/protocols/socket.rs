//! Sockets with the options that std and tokio cannot set.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

/// Connections that may wait to be accepted. The kernel caps it at net.core.somaxconn.
pub const BACKLOG: i32 = 4096;

/// See [`watch_closely`].
const VANISHED: Duration = Duration::from_secs(20);

/// Binds `count` listeners to one address; the kernel spreads connections over them, one for each worker.
///
/// The first bind is done without SO_REUSEPORT, which would let a second gateway quietly share the address.
pub fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    // Held until the others stand, so that nobody slips in between; port 0 becomes one port for all.
    let claim = open(address, false)?;
    let address = claim.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    claim.set_reuse_port(true)?;
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = open(address, true)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        listeners.push(socket.into());
    }
    Ok(listeners)
}

/// Spreads the sockets of one address over so many workers. Each is looked after by a worker, and each worker has one: several
/// share one if there are too few.
pub fn spread(sockets: Vec<std::net::TcpListener>, workers: usize) -> io::Result<Vec<Vec<std::net::TcpListener>>> {
    let mut spread: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for worker in sockets.len()..workers {
        spread[worker].push(sockets[worker % sockets.len()].try_clone()?);
    }
    for (place, socket) in sockets.into_iter().enumerate() {
        spread[place % workers].push(socket);
    }
    Ok(spread)
}

/// Could [`bind`] have this address? Binds as it does and lets go at once, without listening, so that no client is accepted
/// and dropped.
pub fn probe(address: SocketAddr) -> io::Result<()> {
    open(address, false).map(drop)
}

fn open(address: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for the last run's connections to be forgotten.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` are two listeners, on every system alike.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(reuse_port)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Takes a listener into the runtime of the thread that calls.
pub fn into_tokio(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    TcpListener::from_std(listener)
}

/// As [`into_tokio`], for one connection.
pub fn into_tokio_stream(stream: std::net::TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

/// Closes at once, without a word, and with nothing for the kernel to remember.
pub fn reset(stream: TcpStream) {
    // Where it fails, the connection is gone already.
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}

/// A peer that vanished without a word is noticed within this, whether something is on its way to it or not. For a connection
/// that everybody shares: the requests of all would go there and wait.
pub fn watch_closely(stream: &TcpStream) {
    let probes = TcpKeepalive::new().with_time(VANISHED / 2).with_interval(VANISHED / 4);
    // As in [`tune`].
    let _ = SockRef::from(stream).set_tcp_keepalive(&probes.with_retries(2));
    let _ = SockRef::from(stream).set_tcp_user_timeout(Some(VANISHED));
}

/// Small writes go out at once; each is a whole message or record. A peer that vanished without a word is noticed after a
/// minute or two: nothing else ends a WebSocket on which nobody speaks.
pub fn tune(stream: &TcpStream) {
    let probes = TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));
    // Both fail only on a connection that is gone, which the next read notices.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&probes.with_retries(4));
}
