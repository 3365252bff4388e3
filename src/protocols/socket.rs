//! Sockets with options that std and tokio cannot set.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

/// Maximum connections that wait to be accepted. The kernel lowers it to net.core.somaxconn.
pub const BACKLOG: i32 = 4096;

/// See [`set_fast_keepalive`].
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// Binds `count` listeners to one address, one for each worker. The kernel spreads connections over them.
///
/// The first bind is without SO_REUSEPORT, which would let a second gateway share the address unnoticed.
pub fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    // Held until the others are bound, so that no other process can take the address. Port 0 becomes one port for all.
    let claim = open(address, false)?;
    let address = claim.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    claim.set_reuse_port(true)?;
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = open(address, true)?;
        set_options(&socket);
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        listeners.push(socket.into());
    }
    Ok(listeners)
}

/// Distributes the sockets of one address over the workers. Each socket gets a worker, and each worker at least one
/// socket: if there are fewer sockets than workers, some workers share one.
pub fn distribute(sockets: Vec<std::net::TcpListener>, workers: usize) -> io::Result<Vec<Vec<std::net::TcpListener>>> {
    let mut by_worker: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for worker in sockets.len()..workers {
        by_worker[worker].push(sockets[worker % sockets.len()].try_clone()?);
    }
    for (at, socket) in sockets.into_iter().enumerate() {
        by_worker[at % workers].push(socket);
    }
    Ok(by_worker)
}

/// Checks whether [`bind`] can have this address. Binds and closes at once, without listening, so that no client's
/// connection is accepted and dropped.
pub fn probe(address: SocketAddr) -> io::Result<()> {
    open(address, false).map(drop)
}

fn open(address: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Otherwise a restart fails while connections of the last run are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // So that `[::]` and `0.0.0.0` are two listeners on every system.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(reuse_port)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Registers a listener with the runtime of the current thread.
pub fn into_tokio(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    TcpListener::from_std(listener)
}

/// Registers an accepted connection with the runtime of the current thread.
pub fn into_tokio_stream(stream: std::net::TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

/// Makes the close of a connection a reset, which leaves no TIME_WAIT in the kernel.
pub fn reset_on_drop(stream: &TcpStream) {
    // It fails only on a connection that is closed already.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Closes the connection within 20 s if the peer does not respond any more, whether or not data is on the way to it.
/// For connections that many clients share: all their requests would wait there.
pub fn set_fast_keepalive(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(DEAD_PEER_TIMEOUT / 2).with_interval(DEAD_PEER_TIMEOUT / 4);
    // As in [`set_options`].
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(2));
    let _ = SockRef::from(stream).set_tcp_user_timeout(Some(DEAD_PEER_TIMEOUT));
}

/// Sets TCP_NODELAY, because each write is a whole message or TLS record, and a keepalive that closes the connection
/// about two minutes after the peer stopped responding: nothing else ends an idle WebSocket. The connections that a
/// listener accepts have its options.
pub fn set_options(socket: &impl AsFd) {
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));
    let socket = SockRef::from(socket);
    // On a listener they do not fail, and on a connection only if it is closed, which the next read reports.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive.with_retries(4));
}
