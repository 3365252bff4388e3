//! Connections that a balancer passes on: they begin with a header of the PROXY protocol, before TLS and HTTP.

use std::io;
use std::net::SocketAddr;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::{Shared, http1};
use crate::protocols::proxy_protocol::{self, LONGEST, Source};

/// Who is at the other end.
pub(super) struct Client {
    pub(super) address: SocketAddr,
    /// See [`crate::gateway::client::Peer`].
    pub(super) trusts_forwarded: bool,
}

/// Nobody passes connections on here.
impl From<SocketAddr> for Client {
    fn from(address: SocketAddr) -> Self {
        Client { address, trusts_forwarded: true }
    }
}

/// Reads whose connection it is, by the word of whoever opened it.
pub(super) async fn client(stream: &mut TcpStream, balancer: SocketAddr, shared: &Shared) -> io::Result<Client> {
    // Anybody else could be anybody else.
    if !shared.gateway.load().forwarding.trusts(balancer.ip()) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a PROXY protocol peer that [forwarding] does not trust",
        ));
    }
    let whose = tokio::select! {
        whose = header(stream) => whose?,
        () = tokio::time::sleep(shared.settings.tls_handshake) => return Err(io::ErrorKind::TimedOut.into()),
        () = shared.has_drained_for(http1::FIRST_REQUEST) => return Err(io::ErrorKind::TimedOut.into()),
    };
    Ok(match whose {
        Source::Proxied(address) => Client::from(address),
        Source::Local => Client { address: balancer, trusts_forwarded: false },
    })
}

/// Takes the header, and not a byte of what comes behind it.
async fn header(stream: &mut TcpStream) -> io::Result<Source> {
    let mut buffer = vec![0; LONGEST];
    let mut taken = 0;
    loop {
        let seen = match stream.peek(&mut buffer[taken..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => taken + more,
        };
        let malformed = |malformed: proxy_protocol::Malformed| io::Error::new(io::ErrorKind::InvalidData, malformed.0);
        let read = proxy_protocol::read(&buffer[..seen]).map_err(malformed)?;
        let end = read.map_or(seen, |(_, len)| len);
        stream.read_exact(&mut buffer[taken..end]).await?;
        match read {
            Some((whose, _)) => return Ok(whose),
            None => taken = end,
        }
    }
}
