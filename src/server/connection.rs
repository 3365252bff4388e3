//! One client connection, from the handshake to its end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use rustls::ProtocolVersion;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::client_io::{ClientStream, Readable};
use super::disconnect::DisconnectReason;
use super::handshake_io::HandshakeBuffer;
use super::proxied::{self, Client};
use super::{Shared, serve};
use crate::gateway::client::Peer;
use crate::gateway::unreadable::{record_flood, record_malformed, reject_malformed};
use crate::gateway::worker::Worker;
use crate::gateway::{Gateway, Handled};
use crate::limits::penalty::PenaltyBox;
use crate::protocols::http::body::Body;
use crate::protocols::http::framing::Limits;
use crate::protocols::http::headers::Origin;
use crate::protocols::http::{field_list, poll_notes};
use crate::protocols::socket;
use crate::protocols::tls::{ServerSide, Sni};
use crate::telemetry::metrics::{Count, WorkerMetrics};
use crate::types::clock::UnixTime;

/// What an HTTP/2 client with prior knowledge begins with (RFC 9113 section 3.4). No HTTP/1 method is `PRI`.
const PREFACE_START: &[u8] = b"PRI";

/// Serves one accepted connection to its end.
pub(super) async fn serve(
    mut stream: TcpStream,
    address: SocketAddr,
    proxy_protocol: bool,
    tls: Option<Arc<ServerSide>>,
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    alive: mpsc::Sender<Infallible>,
) {
    // Over the limit a connection is closed at once: waiting in the queue would make honest clients pay for the crowd.
    let Ok(place) = shared.places.clone().try_acquire_owned() else {
        return worker.metrics.connections_rejected.inc();
    };
    let client = match proxy_protocol {
        false => Client::from(address),
        true => match proxied::client(&mut stream, address, &shared).await {
            Ok(client) => client,
            Err(error) => {
                worker.metrics.proxy_protocol_failed.inc();
                return tracing::debug!(balancer = %address, %error, "a connection that nobody passed on");
            }
        },
    };
    let Client { address, trusts_forwarded } = client;
    if shared.penalties.has(address.ip(), shared.gateway.load().clock.now()) {
        worker.metrics.penalized_connections_rejected.inc();
        return socket::reset(stream);
    }
    // A proxy that is trusted brings the connections of many.
    let member = shared.crowd.acquire(address.ip());
    if member.is_none() && !(trusts_forwarded && shared.gateway.load().forwarding.trusts(address.ip())) {
        return worker.metrics.address_connections_rejected.inc();
    }
    worker.metrics.connections_opened.inc();
    let _closed = ConnectionGuard(worker.metrics.clone());
    socket::tune(&stream);
    let origin = Origin::new(address.ip(), tls.is_some());
    let kept = Box::new((place, member, alive));
    let peer = Peer {
        address,
        trusts_forwarded,
        origin,
        sni: None,
        requests: Count::default(),
        last_request: shared.settings.requests_per_connection,
        ended: AtomicBool::new(false),
        kept,
    };
    let ended = match tls {
        None => serve_cleartext(stream, Arc::new(peer), shared, &worker).await,
        Some(side) => serve_tls(stream, side, peer, shared, &worker).await,
    };
    if let Err(error) = ended {
        tracing::debug!(client = %address, %error, "connection ended");
    }
}

async fn serve_tls(
    stream: TcpStream,
    side: Arc<ServerSide>,
    mut peer: Peer,
    shared: Arc<Shared>,
    worker: &Arc<Worker>,
) -> io::Result<()> {
    // Boxed: its room is given back when it is over, however long the connection lies idle afterwards.
    let stream = match Box::pin(shake_hands(stream, &side, shared.settings.tls_handshake)).await {
        Ok(stream) => stream,
        Err(error) => {
            worker.metrics.handshakes_failed.inc();
            unless_it_brings_many(&shared, &peer, PenaltyBox::failed_handshake);
            return Err(error);
        }
    };
    let session = stream.get_ref().1;
    peer.sni = session.server_name().map(|name| Sni { name: name.to_owned(), side });
    let http2 = session.alpn_protocol() == Some(b"h2");
    serve_http(stream, http2, Arc::new(peer), shared, worker).await
}

/// Boxed, as the session would lie in every future that it is handed to, twice in each.
async fn shake_hands(
    stream: TcpStream,
    side: &ServerSide,
    time: Duration,
) -> io::Result<Box<TlsStream<HandshakeBuffer>>> {
    let handshake = TlsAcceptor::from(side.config.clone()).accept(HandshakeBuffer::new(stream));
    let mut stream = Box::new(tokio::time::timeout(time, handshake).await??);
    let (socket, session) = stream.get_mut();
    let has_asked = session.process_new_packets().is_ok_and(|read| read.plaintext_bytes_to_read() > 0);
    socket.uncork(session.protocol_version() == Some(ProtocolVersion::TLSv1_3), has_asked);
    Ok(stream)
}

async fn serve_cleartext(
    stream: TcpStream,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    worker: &Arc<Worker>,
) -> io::Result<()> {
    let http2 = tokio::select! {
        seen = begins_with_preface(&stream) => seen?,
        () = tokio::time::sleep(shared.settings.request_header) => return Err(io::ErrorKind::TimedOut.into()),
        () = shared.has_drained_for(serve::FIRST_REQUEST) => return Ok(()),
    };
    serve_http(stream, http2, peer, shared, worker).await
}

