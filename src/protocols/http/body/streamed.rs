//! The body type itself.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::Sleep;

use super::error::BodyError;
use super::observer::{BodyEnd, BodyObserver};
use crate::limits::pace::{IdleTimer, MinRate, RateMeter};
use crate::protocols::http::poll_activity::{report_bytes, report_pending};
use crate::types::reject::Reason;

/// How long after its first wait a body counts as long-running. Less than a second, because a body has to end within a
/// second after its token.
pub const LONG_RUNNING_AFTER: Duration = Duration::from_millis(750);

/// A body with this many frames is long-running too: one with a slow reader and a fast source never waits.
const LONG_RUNNING_FRAMES: u8 = 16;

/// Takes the rest of a body that its reader drops before the end.
pub type OnRest = Arc<dyn Fn(Body) + Send + Sync>;

type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// A streamed body, a response of the gateway's own, or an empty body.
pub struct Body {
    inner: Inner,
    observer: Option<Box<dyn BodyObserver>>,
    idle_timer: Option<IdleTimer>,
    /// See [`Body::fail_if_truncated`].
    fails_if_truncated: bool,
    meter: Option<Box<RateMeter>>,
    /// How many more bytes may pass.
    remaining: u64,
    deadline: Option<Pin<Box<Sleep>>>,
    /// Frames that have passed; stops counting at 255.
    frames: u8,
    /// Whether the observer is to be polled for an end.
    polls_end: bool,
    /// An error before the first frame. It is returned at the next poll.
    delayed_error: Option<Box<BodyError>>,
    on_rest: Option<OnRest>,
}

enum Inner {
    Empty,
    Full(Bytes),
    /// A message and what follows it.
    WithTrailers(Bytes, Box<HeaderMap>),
    Trailers(Box<HeaderMap>),
    Incoming(Incoming),
    Pieces(mpsc::Receiver<Bytes>),
}

impl Default for Body {
    fn default() -> Self {
        Body::empty()
    }
}

