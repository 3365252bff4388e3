//! A body, or a wait, that ends with a token. It is registered as a stream once it lasts, and ends as its protocol
//! allows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body::Body as HttpBody;
use tokio::time::{Sleep, sleep};

use super::basis::Held;
use super::drain_behavior::DrainBehavior;
use super::grpc::{self as messages, Messages};
use super::registry::{OpenStream, Streams};
use super::reroute::Opening;
use crate::protocols::boundaries::Boundaries;
use crate::protocols::grpc;
use crate::protocols::http::body::BodyEnd;
use crate::protocols::http::media_type;
use crate::telemetry::access_log::Record;
use crate::types::close_reason::CloseReason;
use crate::types::reject::Reason;

/// How long the message in flight may take to end: a stream ends within a second.
const LAST_MESSAGE: Duration = Duration::from_millis(500);

/// How a body ends early in a way that the client understands.
#[derive(Default)]
pub enum Termination {
    /// The connection is reset, so that the client does not take a part for the whole.
    #[default]
    Abort,
    /// The stream ends between two events. An EventSource uses GET and reconnects by itself. The stream of another
    /// method may have an end that is worth waiting for, as the response of a language model.
    EventStream { is_get: bool },
    /// Trailers with a gRPC status, between two messages.
    Grpc(Box<MessageTracker>),
    /// The same, in a message of the body.
    GrpcWeb(Box<MessageTracker>),
}

/// Tracks the messages of a body, and how long the last one may take.
#[derive(Default)]
pub struct MessageTracker {
    messages: Messages,
    /// Runs once the body must end.
    last: Option<Pin<Box<Sleep>>>,
}

impl Termination {
    /// Returns how the response to this method can end. With a Content-Length, it can only be reset. Only a gRPC call
    /// has a client that reads trailers.
    pub fn of<B: HttpBody>(method: &Method, is_grpc_call: bool, response: &Response<B>) -> Self {
        if response.body().size_hint().exact().is_some() {
            return Termination::Abort;
        }
        let headers = response.headers();
        match media_type::of(headers) {
            Some(_) if media_type::is_event_stream(headers) => {
                Termination::EventStream { is_get: *method == Method::GET }
            }
            Some(_) if is_grpc_call && grpc::is_grpc(headers) => Termination::Grpc(Box::default()),
            Some(_) if grpc::is_grpc_web(headers) => Termination::GrpcWeb(Box::default()),
            _ => Termination::Abort,
        }
    }

    fn tracker(&mut self) -> Option<&mut MessageTracker> {
        match self {
            Termination::Grpc(tracker) | Termination::GrpcWeb(tracker) => Some(tracker),
            Termination::Abort | Termination::EventStream { .. } => None,
        }
    }

    fn drain_behavior(&self) -> DrainBehavior {
        match self {
            Termination::Abort => DrainBehavior::CutOff,
            Termination::EventStream { is_get: true } => DrainBehavior::AtOnce,
            // A call may be nearly done. GOAWAY tells its client that the connection ends.
            Termination::EventStream { .. } | Termination::Grpc(_) | Termination::GrpcWeb(_) => DrainBehavior::AtLast,
        }
    }

    /// `is_whole`: no message is in flight. Returns `None` if the protocol has no way to end here and the body may go
    /// on.
    fn ending(&self, ended: CloseReason, is_whole: bool) -> Option<BodyEnd> {
        match (self, ended) {
            (Termination::EventStream { .. }, _) => Some(BodyEnd::EndOfStream),
            (Termination::Grpc(_), _) if is_whole => Some(BodyEnd::Trailers(Box::new(grpc::trailers(ended)))),
            (Termination::GrpcWeb(_), _) if is_whole => Some(BodyEnd::Data(messages::in_body(&grpc::trailers(ended)))),
            (_, CloseReason::Token(reason)) => Some(BodyEnd::Abort(reason)),
            // It is cut off when the process ends.
            _ => None,
        }
    }
}

/// Registered as a stream only once it lasts.
pub struct TokenBound {
    streams: Arc<Streams>,
    held: Held,
    termination: Termination,
    stream: Option<OpenStream>,
    ended: Option<CloseReason>,
}

impl TokenBound {
    pub fn by(held: Held, streams: &Arc<Streams>) -> Self {
        TokenBound { streams: streams.clone(), held, termination: Termination::default(), stream: None, ended: None }
    }

    /// The same token and certificate, for another body.
    pub fn another(&self) -> Self {
        TokenBound::by(self.held.clone(), &self.streams)
    }

    pub fn set_termination(&mut self, termination: Termination) {
        let drain_behavior = termination.drain_behavior();
        self.termination = termination;
        if let Some(stream) = &self.stream {
            stream.set_drain_behavior(drain_behavior);
        }
    }

    /// Returns true if the body may be silent: a stream sends nothing while nothing happens.
    pub fn may_be_idle(&self) -> bool {
        !matches!(self.termination, Termination::Abort)
    }

    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Registers the stream: it lasts. `record`: of the request of a response. `None` for an upload and for the wait
    /// for a response: a reload ends neither, as no request in flight.
    pub fn lasts(&mut self, record: Option<&Record>) {
        if self.ended.is_some() {
            return;
        }
        let opening = record.map(|record| Opening::of(record, false));
        match (&self.stream, opening) {
            (None, opening) => {
                self.stream = Some(self.streams.open(&self.held, opening, self.termination.drain_behavior()));
            }
            (Some(stream), Some(opening)) => stream.follow_routes(opening),
            (Some(_), None) => {}
        }
    }

    /// Returns why the stream was ended, if it was.
    pub fn ended(&self) -> Option<CloseReason> {
        self.ended
    }

