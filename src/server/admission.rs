//! From an accepted connection to its first request: the limits on connections, the PROXY protocol header, TLS.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

use super::handshake::{ClientTls, Connected};
use super::idle_list::Idle;
use super::proxied::{self, Client};
use super::shared::WorkerState;
use super::{connection, handshake};
use crate::gateway::client::{InFlightCount, Peer};
use crate::gateway::source::SourceKind;
use crate::limits::penalty::PenaltyBox;
use crate::limits::per_address::AddressGuard;
use crate::limits::reserve::Reserve;
use crate::protocols::coalescing_stream::CoalescingStream;
use crate::protocols::http::forwarded::ForwardedClient;
use crate::protocols::socket;
use crate::protocols::tls::{PeerCertificate, ServerTls, Session};
use crate::telemetry::metrics::{Count, WorkerMetrics};
use crate::tokens::dpop::PublicUrl;
use crate::types::limit::Limit;

/// Where a connection comes from, and what its listener says about it.
pub(super) struct Arrival {
    pub(super) address: SocketAddr,
    /// See [`crate::server::ListenerSettings`].
    pub(super) proxy_protocol: bool,
    pub(super) public_url: Option<Arc<PublicUrl>>,
}

/// A connection that has begun: the next that its client sends is a request.
struct Begun {
    stream: ClientSocket,
    is_http2: bool,
    peer: Arc<Peer>,
    _closed: CloseCounter,
}

enum ClientSocket {
    Cleartext(CoalescingStream),
    Tls(Box<ClientTls>),
}

/// Serves one accepted connection until it ends.
pub(super) fn serve(
    stream: TcpStream,
    arrival: Arrival,
    tls: Option<Arc<ArcSwap<ServerTls>>>,
    state: Arc<WorkerState>,
    alive: mpsc::Sender<Infallible>,
) -> impl Future<Output = ()> + Send {
    // Boxed: its memory is freed before the first request, however long the connection is open then.
    let beginning = Box::pin(begin(stream, arrival, tls, state.clone(), alive));
    async move {
        let Some(Begun { stream, is_http2, peer, _closed }) = beginning.await else { return };
        let serving = match stream {
            ClientSocket::Cleartext(stream) => connection::serve(stream, is_http2, peer.clone(), state),
            ClientSocket::Tls(stream) => connection::serve(stream, is_http2, peer.clone(), state),
        };
        if let Err(error) = serving.await {
            log_end(peer.address, &error);
        }
    }
}

/// Does all that comes before the first request. `None` if the connection ends before that.
async fn begin(
    mut stream: TcpStream,
    Arrival { address, proxy_protocol, public_url }: Arrival,
    tls: Option<Arc<ArcSwap<ServerTls>>>,
    state: Arc<WorkerState>,
    alive: mpsc::Sender<Infallible>,
) -> Option<Begun> {
    let state = &*state;
    let slot = take_slot(state)?;
    let mut client = Client::direct(address);
    if proxy_protocol {
        client = named_client(&mut stream, address, state).await?;
    }
    let address_guard = admit(&client, &stream, state).ok()?;
    let number = address_guard.as_ref().map_or(0, AddressGuard::number);
    let idle = state.shared.idle.enter(Instant::now());
    let metrics = &state.worker.metrics;
    metrics.connections_opened.inc();
    let _closed = CloseCounter(metrics.clone());
    let mut peer = Peer {
        address: client.address,
        trusts_forwarded: client.trusts_forwarded,
        client: ForwardedClient::new(client.address.ip(), tls.is_some()),
        sni: None,
        listener: None,
        tls: None,
        certificate: None,
        public_url,
        requests: Count::default(),
        in_flight: InFlightCount::default(),
        last_request: state.shared.settings.load().requests_per_connection,
        ended: false.into(),
        kept: Box::new((slot, address_guard, alive)),
    };
    let turn = state.crowd.begin(number);
    let begun = match tls {
        None => begin_cleartext(stream, idle, turn, state).await,
        Some(active) => begin_tls(stream, &active, &mut peer, idle, turn, state).await,
    };
    let begun = begun.unwrap_or_else(|error| {
        log_end(client.address, &error);
        None
    });
    let (stream, is_http2) = begun?;
    Some(Begun { stream, is_http2, peer: Arc::new(peer), _closed })
}

fn log_end(client: SocketAddr, error: &io::Error) {
    tracing::debug!(%client, %error, "connection ended");
}

/// Takes one of `limits.connections`. If there are none, the connection is closed at once: if it waited for a slot,
/// honest clients would wait behind an attacker's.
fn take_slot(state: &WorkerState) -> Option<OwnedSemaphorePermit> {
    let slot = state.shared.connection_slots.clone().try_acquire_owned().ok();
    if slot.is_none() {
        state.worker.metrics.connections_rejected.inc();
        if state.shared.idle.close_longest_for_rejected() {
            state.worker.metrics.idle_connections_closed.inc();
        }
    }
    slot
}

