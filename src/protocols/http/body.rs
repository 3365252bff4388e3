//! The one body type, for requests on their way up and responses on their way down.
//!
//! Frames pass through untouched, one at a time, as they arrive: a body is never collected. On the way a body can be
//! limited in size, must not fall silent for too long, and tells its [`Watch`] how it went.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use crate::limits::pace::{IdleTimer, MinRate, RateMeter};
use crate::protocols::http::poll_notes;
use crate::types::reject::{Reason, Reject, with_causes};

/// Sees a body go by. Dropping it without [`Watch::end`] means that the body was cut short.
pub trait Watch: Send + Sync {
    /// This data is about to go by. What is cut off its end does not.
    fn data(&mut self, data: &mut Bytes);
    /// The next bytes are not there yet.
    fn waiting(&mut self) {}
    /// These are about to go by.
    fn trailers(&mut self, _trailers: &mut HeaderMap) {}
    /// The body broke off.
    fn failed(&mut self, _error: &BodyError) {}
    /// This goes on for more than a moment, or brings more than a little. `true`: from now on, ask for its ending.
    fn lasts(&mut self) -> bool {
        false
    }
    /// Ready if the body has to end here, before its own end.
    fn poll_end(&mut self, _context: &mut Context<'_>) -> Poll<BodyEnd> {
        Poll::Pending
    }
    /// The source broke off. Was it to end anyway?
    fn end_of_broken(&mut self) -> Option<BodyEnd> {
        None
    }
    /// The body is complete.
    fn end(&mut self);
}

/// How a body ends before its own end.
pub enum BodyEnd {
    /// As if it were complete.
    Quiet,
    Data(Bytes),
    Trailers(Box<HeaderMap>),
    /// So that whoever reads it sees that it is not complete.
    Abort(Reason),
}

/// A body that is waited for so long after it was first waited for is one that lasts. Less than a second, as within one it may
/// have to end.
pub const MOMENT: Duration = Duration::from_millis(750);

/// So is one of more frames: also if it never has to be waited for, as its reader is slower than its source.
const FEW_FRAMES: u8 = 16;

/// A streamed body, an answer of our own, or nothing.
pub struct Body {
    inner: Inner,
    watch: Option<Box<dyn Watch>>,
    silence: Option<IdleTimer>,
    /// Is a reset without an error no end of it? See [`Body::that_must_end`].
    must_end: bool,
    meter: Option<Box<RateMeter>>,
    /// Bytes that may still come.
    allowance: u64,
    /// When it ends, complete or not.
    end: Option<Pin<Box<Sleep>>>,
    /// Those that went by, up to where it matters.
    frames: u8,
    /// The watch is to be asked for an ending.
    lasts: bool,
    /// What it broke off with before its first frame, to be told at the next poll.
    broken: Option<Box<BodyError>>,
}

impl Default for Body {
    fn default() -> Self {
        Body::empty()
    }
}

enum Inner {
    Empty,
    Full(Bytes),
    Incoming(Incoming),
}

/// Why a body broke off.
#[derive(Debug)]
pub enum BodyError {
    Http(hyper::Error),
    TooLarge,
    Silent(Duration),
    CutShort,
    Slow,
    /// The token that it stood on is good no longer, or the request has had its time.
    Ended(Reason),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Http(_) => f.write_str("the body cannot be read"),
            BodyError::TooLarge => f.write_str("the body is larger than allowed"),
            BodyError::Silent(limit) => write!(f, "no byte of the body for {}s", limit.as_secs()),
            BodyError::CutShort => f.write_str("the stream was reset before the end of the body"),
            BodyError::Slow => f.write_str("the body comes more slowly than allowed"),
            BodyError::Ended(reason) => write!(f, "the body was ended: {}", reason.message()),
        }
    }
}

impl BodyError {
    /// What whoever sent a request with this body is told.
    pub fn reject(&self) -> Reject {
        let reason = match self {
            BodyError::Http(_) | BodyError::CutShort => Reason::MalformedFraming,
            BodyError::TooLarge => Reason::BodyTooLarge,
            BodyError::Silent(_) => Reason::BodyTimeout,
            BodyError::Slow => Reason::BodyTooSlow,
            BodyError::Ended(reason) => *reason,
        };
        Reject::new(reason, with_causes(self))
    }
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BodyError::Http(error) => Some(error),
            _ => None,
        }
    }
}

