//! From an accepted connection to its first request: the limits on connections, the PROXY protocol header, TLS.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::proxied::{self, Client};
use super::shared::WorkerState;
use super::{connection, handshake};
use crate::gateway::client::{InFlightCount, Peer};
use crate::limits::penalty::PenaltyBox;
use crate::protocols::http::forwarded::Origin;
use crate::protocols::socket;
use crate::protocols::tls::{ServerTls, Sni};
use crate::telemetry::metrics::{Count, WorkerMetrics};

/// Serves one accepted connection until it ends.
pub(super) async fn serve(
    mut stream: TcpStream,
    address: SocketAddr,
    proxy_protocol: bool,
    tls: Option<Arc<ServerTls>>,
    state: Arc<WorkerState>,
    alive: mpsc::Sender<Infallible>,
) {
    let (shared, metrics) = (&state.shared, &state.worker.metrics);
    // A connection over the limit is closed at once. If it waited for a slot, honest clients would wait behind an
    // attacker's.
    let Ok(slot) = shared.connection_slots.clone().try_acquire_owned() else {
        return metrics.connections_rejected.inc();
    };
    let client = match proxy_protocol {
        false => Client::direct(address),
        true => match proxied::client(&mut stream, address, shared).await {
            Ok(client) => client,
            Err(error) => {
                metrics.proxy_protocol_failed.inc();
                return tracing::debug!(balancer = %address, %error, "closed: no valid PROXY protocol header");
            }
        },
    };
    let ip = client.address.ip();
    if shared.penalties.contains(ip, shared.gateway.load().clock.uptime()) {
        metrics.penalized_connections_rejected.inc();
        return socket::reset(stream);
    }
    let address_guard = shared.per_address.acquire(ip);
    // The limit per address does not apply to a trusted proxy, which brings the connections of many clients.
    if address_guard.is_none() && !(client.trusts_forwarded && shared.gateway.load().forwarding.trusts(ip)) {
        return metrics.address_connections_rejected.inc();
    }
    metrics.connections_opened.inc();
    let _closed = CloseCounter(metrics.clone());
    socket::set_options(&stream);
    let peer = Peer {
        address: client.address,
        trusts_forwarded: client.trusts_forwarded,
        origin: Origin::new(ip, tls.is_some()),
        sni: None,
        requests: Count::default(),
        in_flight: InFlightCount::default(),
        last_request: shared.settings.requests_per_connection,
        ended: false.into(),
        kept: Box::new((slot, address_guard, alive)),
    };
    let ended = match tls {
        None => serve_cleartext(stream, Arc::new(peer), state).await,
        Some(side) => serve_tls(stream, side, peer, state).await,
    };
    if let Err(error) = ended {
        tracing::debug!(client = %client.address, %error, "connection ended");
    }
}

async fn serve_tls(stream: TcpStream, side: Arc<ServerTls>, mut peer: Peer, state: Arc<WorkerState>) -> io::Result<()> {
    // Boxed: its memory is freed after the handshake, however long the connection is idle then.
    let stream = match Box::pin(handshake::tls(stream, &side, state.shared.settings.tls_handshake)).await {
        Ok(stream) => stream,
        Err(error) => {
            state.worker.metrics.handshakes_failed.inc();
            state.shared.penalize(&peer, PenaltyBox::failed_handshake);
            return Err(error);
        }
    };
    let session = stream.get_ref().1;
    peer.sni = session.server_name().map(|name| Sni { name: name.to_owned(), tls: side });
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    connection::serve(stream, is_http2, Arc::new(peer), state).await
}

async fn serve_cleartext(stream: TcpStream, peer: Arc<Peer>, state: Arc<WorkerState>) -> io::Result<()> {
    let is_http2 = tokio::select! {
        is_http2 = handshake::is_http2(&stream) => is_http2?,
        () = tokio::time::sleep(state.shared.settings.request_header) => return Err(io::ErrorKind::TimedOut.into()),
        () = state.shared.first_request_overdue() => return Ok(()),
    };
    connection::serve(stream, is_http2, peer, state).await
}

/// Counts the end of a connection, however it ends.
struct CloseCounter(Arc<WorkerMetrics>);

impl Drop for CloseCounter {
    fn drop(&mut self) {
        self.0.connections_closed.inc();
    }
}
