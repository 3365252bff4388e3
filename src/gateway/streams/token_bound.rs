//! A body, or a wait, that stands on a token: entered as a stream once it lasts, and ended in its own manner.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body::Body as HttpBody;
use tokio::time::{Sleep, sleep};

use super::grpc::{self as messages, Messages};
use super::{DrainBehavior, OpenStream, Streams};
use crate::auth::token_cache::CachedToken;
use crate::protocols::boundaries::Boundaries;
use crate::protocols::grpc;
use crate::protocols::http::body::BodyEnd;
use crate::protocols::http::media_type;
use crate::types::close_reason::CloseReason;
use crate::types::reject::Reason;

/// For the rest of a message: what is ended has ended within a second.
const LAST_MESSAGE: Duration = Duration::from_millis(500);

/// What ends it in a way that its reader understands.
#[derive(Default)]
pub enum Termination {
    /// Nothing does: it breaks off, so that nobody takes a part for the whole.
    #[default]
    Abort,
    /// An EventSource connects again whenever its stream ends, and is refused then. It asks by GET; what was asked for in
    /// another way may have an end that is worth waiting for, as an answer that is written while it is thought of.
    EventStream {
        asked_by_get: bool,
    },
    Grpc(Box<MessageTracker>),
    GrpcWeb(Box<MessageTracker>),
}

/// The messages of a body, and how long the last one may take.
#[derive(Default)]
pub struct MessageTracker {
    messages: Messages,
    /// Runs once it has to end.
    last: Option<Pin<Box<Sleep>>>,
}

impl Termination {
    /// That of an answer to this method. One whose length was told has no end before its end.
    pub fn of<B: HttpBody>(method: &Method, response: &Response<B>) -> Self {
        if response.body().size_hint().exact().is_some() {
            return Termination::Abort;
        }
        let headers = response.headers();
        match media_type::of(headers) {
            Some(_) if media_type::is_event_stream(headers) => {
                Termination::EventStream { asked_by_get: *method == Method::GET }
            }
            Some(_) if grpc::is_grpc(headers) => Termination::Grpc(Box::default()),
            Some(_) if grpc::is_grpc_web(headers) => Termination::GrpcWeb(Box::default()),
            _ => Termination::Abort,
        }
    }

    fn following(&mut self) -> Option<&mut MessageTracker> {
        match self {
            Termination::Grpc(following) | Termination::GrpcWeb(following) => Some(following),
            Termination::Abort | Termination::EventStream { .. } => None,
        }
    }

    fn parting(&self) -> DrainBehavior {
        match self {
            Termination::Abort => DrainBehavior::Unsaid,
            Termination::EventStream { asked_by_get: true } => DrainBehavior::AtOnce,
            // A call that is nearly done is worth waiting for; that its connection ends, its client knows from GOAWAY.
            Termination::EventStream { .. } | Termination::Grpc(_) | Termination::GrpcWeb(_) => DrainBehavior::AtLast,
        }
    }

    /// `is_whole`: no message is under way. `None` if nothing can be said, and it need not break off now.
    fn ending(&self, ended: CloseReason, is_whole: bool) -> Option<BodyEnd> {
        match (self, ended) {
            (Termination::EventStream { .. }, _) => Some(BodyEnd::Quiet),
            (Termination::Grpc(_), _) if is_whole => Some(BodyEnd::Trailers(Box::new(grpc::trailers(ended)))),
            (Termination::GrpcWeb(_), _) if is_whole => Some(BodyEnd::Data(messages::in_body(&grpc::trailers(ended)))),
            (_, CloseReason::Token(reason)) => Some(BodyEnd::Abort(reason)),
            // It is cut off with the process.
            _ => None,
        }
    }
}

/// Not entered before it lasts.
pub struct TokenBound {
    streams: Arc<Streams>,
    /// `None`: nobody's, as on a public route.
    known: Option<Arc<CachedToken>>,
    manner: Termination,
    live: Option<OpenStream>,
    ended: Option<CloseReason>,
}

impl TokenBound {
    pub fn by(known: Option<Arc<CachedToken>>, streams: &Arc<Streams>) -> Self {
        TokenBound { streams: streams.clone(), known, manner: Termination::default(), live: None, ended: None }
    }

    /// The same token, holding something else.
    pub fn another(&self) -> Self {
        TokenBound::by(self.known.clone(), &self.streams)
    }

    pub fn set_termination(&mut self, manner: Termination) {
        let parting = manner.parting();
        self.manner = manner;
        if let Some(live) = &self.live {
            live.parts(parting);
        }
    }

    /// Is silence a part of what it is? A stream says nothing while nothing happens.
    pub fn may_be_idle(&self) -> bool {
        !matches!(self.manner, Termination::Abort)
    }

    pub fn cached(&self) -> Option<&Arc<CachedToken>> {
        self.known.as_ref()
    }

    /// It goes on for longer than a moment.
    pub fn lasts(&mut self) {
        if self.live.is_none() && self.ended.is_none() {
            self.live = Some(self.streams.open(self.known.as_ref(), self.manner.parting()));
        }
    }

    /// Why it was ended, if it was.
    pub fn ended(&self) -> Option<CloseReason> {
        self.ended
    }

    /// Returns when its token has ended.
    pub async fn end(&mut self) -> Reason {
        std::future::poll_fn(|context| match ready!(self.poll_ended(context)) {
            CloseReason::Token(reason) => Poll::Ready(reason),
            // Where there is no answer yet, nothing is told.
            CloseReason::Draining | CloseReason::OutOfTime => Poll::Pending,
        })
        .await
    }

    fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<CloseReason> {
        if let Some(ended) = self.ended {
            return Poll::Ready(ended);
        }
        match self.live.as_mut().map(|live| live.poll_ended(context)) {
            Some(Poll::Ready(ended)) => Poll::Ready(*self.ended.insert(ended)),
            _ => Poll::Pending,
        }
    }

    /// Data goes by. Once it has to end, nothing does beyond the message under way.
    pub fn follow(&mut self, data: &mut Bytes) {
        let has_ended = self.ended.is_some();
        let Some(MessageTracker { messages, .. }) = self.manner.following() else { return };
        if has_ended {
            let rest = messages.rest_of_unit(data);
            data.truncate(rest);
        } else {
            messages.follow(data);
        }
    }

    /// Ready when it has to end, and where it can: between two messages, or after the time for the last one.
    pub fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<BodyEnd> {
        let ended = ready!(self.poll_ended(context));
        let mut is_whole = true;
        if let Some(MessageTracker { messages, last }) = self.manner.following()
            && !messages.is_between()
        {
            let last = last.get_or_insert_with(|| Box::pin(sleep(LAST_MESSAGE)));
            ready!(last.as_mut().poll(context));
            is_whole = false;
        }
        self.manner.ending(ended, is_whole).map_or(Poll::Pending, Poll::Ready)
    }

    /// Its source broke off: because of the same token's end?
    pub fn end_of_broken(&mut self) -> Option<BodyEnd> {
        let verdict = || self.streams.verdict(self.known.as_ref()?).err().map(CloseReason::Token);
        let ended = self.ended.or_else(verdict)?;
        self.ended = Some(ended);
        let is_whole = self.manner.following().is_none_or(|following| following.messages.is_between());
        self.manner.ending(ended, is_whole)
    }
}
