//! The requests of one client connection: from hyper to the gateway, and the responses back.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use tokio::io::{AsyncRead, AsyncWrite};

use super::client_io::ClientStream;
use super::disconnect::DisconnectReason;
use super::exchange::Exchange;
use super::flood::{Flood, Violation};
use super::settings::FloodSettings;
use super::shared::{RecordOffence, WorkerState, sender};
use super::transport::Transport;
use super::{http1, http2, linger};
use crate::gateway::client::Peer;
use crate::gateway::source::SourceKind;
use crate::gateway::unreadable::{record_flood, record_malformed};
use crate::gateway::{Gateway, Handled};
use crate::limits::penalty::PenaltyBox;
use crate::protocols::http::body::Body;
use crate::protocols::http::{field_list, poll_activity};
use crate::types::limit::Limit;
use crate::types::per_worker::PaddedArc;

struct Connection {
    state: Arc<WorkerState>,
    exchange: Arc<Exchange>,
    peer: Arc<Peer>,
    is_http2: bool,
}

/// Serves the requests of a connection until it ends. The future is boxed with the protocol known: the task of the
/// connection would otherwise have room for both protocols, with and without TLS.
pub(super) fn serve<S>(
    stream: S,
    is_http2: bool,
    peer: Arc<Peer>,
    state: Arc<WorkerState>,
) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>>
where
    S: AsyncRead + AsyncWrite + Transport + Unpin + Send + Sync + 'static,
{
    let settings = state.shared.settings.load();
    let limits = (!is_http2).then(|| settings.head_limits());
    let share = state.linger_slots.share(peer.address.ip());
    let on_rest = is_http2.then(|| linger::discard_rests(share.clone()));
    // Boxed: it is moved into each of the connection's futures, and would have room in all of them.
    let mut stream = Box::new(ClientStream::new(stream, settings.write, settings.min_download_rate, limits, share));
    let flood = match sender(&peer, &state.shared.gateway.load()) {
        // Each client that leaves resets a call of its proxy.
        SourceKind::AskingProxy { .. } => FloodSettings { http2_resets: 0, ..settings.flood },
        _ => settings.flood,
    };
    let connection = Arc::new(Connection { state, exchange: stream.exchange(), peer, is_http2 });
    let serving = connection.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let connection = serving.clone();
        let in_flight = serving.peer.begin_request();
        let body = |incoming| Body::incoming(incoming).with_rest(on_rest.as_ref());
        let worker = serving.state.worker.number;
        let gateway = serving.state.shared.gateway.load().of(worker, PaddedArc::clone).clone();
        let mut request = request.map(body);
        async move {
            let _in_flight = in_flight;
            Ok::<_, Infallible>(connection.respond(&gateway, &mut request).await)
        }
    });
    if is_http2 {
        let connection = connection.clone();
        stream.guard_against_floods(flood, Box::new(move || connection.penalize(PenaltyBox::penalize)));
    }
    if is_http2 {
        // Boxed: hyper moves it four times on its way into a task.
        let service = service_fn(move |request| Box::pin(service.call(request)));
        return Box::pin(async move {
            let Connection { state, peer, .. } = &*connection;
            let ended = http2::drive(stream, service, &state.shared, peer, &state.worker.metrics).await;
            ended.map_err(|error| connection.failed(error))
        });
    }
    Box::pin(async move {
        let ended = http1::drive(stream, service, &connection.state, &connection.peer).await;
        ended.map_err(|error| connection.failed(error))
    })
}

impl Connection {
    async fn respond(&self, gateway: &Gateway, request: &mut Request<Body>) -> Response<Body> {
        let shared = &self.state.shared;
        let worker = &self.state.worker;
        let exchange = &self.exchange;
        let peer = &self.peer;
        if let Some(head) = exchange.malformed_after(peer.requests.get()) {
            self.penalize(PenaltyBox::malformed_request);
            return gateway.reject_malformed(&head.rejected, peer, worker);
        }
        let is_last = !self.is_http2 && is_last_request(request.version(), request.headers());
        let handled = {
            let mut handling = pin!(gateway.handle(request, peer, worker));
            poll_fn(|context| poll_activity::report_pending(handling.as_mut().poll(context))).await
        };
        let Handled { mut response, rejected, body_rejected } = handled;
        if body_rejected {
            self.penalize(PenaltyBox::rejected_body);
        }
        if let Some(wait) = shared.retry_delay.wait(rejected, exchange, || sender(peer, gateway).is_shared()) {
            worker.metrics.limit_hit(Limit::RetryDelay);
            let mut wait = Box::pin(wait);
            poll_fn(|context| poll_activity::report_pending(wait.as_mut().poll(context))).await;
        }
        // During the drain, the client sends its next request over another connection, to another process. A response
        // that comes before the end of its request ends the connection, too.
        let must_close = shared.is_draining() || exchange.is_incomplete(peer.requests.get());
        if !self.is_http2 && must_close && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if is_last || !self.is_http2 && has_close(response.headers()) {
            exchange.set_closes();
        }
        exchange.record_response(peer.requests.get(), response.status());
        response
    }

    fn failed(&self, error: hyper::Error) -> io::Error {
        self.record_error(&error, self.exchange.disconnected());
        io::Error::other(error)
    }

    fn record_error(&self, error: &hyper::Error, disconnected: Option<DisconnectReason>) {
        let shared = &self.state.shared;
        let worker = &self.state.worker;
        if error.is_parse() {
            self.penalize(PenaltyBox::malformed_request);
            record_malformed(&self.peer, worker, error, shared.gateway.load().clock.now());
        }
        // h2 reports the floods that it detects itself only here.
        let from_h2 = || DisconnectReason::from_h2(error).inspect(|_| self.penalize(PenaltyBox::penalize));
        match disconnected.or_else(from_h2) {
            Some(DisconnectReason::Violation(Violation::Flood(flood))) => {
                let limit = (flood == Flood::Resets).then_some(Limit::Http2Resets);
                record_flood(&self.peer, worker, error, limit, shared.gateway.load().clock.now());
            }
            Some(DisconnectReason::Silent) => worker.metrics.slow_clients_disconnected.inc(),
            Some(DisconnectReason::Slow) => {
                worker.metrics.slow_clients_disconnected.inc();
                worker.metrics.limit_hit(Limit::MinDownloadRate);
            }
            // As other errors of the protocol, which h2 finds.
            Some(DisconnectReason::Violation(Violation::NoSettings | Violation::StreamClosed)) | None => {}
        }
    }

    fn penalize(&self, record: RecordOffence) {
        self.state.shared.penalize(&self.peer, &self.state.worker.metrics, record);
    }
}

/// Returns true if the connection ends with the response to this request. An HTTP/1.0 client can request otherwise, but
/// not if the end of the connection is also the end of the response.
fn is_last_request(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_10 || has_close(headers)
}

fn has_close(headers: &HeaderMap) -> bool {
    field_list::contains(headers, &CONNECTION, "close")
}
