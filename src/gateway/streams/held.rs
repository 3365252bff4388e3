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
use super::{Live, Parting, Streams};
use crate::auth::token_cache::Known;
use crate::protocols::boundaries::Boundaries;
use crate::protocols::grpc;
use crate::protocols::http::body::Ending;
use crate::protocols::http::media_type;
use crate::types::close_reason::Ended;
use crate::types::reject::Reason;

/// For the rest of a message: what is ended has ended within a second.
const LAST_MESSAGE: Duration = Duration::from_millis(500);

/// What ends it in a way that its reader understands.
#[derive(Default)]
pub enum Manner {
    /// Nothing does: it breaks off, so that nobody takes a part for the whole.
    #[default]
    Abort,
    /// An EventSource connects again whenever its stream ends, and is refused then. It asks by GET; what was asked for in
    /// another way may have an end that is worth waiting for, as an answer that is written while it is thought of.
    EventStream {
        asked_by_get: bool,
    },
    Grpc(Box<Following>),
    GrpcWeb(Box<Following>),
}

/// The messages of a body, and how long the last one may take.
#[derive(Default)]
pub struct Following {
    messages: Messages,
    /// Runs once it has to end.
    last: Option<Pin<Box<Sleep>>>,
}

impl Manner {
    /// That of an answer to this method. One whose length was told has no end before its end.
    pub fn of<B: HttpBody>(method: &Method, response: &Response<B>) -> Self {
        if response.body().size_hint().exact().is_some() {
            return Manner::Abort;
        }
        let headers = response.headers();
        match media_type::of(headers) {
            Some(_) if media_type::is_event_stream(headers) => {
                Manner::EventStream { asked_by_get: *method == Method::GET }
            }
            Some(_) if grpc::is_grpc(headers) => Manner::Grpc(Box::default()),
            Some(_) if grpc::is_grpc_web(headers) => Manner::GrpcWeb(Box::default()),
            _ => Manner::Abort,
        }
    }

    fn following(&mut self) -> Option<&mut Following> {
        match self {
            Manner::Grpc(following) | Manner::GrpcWeb(following) => Some(following),
            Manner::Abort | Manner::EventStream { .. } => None,
        }
    }

    fn parting(&self) -> Parting {
        match self {
            Manner::Abort => Parting::Unsaid,
            Manner::EventStream { asked_by_get: true } => Parting::AtOnce,
            // A call that is nearly done is worth waiting for; that its connection ends, its client knows from GOAWAY.
            Manner::EventStream { .. } | Manner::Grpc(_) | Manner::GrpcWeb(_) => Parting::AtLast,
        }
    }

    /// `is_whole`: no message is under way. `None` if nothing can be said, and it need not break off now.
    fn ending(&self, ended: Ended, is_whole: bool) -> Option<Ending> {
        match (self, ended) {
            (Manner::EventStream { .. }, _) => Some(Ending::Quiet),
            (Manner::Grpc(_), _) if is_whole => Some(Ending::Trailers(Box::new(grpc::trailers(ended)))),
            (Manner::GrpcWeb(_), _) if is_whole => Some(Ending::Data(messages::in_body(&grpc::trailers(ended)))),
            (_, Ended::Token(reason)) => Some(Ending::Abort(reason)),
            // It is cut off with the process.
            _ => None,
        }
    }
}

/// Not entered before it lasts.
pub struct Held {
    streams: Arc<Streams>,
    /// `None`: nobody's, as on a public route.
    known: Option<Arc<Known>>,
    manner: Manner,
    live: Option<Live>,
    ended: Option<Ended>,
}

impl Held {
    pub fn by(known: Option<Arc<Known>>, streams: &Arc<Streams>) -> Self {
        Held { streams: streams.clone(), known, manner: Manner::default(), live: None, ended: None }
    }

    /// The same token, holding something else.
    pub fn another(&self) -> Self {
        Held::by(self.known.clone(), &self.streams)
    }

    pub fn ending_as(&mut self, manner: Manner) {
        let parting = manner.parting();
        self.manner = manner;
        if let Some(live) = &self.live {
            live.parts(parting);
        }
    }

    /// Is silence a part of what it is? A stream says nothing while nothing happens.
    pub fn may_be_quiet(&self) -> bool {
        !matches!(self.manner, Manner::Abort)
    }

    pub fn known(&self) -> Option<&Arc<Known>> {
        self.known.as_ref()
    }

    /// It goes on for longer than a moment.
    pub fn lasts(&mut self) {
        if self.live.is_none() && self.ended.is_none() {
            self.live = Some(self.streams.open(self.known.as_ref(), self.manner.parting()));
        }
    }

    /// Why it was ended, if it was.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Returns when its token has ended.
    pub async fn end(&mut self) -> Reason {
        std::future::poll_fn(|context| match ready!(self.poll_ended(context)) {
            Ended::Token(reason) => Poll::Ready(reason),
            // Where there is no answer yet, nothing is told.
            Ended::Draining | Ended::OutOfTime => Poll::Pending,
        })
        .await
    }

    fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
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
        let Some(Following { messages, .. }) = self.manner.following() else { return };
        if has_ended {
            let rest = messages.rest_of_unit(data);
            data.truncate(rest);
        } else {
            messages.follow(data);
        }
    }

    /// Ready when it has to end, and where it can: between two messages, or after the time for the last one.
    pub fn poll_ending(&mut self, context: &mut Context<'_>) -> Poll<Ending> {
        let ended = ready!(self.poll_ended(context));
        let mut is_whole = true;
        if let Some(Following { messages, last }) = self.manner.following()
            && !messages.is_between()
        {
            let last = last.get_or_insert_with(|| Box::pin(sleep(LAST_MESSAGE)));
            ready!(last.as_mut().poll(context));
            is_whole = false;
        }
        self.manner.ending(ended, is_whole).map_or(Poll::Pending, Poll::Ready)
    }

    /// Its source broke off: because of the same token's end?
    pub fn ending_of_broken(&mut self) -> Option<Ending> {
        let verdict = || self.streams.verdict(self.known.as_ref()?).err().map(Ended::Token);
        let ended = self.ended.or_else(verdict)?;
        self.ended = Some(ended);
        let is_whole = self.manner.following().is_none_or(|following| following.messages.is_between());
        self.manner.ending(ended, is_whole)
    }
}