    /// Returns when the token has ended.
    pub async fn end(&mut self) -> Reason {
        std::future::poll_fn(|context| match ready!(self.poll_ended(context)) {
            CloseReason::Token(reason) => Poll::Ready(reason),
            // There is no response yet that could end early.
            CloseReason::Draining | CloseReason::RequestTimeout => Poll::Pending,
        })
        .await
    }

    fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<CloseReason> {
        if let Some(reason) = self.ended {
            return Poll::Ready(reason);
        }
        match self.stream.as_mut().map(|stream| stream.poll_ended(context)) {
            Some(Poll::Ready(reason)) => Poll::Ready(*self.ended.insert(reason)),
            _ => Poll::Pending,
        }
    }

    /// Tracks data that passes. Once the body must end, it cuts off everything after the message in flight.
    pub fn follow(&mut self, data: &mut Bytes) {
        let has_ended = self.ended.is_some();
        let Some(MessageTracker { messages, .. }) = self.termination.tracker() else { return };
        if has_ended {
            let rest = messages.rest_of_unit(data);
            data.truncate(rest);
        } else {
            messages.follow(data);
        }
    }

    /// Ready when the body must end and can: between two messages, or after [`LAST_MESSAGE`].
    pub fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<BodyEnd> {
        let reason = ready!(self.poll_ended(context));
        let mut is_whole = true;
        if let Some(MessageTracker { messages, last }) = self.termination.tracker()
            && !messages.is_between()
        {
            let last = last.get_or_insert_with(|| Box::pin(sleep(LAST_MESSAGE)));
            ready!(last.as_mut().poll(context));
            is_whole = false;
        }
        self.termination.ending(reason, is_whole).map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns how the body ends if its source broke off because the same token has ended.
    pub fn end_of_broken(&mut self) -> Option<BodyEnd> {
        let check = || self.streams.check(&self.held).err().map(CloseReason::Token);
        let reason = self.ended.or_else(check)?;
        self.ended = Some(reason);
        let is_whole = self.termination.tracker().is_none_or(|tracker| tracker.messages.is_between());
        self.termination.ending(reason, is_whole)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};
    use http_body::{Frame, SizeHint};

    use super::*;
    use crate::gateway::streams::basis::TokenChecks;

    /// A body of this length, if it is known.
    struct OfLength(Option<u64>);

    impl HttpBody for OfLength {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(None)
        }

        fn size_hint(&self) -> SizeHint {
            self.0.map_or_else(SizeHint::default, SizeHint::with_exact)
        }
    }

    fn name(termination: &Termination) -> &'static str {
        match termination {
            Termination::Abort => "abort",
            Termination::EventStream { is_get: true } => "events of GET",
            Termination::EventStream { is_get: false } => "events",
            Termination::Grpc(_) => "grpc",
            Termination::GrpcWeb(_) => "grpc-web",
        }
    }

    fn of(method: &Method, is_grpc_call: bool, media_type: Option<&'static str>, length: Option<u64>) -> Termination {
        let mut response = Response::new(OfLength(length));
        if let Some(media_type) = media_type {
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        Termination::of(method, is_grpc_call, &response)
    }

    #[test]
    fn a_body_ends_as_its_protocol_allows() {
        for (method, is_grpc_call, media_type, expected) in [
            (Method::GET, false, Some("text/event-stream; charset=utf-8"), "events of GET"),
            (Method::POST, false, Some("text/event-stream"), "events"),
            (Method::POST, true, Some("application/grpc+proto"), "grpc"),
            (Method::POST, false, Some("application/grpc"), "abort"),
            (Method::POST, false, Some("application/grpc-web+proto"), "grpc-web"),
            (Method::POST, true, Some("text/html"), "abort"),
            (Method::GET, false, None, "abort"),
        ] {
            let termination = of(&method, is_grpc_call, media_type, None);
            assert_eq!(name(&termination), expected, "{method} {media_type:?}");
            let with_length = of(&method, is_grpc_call, media_type, Some(10));
            assert_eq!(name(&with_length), "abort", "{method} {media_type:?}");
        }
    }

    #[test]
    fn a_body_is_registered_once_and_not_after_its_end() {
        let metrics = Arc::default();
        let streams = Streams::new(TokenChecks::alone(), Arc::clone(&metrics));
        let mut ended = TokenBound::by(Held::default(), &streams);
        ended.ended = Some(CloseReason::Draining);
        ended.lasts(None);
        assert_eq!(metrics.streams_opened.get(), 0);
        let mut lasting = TokenBound::by(Held::default(), &streams);
        lasting.lasts(None);
        lasting.lasts(None);
        assert_eq!(metrics.streams_opened.get(), 1);
    }

    #[test]
    fn an_end_inside_a_message_is_an_error_or_waits() {
        let revoked = CloseReason::Token(Reason::Revoked);
        let draining = CloseReason::Draining;
        let name = |end: Option<BodyEnd>| match end {
            None => "goes on",
            Some(BodyEnd::EndOfStream) => "end",
            Some(BodyEnd::Data(_)) => "data",
            Some(BodyEnd::Trailers(_)) => "trailers",
            Some(BodyEnd::Abort(_)) => "error",
        };
        for (termination, whole, inside) in [
            (Termination::Abort, ["error", "goes on"], ["error", "goes on"]),
            (Termination::EventStream { is_get: true }, ["end", "end"], ["end", "end"]),
            (Termination::Grpc(Box::default()), ["trailers", "trailers"], ["error", "goes on"]),
            (Termination::GrpcWeb(Box::default()), ["data", "data"], ["error", "goes on"]),
        ] {
            let ends = |is_whole| [revoked, draining].map(|reason| name(termination.ending(reason, is_whole)));
            assert_eq!((ends(true), ends(false)), (whole, inside));
        }
    }
}