/// Looks at the first three bytes without taking them.
async fn begins_with_preface(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; PREFACE_START.len()];
    let mut pause = Duration::from_millis(1);
    loop {
        let seen = stream.peek(&mut start).await?;
        if seen == 0 || seen == start.len() || start[..seen] != PREFACE_START[..seen] {
            return Ok(start == PREFACE_START);
        }
        // The rest of three bytes is a moment away; peeking tells of these two again at once. Whoever lets us wait for
        // it on purpose is looked after ever more rarely.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

async fn serve_http<S>(
    stream: S,
    http2: bool,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    worker: &Arc<Worker>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Readable + Unpin + Send + 'static,
{
    let limits = Limits {
        request_header_size: shared.settings.request_header_size,
        request_header_count: shared.settings.request_header_count,
    };
    let mut stream =
        ClientStream::new(stream, shared.settings.write, shared.settings.min_download_rate, (!http2).then_some(limits));
    let (asking, by, serving) = (peer.clone(), worker.clone(), Arc::new((shared.clone(), stream.exchange())));
    let service = service_fn(move |request: Request<Incoming>| {
        let (gateway, peer, worker) = (serving.0.gateway.load_full(), asking.clone(), by.clone());
        let (serving, mut request) = (serving.clone(), request.map(Body::incoming));
        async move {
            let (shared, exchange) = &*serving;
            if let Some(fault) = exchange.refused_after(peer.requests.get()) {
                unless_it_brings_many(shared, &peer, PenaltyBox::malformed_request);
                let now = gateway.clock.now();
                return Ok(reject_malformed(&peer, &worker, fault, gateway.token_calls.challenge(), now));
            }
            let is_last = !http2 && ends_connection(request.version(), request.headers());
            let mut handling = pin!(gateway.handle(&mut request, &peer, &worker));
            let handled = poll_fn(|context| poll_notes::record_pending(handling.as_mut().poll(context))).await;
            let Handled { mut response, rejected, body_rejected } = handled;
            if body_rejected {
                unless_it_brings_many(shared, &peer, PenaltyBox::rejected_body);
            }
            if let Some(wait) = shared.retry_delay.wait(rejected, exchange, || is_shared_proxy(&peer, &gateway)) {
                let mut wait = Box::pin(wait);
                poll_fn(|context| poll_notes::record_pending(wait.as_mut().poll(context))).await;
            }
            if !http2 && shared.is_draining() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                // So that the client asks elsewhere next.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            if is_last || !http2 && says_close(response.headers()) {
                exchange.ends();
            }
            exchange.answers(peer.requests.get(), response.status());
            Ok::<Response<Body>, Infallible>(response)
        }
    });
    if http2 {
        let (shared, peer) = (shared.clone(), peer.clone());
        stream.guard(shared.settings.flood, Box::new(move || unless_it_brings_many(&shared, &peer, PenaltyBox::pause)));
    }
    let verdict = stream.verdict();
    // Boxed once a connection: neither has to have room for the other, nor is it moved from one function to the next.
    let ended = if http2 {
        Box::pin(serve::http2(stream, service, &shared, &peer, &worker.metrics)).await
    } else {
        Box::pin(serve::http1(stream, service, &shared, &peer)).await
    };
    ended.map_err(|error| {
        if error.is_parse() {
            unless_it_brings_many(&shared, &peer, PenaltyBox::malformed_request);
            record_malformed(&peer, worker, &error, shared.gateway.load().clock.now());
        }
        // Of what h2 counts itself, this is the first that we hear.
        let by_h2 =
            || DisconnectReason::by_h2(&error).inspect(|_| unless_it_brings_many(&shared, &peer, PenaltyBox::pause));
        match verdict.get().copied().or_else(by_h2) {
            Some(DisconnectReason::Flood) => {
                record_flood(&peer, worker, &error, shared.gateway.load().clock.now());
            }
            Some(DisconnectReason::Silent | DisconnectReason::Slow) => worker.metrics.slow_clients_disconnected.inc(),
            None => {}
        }
        io::Error::other(error)
    })
}

/// Does the connection end with the answer to this request? HTTP/1.0 may have it otherwise, but not where the end of the answer
/// is the connection's.
fn ends_connection(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_10 || says_close(headers)
}

fn says_close(headers: &HeaderMap) -> bool {
    field_list::has(headers, &CONNECTION, "close")
}

/// Whoever brings the connections of others must not be kept from it by one of them.
fn unless_it_brings_many(shared: &Shared, peer: &Peer, pause: fn(&PenaltyBox, IpAddr, UnixTime)) {
    let gateway = shared.gateway.load();
    if !is_shared_proxy(peer, &gateway) {
        pause(&shared.penalties, peer.address.ip(), gateway.clock.now());
    }
}

/// Is it a proxy's, that is trusted, or a balancer's that does not say whose it is?
fn is_shared_proxy(peer: &Peer, gateway: &Gateway) -> bool {
    !peer.trusts_forwarded || gateway.forwarding.trusts(peer.address.ip())
}

/// Counts a connection's end, however it comes.
struct ConnectionGuard(Arc<WorkerMetrics>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections_closed.inc();
    }
}