impl Body {
    pub fn empty() -> Self {
        Body::of(Inner::Empty)
    }

    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Body::of(Inner::Full(bytes.into()))
    }

    /// A body from the wire. One that has no bytes is empty at once, and costs nothing further.
    pub fn incoming(body: Incoming) -> Self {
        if body.is_end_stream() { Body::empty() } else { Body::of(Inner::Incoming(body)) }
    }

    fn of(inner: Inner) -> Self {
        let (watch, silence, meter) = (None, None, None);
        let (must_end, allowance, end) = (false, u64::MAX, None);
        Body { inner, watch, silence, must_end, meter, allowance, end, frames: 0, lasts: false, broken: None }
    }

    /// Fails if no byte comes for so long while one is waited for.
    pub fn silent_for_at_most(mut self, limit: Duration) -> Self {
        if matches!(self.inner, Inner::Incoming(_)) {
            self.silence = Some(IdleTimer::of_at_most(limit).noticing(MOMENT));
        }
        self
    }

    /// Of HTTP/2: fails if the stream is reset before its end, also without an error. To hyper, NO_ERROR is an end, as it is
    /// behind a whole answer that came before its request was complete (RFC 9113 section 8.1); anywhere else, half a body would
    /// go on as a whole one.
    pub fn that_must_end(mut self, must_end: bool) -> Self {
        self.must_end = must_end;
        self
    }

    /// Fails if less than that comes while it is waited for.
    pub fn at_least(mut self, least: MinRate) -> Self {
        if self.silence.is_some() && least.rate > 0 {
            self.meter = Some(Box::new(RateMeter::of(least)));
        }
        self
    }

    /// Breaks off at that time.
    pub fn ending_at(mut self, end: Option<Instant>) -> Self {
        self.end = end.filter(|_| !self.is_end_stream()).map(|end| Box::pin(tokio::time::sleep_until(end.into())));
        self
    }

    /// Fails at the first byte past `limit`.
    pub fn at_most(mut self, limit: u64) -> Self {
        self.allowance = limit;
        self
    }

    /// Has this body been told to be of one length, and is that more than `limit`?
    pub fn is_known_to_exceed(&self, limit: u64) -> bool {
        self.size_hint().lower() > limit
    }

    pub fn watched_by(mut self, mut watch: Box<dyn Watch>) -> Self {
        if self.is_end_stream() {
            watch.end();
        }
        self.watch = Some(watch);
        self
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(ending) = self.poll_end(context) {
            return Poll::Ready(self.end_as(ending));
        }
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready()) {
            return Poll::Ready(self.end_as(BodyEnd::Abort(Reason::RequestTimeout)));
        }
        let polled = match &mut self.inner {
            Inner::Empty => Poll::Ready(None),
            Inner::Full(bytes) => {
                let frame = Frame::data(std::mem::take(bytes));
                self.inner = Inner::Empty;
                Poll::Ready(Some(Ok(frame)))
            }
            Inner::Incoming(body) => Pin::new(body).poll_frame(context),
        };
        match polled {
            Poll::Ready(Some(Ok(mut frame))) => {
                self.passed(&mut frame)?;
                poll_notes::record_passed(frame.data_ref().map_or(0, Bytes::len));
                // The last frame of a body of known length is its end, and so are trailers: nobody polls once more.
                if frame.is_trailers() || self.is_end_stream() {
                    self.ended();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                // The other direction of the same exchange may have been ended first, and have taken this one with it.
                match self.watch.as_mut().and_then(|watch| watch.end_of_broken()) {
                    Some(ending) => Poll::Ready(self.end_as(ending)),
                    None => Poll::Ready(Some(Err(BodyError::Http(error)))),
                }
            }
            Poll::Ready(None) if self.must_end && !self.has_ended() => Poll::Ready(Some(Err(BodyError::CutShort))),
            Poll::Ready(None) => {
                self.ended();
                Poll::Ready(None)
            }
            Poll::Pending => {
                if let Poll::Ready(error) = self.waits(context) {
                    return Poll::Ready(Some(Err(error)));
                }
                if !self.lasts && self.silence.as_ref().is_some_and(IdleTimer::has_lasted) && self.is_to_be_asked() {
                    // Asked now, so that it can wake whoever waits here.
                    return poll_notes::record_pending(self.poll_end(context).map(|ending| self.end_as(ending)));
                }
                poll_notes::record_pending(Poll::Pending)
            }
        }
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<BodyEnd> {
        match &mut self.watch {
            Some(watch) if self.lasts => watch.poll_end(context),
            _ => Poll::Pending,
        }
    }

    fn is_to_be_asked(&mut self) -> bool {
        self.lasts = self.watch.as_mut().is_some_and(|watch| watch.lasts());
        self.lasts
    }

    fn end_as(&mut self, ending: BodyEnd) -> Option<Result<Frame<Bytes>, BodyError>> {
        (self.inner, self.silence, self.lasts) = (Inner::Empty, None, false);
        let last = match ending {
            BodyEnd::Abort(reason) => return Some(Err(BodyError::Ended(reason))),
            BodyEnd::Quiet => None,
            BodyEnd::Data(data) => Some(Ok(Frame::data(data))),
            BodyEnd::Trailers(trailers) => Some(Ok(Frame::trailers(*trailers))),
        };
        // It never hears of an end: the body is not complete.
        self.watch = None;
        last
    }

    fn passed(&mut self, frame: &mut Frame<Bytes>) -> Result<(), BodyError> {
        let len = frame.data_ref().map_or(0, Bytes::len);
        self.allowance = self.allowance.checked_sub(len as u64).ok_or(BodyError::TooLarge)?;
        match (&mut self.silence, &mut self.meter) {
            (Some(silence), Some(meter)) => {
                if !meter.passed(len, silence) {
                    return Err(BodyError::Slow);
                }
            }
            (Some(silence), None) => silence.broken(),
            (None, _) => {}
        }
        if let Some(watch) = &mut self.watch {
            match frame.data_mut() {
                Some(data) => watch.data(data),
                None => {
                    if let Some(trailers) = frame.trailers_mut() {
                        watch.trailers(trailers);
                    }
                }
            }
        }
        self.frames = self.frames.saturating_add(1);
        if self.frames == FEW_FRAMES && !self.lasts {
            self.is_to_be_asked();
        }
        Ok(())
    }

    fn waits(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        if let Some(watch) = &mut self.watch {
            watch.waiting();
        }
        match &mut self.silence {
            Some(silence) => silence.poll(context).map(BodyError::Silent),
            None => Poll::Pending,
        }
    }

    /// Its stream has, or there is nothing more to come by its length.
    fn has_ended(&self) -> bool {
        self.is_end_stream() || self.size_hint().exact() == Some(0)
    }

    fn ended(&mut self) {
        if let Some(mut watch) = self.watch.take() {
            watch.end();
        }
        self.silence = None;
        self.meter = None;
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(error) = this.broken.take() {
            return Poll::Ready(Some(Err(*error)));
        }
        let polled = this.poll_next(context);
        let Poll::Ready(Some(Err(error))) = polled else { return polled };
        if let Some(watch) = &mut this.watch {
            watch.failed(&error);
        }
        if this.frames > 0 {
            return Poll::Ready(Some(Err(error)));
        }
        // hyper sends the head of an HTTP/1 message together with what comes first behind it, or not at all if that is an error. It
        // would look as if nobody had answered, and there are clients that then ask again, also by POST.
        this.broken = Some(Box::new(error));
        context.waker().wake_by_ref();
        poll_notes::record_pending(Poll::Pending)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Empty => self.broken.is_none(),
            Inner::Full(bytes) => bytes.is_empty(),
            Inner::Incoming(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Incoming(body) => body.size_hint(),
        }
    }
}

/// Reads a whole small body, of a call that the gateway answers itself.
pub async fn read(body: Body, limit: u64) -> Result<Bytes, Reject> {
    use http_body_util::BodyExt;
    if body.is_known_to_exceed(limit) {
        return Err(Reject::new(Reason::BodyTooLarge, format!("over {limit} bytes by its Content-Length")));
    }
    match body.at_most(limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(BodyError::TooLarge) => Err(Reject::new(Reason::BodyTooLarge, format!("over {limit} bytes"))),
        Err(error) => Err(error.reject()),
    }
}