/// Reads the PROXY protocol header. `None` if there is none.
async fn named_client(stream: &mut TcpStream, balancer: SocketAddr, state: &WorkerState) -> Option<Client> {
    match proxied::client(stream, balancer, &state.shared).await {
        Ok(client) => Some(client),
        Err(error) => {
            state.worker.metrics.proxy_protocol_failed.inc();
            tracing::debug!(%balancer, %error, "closed: no valid PROXY protocol header");
            None
        }
    }
}

/// The address of a client may not have another connection.
struct Rejected;

/// Checks what the address of a client may have.
fn admit(client: &Client, stream: &TcpStream, state: &WorkerState) -> Result<Option<AddressGuard>, Rejected> {
    let shared = &state.shared;
    let metrics = &state.worker.metrics;
    let ip = client.address.ip();
    let gateway = shared.gateway.load();
    if shared.penalties.contains(ip, gateway.clock.uptime()) {
        metrics.penalized_connections_rejected.inc();
        socket::reset_on_drop(stream);
        return Err(Rejected);
    }
    match gateway.fronts.sender(ip, client.trusts_forwarded) {
        // A proxy brings the connections of many clients, so nothing is counted for its address.
        SourceKind::Balancer | SourceKind::TrustedProxy | SourceKind::AskingProxy { .. } => {
            make_room(state);
            return Ok(None);
        }
        SourceKind::Client | SourceKind::ProvenProxy => {}
    }
    let free = shared.connection_slots.available_permits();
    let is_reserved = free < shared.reserved_connections();
    let limit = if is_reserved { Reserve::share_of_free(free) } else { usize::MAX };
    let Some(guard) = shared.per_address.acquire_below(limit, ip) else {
        metrics.address_connections_rejected.inc();
        if is_reserved {
            metrics.limit_hit(Limit::ReservePercent);
        }
        return Err(Rejected);
    };
    make_room(state);
    Ok(Some(guard))
}

/// When few of `limits.connections` are left, each new connection closes the one that is idle for the longest time.
fn make_room(state: &WorkerState) {
    let shared = &state.shared;
    let is_nearly_full = shared.connection_slots.available_permits() < shared.reserved_connections().max(1);
    if is_nearly_full && shared.idle.close_longest() {
        state.worker.metrics.idle_connections_closed.inc();
    }
}

/// Does the handshake, and notes in `peer` what it has shown.
async fn begin_tls(
    stream: TcpStream,
    active: &Arc<ArcSwap<ServerTls>>,
    peer: &mut Peer,
    idle: Idle,
    turn: impl Future<Output = ()>,
    state: &WorkerState,
) -> io::Result<Option<(ClientSocket, bool)>> {
    let side = active.load_full();
    let time_limit = state.shared.settings.load().tls_handshake;
    let ended = tokio::select! {
        biased;
        ended = handshake::tls(stream, &side, turn, time_limit) => ended,
        () = idle.must_close() => return Err(io::ErrorKind::ConnectionAborted.into()),
    };
    drop(idle);
    let stream = match ended {
        Ok(Connected::Client(stream)) => stream,
        Ok(Connected::Validated) => {
            side.acme.iter().for_each(|names| names.certificates.count_validation());
            return Ok(None);
        }
        Err(failure) => {
            state.worker.metrics.handshakes_failed.inc();
            state.shared.penalize(peer, &state.worker.metrics, PenaltyBox::failed_handshake);
            // Boxed: it has a buffer, which few handshakes need.
            return Err(Box::pin(failure.tell()).await);
        }
    };
    let session = stream.get_ref().1;
    peer.tls = Session::of(session);
    peer.certificate = PeerCertificate::of(session, &side, active).map(Arc::new);
    if peer.certificate.is_none() && side.requires_certificates() {
        // rustls has failed the handshake already, unless it has an error.
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    peer.sni = session.server_name().map(str::to_owned);
    peer.listener = Some(side);
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    Ok(Some((ClientSocket::Tls(stream), is_http2)))
}

async fn begin_cleartext(
    stream: TcpStream,
    idle: Idle,
    turn: impl Future<Output = ()>,
    state: &WorkerState,
) -> io::Result<Option<(ClientSocket, bool)>> {
    let beginning = async {
        let is_http2 = handshake::is_http2(&stream).await?;
        turn.await;
        io::Result::Ok(is_http2)
    };
    let time_limit = state.shared.settings.load().request_header;
    let is_http2 = tokio::select! {
        is_http2 = beginning => is_http2?,
        () = tokio::time::sleep(time_limit) => return Err(io::ErrorKind::TimedOut.into()),
        () = state.shared.first_request_overdue() => return Ok(None),
        () = idle.must_close() => return Ok(None),
    };
    Ok(Some((ClientSocket::Cleartext(CoalescingStream::new(stream)), is_http2)))
}

/// Counts the end of a connection, however it ends.
struct CloseCounter(Arc<WorkerMetrics>);

impl Drop for CloseCounter {
    fn drop(&mut self) {
        self.0.connections_closed.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, C, D, E, F>(_: fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    /// What a handshake needs, or the alert of one that failed, is several KiB. Millions of idle connections would hold
    /// it.
    #[test]
    fn a_connection_holds_nothing_of_its_beginning() {
        let size = size_of_future(serve);
        assert!(size <= 256, "{size} bytes");
    }
}
