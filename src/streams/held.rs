//! A body, or a wait, that stands on a token: entered as a stream once it lasts, and ended in its own manner.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::Body as HttpBody;
use tokio::time::{Sleep, sleep};

use super::grpc::{self as messages, Messages};
use super::{Live, Streams};
use crate::body::Ending;
use crate::boundaries::Boundaries;
use crate::ended::Ended;
use crate::grpc;
use crate::media_type;
use crate::reject::Reason;
use crate::verified::Known;

/// For the rest of a message: what is ended has ended within a second.
const LAST_MESSAGE: Duration = Duration::from_millis(500);

/// What ends it in a way that its reader understands.
#[derive(Default)]
pub enum Manner {
    /// Nothing does: it breaks off, so that nobody takes a part for the whole.
    #[default]
    Abort,
    /// An EventSource connects again whenever its stream ends, and is refused then.
    EventStream,
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
    /// That of an answer. One whose length was told has no end before its end.
    pub fn of<B: HttpBody>(response: &Response<B>) -> Self {
        if response.body().size_hint().exact().is_some() {
            return Manner::Abort;
        }
        let headers = response.headers();
        match media_type::of(headers) {
            Some(kind) if kind.eq_ignore_ascii_case("text/event-stream") => Manner::EventStream,
            Some(_) if grpc::is_grpc(headers) => Manner::Grpc(Box::default()),
            Some(_) if grpc::is_grpc_web(headers) => Manner::GrpcWeb(Box::default()),
            _ => Manner::Abort,
        }
    }

    fn following(&mut self) -> Option<&mut Following> {
        match self {
            Manner::Grpc(following) | Manner::GrpcWeb(following) => Some(following),
            Manner::Abort | Manner::EventStream => None,
        }
    }

    fn ending(&self, reason: Reason) -> Ending {
        match self {
            Manner::Abort => Ending::Abort(reason),
            Manner::EventStream => Ending::Quiet,
            Manner::Grpc(_) => Ending::Trailers(Box::new(grpc::trailers(reason))),
            Manner::GrpcWeb(_) => Ending::Data(messages::in_body(&grpc::trailers(reason))),
        }
    }
}

/// Not entered before it lasts.
pub struct Held {
    streams: Arc<Streams>,
    known: Arc<Known>,
    manner: Manner,
    live: Option<Live>,
    ended: Option<Reason>,
}

impl Held {
    pub fn by(known: Arc<Known>, streams: &Arc<Streams>) -> Self {
        Held { streams: streams.clone(), known, manner: Manner::default(), live: None, ended: None }
    }

    /// The same token, holding something else.
    pub fn another(&self) -> Self {
        Held::by(self.known.clone(), &self.streams)
    }

    pub fn ending_as(&mut self, manner: Manner) {
        self.manner = manner;
    }

    pub fn known(&self) -> &Arc<Known> {
        &self.known
    }

    /// It goes on for longer than a moment.
    pub fn lasts(&mut self) {
        if self.live.is_none() && self.ended.is_none() {
            self.live = Some(self.streams.open(&self.known));
        }
    }

    /// Why it was ended, if it was.
    pub fn ended(&self) -> Option<Reason> {
        self.ended
    }

    /// Returns when it has to end.
    pub async fn end(&mut self) -> Reason {
        std::future::poll_fn(|context| self.poll_ended(context)).await
    }

    fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<Reason> {
        if let Some(reason) = self.ended {
            return Poll::Ready(reason);
        }
        match self.live.as_mut().map(|live| live.poll_ended(context)) {
            // Only tunnels are drained.
            Some(Poll::Ready(Ended::Token(reason))) => Poll::Ready(*self.ended.insert(reason)),
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
        let Poll::Ready(reason) = self.poll_ended(context) else { return Poll::Pending };
        if let Some(Following { messages, last }) = self.manner.following()
            && !messages.is_between()
        {
            let last = last.get_or_insert_with(|| Box::pin(sleep(LAST_MESSAGE)));
            return last.as_mut().poll(context).map(|()| Ending::Abort(reason));
        }
        Poll::Ready(self.manner.ending(reason))
    }

    /// Its source broke off: because of the same token's end?
    pub fn ending_of_broken(&mut self) -> Option<Ending> {
        let reason = self.ended.or_else(|| self.streams.verdict(&self.known).err())?;
        self.ended = Some(reason);
        let is_whole = self.manner.following().is_none_or(|following| following.messages.is_between());
        Some(if is_whole { self.manner.ending(reason) } else { Ending::Abort(reason) })
    }
}