impl Body {
    pub fn empty() -> Self {
        Body::of(Inner::Empty)
    }

    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Body::of(Inner::Full(bytes.into()))
    }

    /// A message that is not empty, with trailers after it.
    pub fn with_trailers(bytes: impl Into<Bytes>, trailers: HeaderMap) -> Self {
        Body::of(Inner::WithTrailers(bytes.into(), Box::new(trailers)))
    }

    /// A body from the network. If it has no bytes, it becomes an empty one, which needs no timers.
    pub fn incoming(body: Incoming) -> Self {
        if body.is_end_stream() { Body::empty() } else { Body::of(Inner::Incoming(body)) }
    }

    /// A body of the gateway's own that another task writes. It ends when the sender is dropped.
    pub fn of_pieces(pieces: mpsc::Receiver<Bytes>) -> Self {
        Body::of(Inner::Pieces(pieces))
    }

    /// If this body is dropped before its end, `on_rest` gets the rest of it.
    pub fn with_rest(mut self, on_rest: Option<&OnRest>) -> Self {
        if matches!(self.inner, Inner::Incoming(_)) {
            self.on_rest = on_rest.cloned();
        }
        self
    }

    fn of(inner: Inner) -> Self {
        Body {
            inner,
            observer: None,
            idle_timer: None,
            fails_if_truncated: false,
            meter: None,
            remaining: u64::MAX,
            deadline: None,
            frames: 0,
            polls_end: false,
            delayed_error: None,
            on_rest: None,
        }
    }

    /// Fails if no byte arrives for this long while the reader waits for one.
    pub fn with_idle_timeout(mut self, limit: Duration) -> Self {
        if matches!(self.inner, Inner::Incoming(_)) {
            self.idle_timer = Some(IdleTimer::new(limit).with_early(LONG_RUNNING_AFTER));
        }
        self
    }

    /// For HTTP/2: fails if the stream is reset with NO_ERROR before the end of the body. hyper takes that for a
    /// complete body, because a server may reset an upload after a complete response (RFC 9113 section 8.1). In any
    /// other place, half a body would pass for a whole one.
    pub fn fail_if_truncated(mut self, fails: bool) -> Self {
        self.fails_if_truncated = fails;
        self
    }

    /// Fails if it is slower than this while the reader waits for it. To be called after [`Body::with_idle_timeout`].
    pub fn with_min_rate(mut self, minimum: MinRate) -> Self {
        if self.idle_timer.is_some() && minimum.bytes_per_second > 0 {
            self.meter = Some(Box::new(RateMeter::new(minimum)));
        }
        self
    }

    /// Fails at this time.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        let deadline = if self.is_end_stream() { None } else { deadline };
        self.deadline = deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into())));
    }

    /// Fails at the first byte beyond `limit`.
    pub fn with_max_size(mut self, limit: u64) -> Self {
        self.limit_size(limit);
        self
    }

    /// As [`Body::with_max_size`].
    pub fn limit_size(&mut self, limit: u64) {
        self.remaining = limit;
    }

    /// Returns true if the length is known and is more than `limit`.
    pub fn is_known_to_exceed(&self, limit: u64) -> bool {
        self.size_hint().lower() > limit
    }

    pub fn with_observer(mut self, observer: Box<dyn BodyObserver>) -> Self {
        self.set_observer(observer);
        self
    }

    /// As [`Body::with_observer`], where the body stays where it is.
    pub fn set_observer(&mut self, mut observer: Box<dyn BodyObserver>) {
        if self.is_end_stream() {
            observer.on_complete();
        }
        self.observer = Some(observer);
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> PolledFrame {
        if let Poll::Ready(end) = self.poll_end(context) {
            return Poll::Ready(self.end_with(end));
        }
        if self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready()) {
            return Poll::Ready(self.end_with(BodyEnd::Abort(Reason::RequestTimeout)));
        }
        let polled = match &mut self.inner {
            Inner::Empty => Poll::Ready(None),
            Inner::Full(bytes) => {
                let frame = Frame::data(std::mem::take(bytes));
                self.inner = Inner::Empty;
                Poll::Ready(Some(Ok(frame)))
            }
            Inner::WithTrailers(bytes, trailers) => {
                let frame = Frame::data(std::mem::take(bytes));
                self.inner = Inner::Trailers(std::mem::take(trailers));
                Poll::Ready(Some(Ok(frame)))
            }
            Inner::Trailers(trailers) => {
                let frame = Frame::trailers(std::mem::take(trailers));
                self.inner = Inner::Empty;
                Poll::Ready(Some(Ok(frame)))
            }
            Inner::Incoming(body) => Pin::new(body).poll_frame(context),
            Inner::Pieces(pieces) => pieces.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes)))),
        };
        match polled {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(self.pass(frame))),
            Poll::Ready(Some(Err(error))) => {
                // The other direction of the same exchange may have been ended first, which breaks this one.
                match self.observer.as_mut().and_then(|observer| observer.end_after_error()) {
                    Some(end) => Poll::Ready(self.end_with(end)),
                    None => Poll::Ready(Some(Err(BodyError::Http(error)))),
                }
            }
            Poll::Ready(None) if self.fails_if_truncated && !self.has_ended() => {
                Poll::Ready(Some(Err(BodyError::Truncated)))
            }
            Poll::Ready(None) => {
                // A chunked body does not know by itself that it has ended.
                self.inner = Inner::Empty;
                self.complete();
                Poll::Ready(None)
            }
            Poll::Pending => self.wait(context),
        }
    }

    /// Checks and counts a frame.
    fn pass(&mut self, mut frame: Frame<Bytes>) -> Result<Frame<Bytes>, BodyError> {
        let len = frame.data_ref().map_or(0, Bytes::len);
        self.remaining = self.remaining.checked_sub(len as u64).ok_or(BodyError::TooLarge)?;
        match (&mut self.idle_timer, &mut self.meter) {
            (Some(timer), Some(meter)) => {
                if !meter.record(len as u64, timer) {
                    return Err(BodyError::TooSlow);
                }
            }
            (Some(timer), None) => timer.reset(),
            (None, _) => {}
        }
        if let Some(observer) = &mut self.observer {
            if let Some(data) = frame.data_mut() {
                observer.on_data(data);
            } else if let Some(trailers) = frame.trailers_mut() {
                observer.on_trailers(trailers)?;
            }
        }
        self.frames = self.frames.saturating_add(1);
        if self.frames == LONG_RUNNING_FRAMES && !self.polls_end {
            self.begin_polling_end();
        }
        report_bytes(frame.data_ref().map_or(0, Bytes::len));
        // hyper does not poll again after the last frame of a body of known length, or after trailers.
        if frame.is_trailers() || self.is_end_stream() {
            self.complete();
        }
        Ok(frame)
    }

    /// The next frame is not there yet.
    fn wait(&mut self, context: &mut Context<'_>) -> PolledFrame {
        if let Some(observer) = &mut self.observer {
            observer.on_pending();
        }
        if let Some(timer) = &mut self.idle_timer
            && let Poll::Ready(limit) = timer.poll(context)
        {
            return Poll::Ready(Some(Err(BodyError::IdleTimeout(limit))));
        }
        let is_long_running = self.idle_timer.as_ref().is_some_and(IdleTimer::has_passed_early);
        if is_long_running && !self.polls_end && self.begin_polling_end() {
            // Polled now, so that it can wake this task.
            return report_pending(self.poll_end(context).map(|end| self.end_with(end)));
        }
        report_pending(Poll::Pending)
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<BodyEnd> {
        match &mut self.observer {
            Some(observer) if self.polls_end => observer.poll_end(context),
            _ => Poll::Pending,
        }
    }

    fn begin_polling_end(&mut self) -> bool {
        self.polls_end = self.observer.as_mut().is_some_and(|observer| observer.on_long_running());
        self.polls_end
    }

    fn end_with(&mut self, end: BodyEnd) -> Option<Result<Frame<Bytes>, BodyError>> {
        self.leave_rest();
        (self.inner, self.idle_timer, self.polls_end) = (Inner::Empty, None, false);
        let last = match end {
            BodyEnd::Abort(reason) => return Some(Err(BodyError::Ended(reason))),
            BodyEnd::EndOfStream => None,
            BodyEnd::Data(data) => Some(Ok(Frame::data(data))),
            BodyEnd::Trailers(trailers) => Some(Ok(Frame::trailers(*trailers))),
        };
        // Dropped without `on_complete`, because the body is not complete.
        self.observer = None;
        last
    }

    /// Returns true if the stream has ended, or no more bytes can come by the body's length.
    fn has_ended(&self) -> bool {
        self.is_end_stream() || self.size_hint().exact() == Some(0)
    }

    fn leave_rest(&mut self) {
        let Some(on_rest) = self.on_rest.take() else { return };
        match std::mem::replace(&mut self.inner, Inner::Empty) {
            Inner::Incoming(rest) if !rest.is_end_stream() => on_rest(Body::of(Inner::Incoming(rest))),
            inner => self.inner = inner,
        }
    }

    fn complete(&mut self) {
        if let Some(mut observer) = self.observer.take() {
            observer.on_complete();
        }
        self.idle_timer = None;
        self.meter = None;
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.leave_rest();
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> PolledFrame {
        let this = self.get_mut();
        if let Some(error) = this.delayed_error.take() {
            return Poll::Ready(Some(Err(*error)));
        }
        let polled = this.poll_next(context);
        let Poll::Ready(Some(Err(error))) = polled else { return polled };
        if let Some(observer) = &mut this.observer {
            observer.on_error(&error);
        }
        if this.frames > 0 {
            return Poll::Ready(Some(Err(error)));
        }
        // hyper writes the head of an HTTP/1 message together with the first frame. If that is an error, it writes no
        // head, and the client sees a closed connection without a response: some clients then send the request again,
        // even a POST.
        this.delayed_error = Some(Box::new(error));
        context.waker().wake_by_ref();
        report_pending(Poll::Pending)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Empty => self.delayed_error.is_none(),
            Inner::Full(bytes) => bytes.is_empty(),
            Inner::Incoming(body) => body.is_end_stream(),
            Inner::WithTrailers(..) | Inner::Trailers(_) | Inner::Pieces(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Incoming(body) => body.size_hint(),
            // Without a length: no client of such a body needs one.
            Inner::WithTrailers(..) | Inner::Trailers(_) | Inner::Pieces(_) => SizeHint::default(),
        }
    }
}
