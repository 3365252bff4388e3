//! Connections from a balancer that begin with a PROXY protocol header, before TLS and HTTP.

use std::io;
use std::net::SocketAddr;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::shared::Shared;
use crate::protocols::proxy_protocol::{self, MAX_HEADER, Source};

/// The client of a connection.
pub(super) struct Client {
    pub(super) address: SocketAddr,
    /// See [`crate::gateway::client::Peer`].
    pub(super) trusts_forwarded: bool,
}

impl Client {
    pub(super) fn direct(address: SocketAddr) -> Self {
        Client { address, trusts_forwarded: true }
    }
}

/// Reads the client's address from the PROXY protocol header.
pub(super) async fn client(stream: &mut TcpStream, balancer: SocketAddr, shared: &Shared) -> io::Result<Client> {
    // An untrusted peer could claim any address.
    if !shared.gateway.load().fronts.forwarding.trusts(balancer.ip()) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the peer sends a PROXY protocol header but is not in [forwarding] trusted",
        ));
    }
    let time_limit = shared.settings.load().tls_handshake;
    let source = tokio::select! {
        source = header(stream) => source?,
        () = tokio::time::sleep(time_limit) => return Err(io::ErrorKind::TimedOut.into()),
        () = shared.first_request_overdue() => return Err(io::ErrorKind::TimedOut.into()),
    };
    Ok(match source {
        Source::Proxied(address) => Client::direct(address),
        Source::Local => Client { address: balancer, trusts_forwarded: false },
    })
}

/// Takes the header from the stream, and no byte after it.
async fn header(stream: &mut TcpStream) -> io::Result<Source> {
    let mut buffer = vec![0; MAX_HEADER];
    let mut taken = 0;
    loop {
        let seen = match stream.peek(&mut buffer[taken..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => taken + more,
        };
        let malformed = |malformed: proxy_protocol::Malformed| io::Error::new(io::ErrorKind::InvalidData, malformed.0);
        let read = proxy_protocol::parse(&buffer[..seen]).map_err(malformed)?;
        let end = read.map_or(seen, |(_, len)| len);
        stream.read_exact(&mut buffer[taken..end]).await?;
        match read {
            Some((source, _)) => return Ok(source),
            None => taken = end,
        }
    }
}
