//! Gives hyper the requests of an HTTP/1 connection head by whole head, so that it never sees one that has two readings.
//!
//! Bytes are looked at where they lie, in the buffer that hyper reads into; only the beginning of a head that has not come
//! to its end is kept apart. A head that is refused is replaced by one of our own, which the service answers in its turn:
//! requests before it get their answers, and nothing behind it is read.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use http::StatusCode;
use tokio::io::ReadBuf;

use crate::protocols::http::framing::{Framing, FramingError, Limits};

/// What hyper reads instead of a head that is refused. By itself it would be refused as well: it names no host.
const REFUSED: &[u8] = b"- * HTTP/1.1\r\nConnection: close\r\n\r\n";

/// What the reading side of a connection and the answers to its requests have to know of each other.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// While this is set, closing does not close: hyper can be ended and the stream goes on.
    pub(super) kept_open: AtomicBool,
    /// Requests that were answered.
    answered: AtomicU64,
    /// The last of them was answered with 101.
    tunnel: AtomicBool,
    /// What was wrong with the head that comes after so many good ones.
    refused: OnceLock<(u64, FramingError)>,
    /// So many answers in a row were 429.
    limited: AtomicU32,
    /// The connection ends with an exchange that was begun.
    ends: AtomicBool,
    /// What the client sends next is no head: a body has not come to its end, or something was wrong.
    unfinished: AtomicBool,
}

impl Exchange {
    /// Can there be another request? Where not, what still comes must not be read as one: neither the rest of a body that
    /// nobody wanted, nor what follows the last answer (RFC 9112 section 9.6).
    pub(super) fn goes_on(&self) -> bool {
        !self.ends.load(Ordering::Relaxed) && !self.unfinished.load(Ordering::Relaxed)
    }

    /// Nothing follows what is under way.
    pub(super) fn ends(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Is the request after so many others the one that stands for a refused head?
    pub(super) fn refused_after(&self, requests: u64) -> Option<FramingError> {
        self.refused.get().filter(|(heads, _)| *heads == requests).map(|(_, fault)| *fault)
    }

    /// Counts an answer that says 429, or one that does not, and tells how many were before it in a row.
    pub(super) fn limited(&self, is_limited: bool) -> u32 {
        let before = self.limited.load(Ordering::Relaxed);
        let now = if is_limited { before.saturating_add(1) } else { 0 };
        if now != before {
            self.limited.store(now, Ordering::Relaxed);
        }
        if is_limited { before } else { 0 }
    }

    /// Have so many requests been answered?
    pub(super) fn has_answered(&self, requests: u64) -> bool {
        self.answered.load(Ordering::Relaxed) == requests
    }

    /// Before the answer is written: what follows a 101 is no HTTP.
    pub(super) fn answers(&self, requests: u64, status: StatusCode) {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            self.tunnel.store(true, Ordering::Relaxed);
        }
        self.answered.store(requests, Ordering::Release);
    }
}

/// What the stream does next.
pub(super) enum Next {
    Read,
    /// Nothing, until hyper has used what it has.
    Wait,
    /// Goes on with these bytes first.
    Give(Bytes),
    /// Goes on with these, and without a look at what follows: it is a tunnel now.
    Open(Bytes),
}

/// Looks at what a client sends before hyper does.
pub(super) struct RequestHeads {
    framing: Framing,
    /// A head, or a chunk's line, that has not come to its end.
    held: Vec<u8>,
    most_held: usize,
    over: Option<Over>,
}

/// Where a fault was seen.
enum Over {
    InHead,
    InBody(&'static str),
}

impl RequestHeads {
    pub(super) fn new(limits: Limits) -> Self {
        RequestHeads {
            framing: Framing::new(limits),
            held: Vec::new(),
            most_held: limits.request_header_size,
            over: None,
        }
    }

    /// Tells where the client stands, whenever it has been looked at.
    fn tell(&self, exchange: &Exchange) {
        exchange.unfinished.store(self.over.is_some() || self.framing.is_in_body(), Ordering::Relaxed);
    }

    /// Has the client begun something that hyper does not know of?
    pub(super) fn has_begun(&self) -> bool {
        !self.held.is_empty()
    }

    /// Asked before each read.
    pub(super) fn next(&mut self, exchange: &Exchange) -> io::Result<Next> {
        match self.over {
            Some(Over::InBody(what)) => return Err(io::Error::new(io::ErrorKind::InvalidData, what)),
            Some(Over::InHead) => return Ok(Next::Wait),
            None if !self.framing.is_switching() => return Ok(Next::Read),
            None => {}
        }
        if exchange.answered.load(Ordering::Acquire) < self.framing.heads() {
            return Ok(if self.held.len() < self.most_held { Next::Read } else { Next::Wait });
        }
        let held = std::mem::take(&mut self.held);
        if exchange.tunnel.load(Ordering::Relaxed) {
            return Ok(Next::Open(held.into()));
        }
        self.framing.stays_http();
        self.held = held;
        Ok(match self.release(exchange) {
            bytes if bytes.is_empty() => Next::Read,
            bytes => Next::Give(bytes),
        })
    }

    /// Looks at what was read behind the first `before` bytes of `buffer`, and leaves there what may go on. What it returns
    /// goes on next.
    pub(super) fn inspect(&mut self, buffer: &mut ReadBuf<'_>, before: usize, exchange: &Exchange) -> Bytes {
        let read = &buffer.filled()[before..];
        if !self.held.is_empty() {
            self.held.extend_from_slice(read);
            buffer.set_filled(before);
            return self.release(exchange);
        }
        let passed = self.framing.pass(read);
        let instead = passed.fault.map(|fault| self.refuse(fault, exchange));
        self.tell(exchange);
        if instead.is_none() && passed.len < read.len() {
            self.held.extend_from_slice(&read[passed.len..]);
        }
        buffer.set_filled(before + passed.len);
        Bytes::from_static(instead.unwrap_or_default())
    }

    /// Looks at what was held, with what has come to it.
    fn release(&mut self, exchange: &Exchange) -> Bytes {
        let passed = self.framing.pass(&self.held);
        if passed.len == 0 && passed.fault.is_none() {
            return Bytes::new();
        }
        let mut released = std::mem::take(&mut self.held);
        let rest = released.split_off(passed.len);
        match passed.fault {
            Some(fault) => released.extend_from_slice(self.refuse(fault, exchange)),
            None => self.held = rest,
        }
        self.tell(exchange);
        released.into()
    }

    /// What hyper reads instead. A body that is refused breaks off.
    fn refuse(&mut self, fault: FramingError, exchange: &Exchange) -> &'static [u8] {
        if self.framing.is_in_body() {
            self.over = Some(Over::InBody(fault.what));
            return &[];
        }
        self.over = Some(Over::InHead);
        // Nobody sets it twice: nothing is read after a fault.
        let _ = exchange.refused.set((self.framing.heads(), fault));
        REFUSED
    }
}
