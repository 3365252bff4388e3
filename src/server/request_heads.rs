//! Passes an HTTP/1 connection to hyper head by head, so that hyper never sees a head that can be read in two ways.
//!
//! Bytes are checked in the buffer that hyper reads into. Only the beginning of an incomplete head is copied. A
//! malformed head is replaced by a placeholder, which the service rejects in its turn: the requests before it get their
//! responses, and nothing after it is read.

use std::io;

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::exchange::{Exchange, MalformedHead};
use crate::protocols::http::framing::{Framing, FramingError, Limits, RejectedHead};

/// What hyper reads instead of a malformed head. The gateway would reject this one, too: it has no Host.
const PLACEHOLDER: &[u8] = b"- * HTTP/1.1\r\nConnection: close\r\n\r\n";

/// What the stream does next.
pub(super) enum Next {
    Read,
    /// Waits until hyper has used what it has.
    Wait,
    /// Passes these bytes on first.
    Pass(Bytes),
    /// Passes these bytes on first, and all others unchecked: the connection is a tunnel now.
    Tunnel(Bytes),
}

/// Checks what a client sends before hyper reads it.
pub(super) struct RequestHeads {
    framing: Framing,
    /// An incomplete head, or an incomplete chunk header.
    pending: Vec<u8>,
    max_pending: usize,
    malformed: Option<Malformed>,
}

enum Malformed {
    Head,
    Body(&'static str),
}

impl RequestHeads {
    /// Goes on after this number of requests.
    pub(super) fn after(heads: u64, limits: Limits) -> Self {
        RequestHeads {
            framing: Framing::after(heads, limits),
            pending: Vec::new(),
            max_pending: limits.request_header_size,
            malformed: None,
        }
    }

    /// Returns true if the response decides whether the next bytes are HTTP, and there is none yet.
    pub(super) fn waits_for_response(&self, exchange: &Exchange) -> bool {
        self.framing.is_switching() && exchange.answered() < self.framing.heads()
    }

    /// Returns true if the client has begun a head that hyper has not seen.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the number of requests if no part of another one has come. Then [`RequestHeads::after`] is the same as
    /// this.
    pub(super) fn between_requests(&self) -> Option<u64> {
        let is_between = self.pending.is_empty() && self.malformed.is_none() && self.framing.is_between_requests();
        is_between.then(|| self.framing.heads())
    }

    /// Returns what to do instead of a read, or `Next::Read`.
    pub(super) fn next(&mut self, exchange: &Exchange) -> io::Result<Next> {
        match self.malformed {
            Some(Malformed::Body(what)) => return Err(io::Error::new(io::ErrorKind::InvalidData, what)),
            Some(Malformed::Head) => return Ok(Next::Wait),
            None if !self.framing.is_switching() => return Ok(Next::Read),
            None => {}
        }
        // The request asked for another protocol.
        if self.waits_for_response(exchange) {
            return Ok(if self.pending.len() < self.max_pending { Next::Read } else { Next::Wait });
        }
        if exchange.is_tunnel() {
            return Ok(Next::Tunnel(std::mem::take(&mut self.pending).into()));
        }
        self.framing.resume_http();
        Ok(match self.take_complete(exchange) {
            bytes if bytes.is_empty() => Next::Read,
            bytes => Next::Pass(bytes),
        })
    }

    /// Checks what was read into `buffer` after its first `before` bytes, and leaves there what hyper may read. Returns
    /// bytes that hyper reads next.
    pub(super) fn check(&mut self, buffer: &mut ReadBuf<'_>, before: usize, exchange: &Exchange) -> Bytes {
        let read = &buffer.filled()[before..];
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(read);
            buffer.set_filled(before);
            return self.take_complete(exchange);
        }
        let passed = self.framing.consume(read);
        let instead = passed.error.map(|fault| self.reject(fault, &read[passed.len..], exchange));
        self.update(exchange);
        if instead.is_none() && passed.len < read.len() {
            self.pending.extend_from_slice(&read[passed.len..]);
        }
        buffer.set_filled(before + passed.len);
        Bytes::from_static(instead.unwrap_or_default())
    }

    /// Takes the part of `pending` that is complete now.
    fn take_complete(&mut self, exchange: &Exchange) -> Bytes {
        let passed = self.framing.consume(&self.pending);
        if passed.len == 0 && passed.error.is_none() {
            return Bytes::new();
        }
        let mut complete = std::mem::take(&mut self.pending);
        let rest = complete.split_off(passed.len);
        match passed.error {
            Some(fault) => complete.extend_from_slice(self.reject(fault, &rest, exchange)),
            None => self.pending = rest,
        }
        self.update(exchange);
        complete.into()
    }

    /// Returns what hyper reads instead. A malformed body just ends. `head`: what was read of the head.
    fn reject(&mut self, fault: FramingError, head: &[u8], exchange: &Exchange) -> &'static [u8] {
        if self.framing.is_in_body() {
            self.malformed = Some(Malformed::Body(fault.message));
            return &[];
        }
        self.malformed = Some(Malformed::Head);
        let rejected = RejectedHead::new(fault, head);
        exchange.set_malformed(MalformedHead { after: self.framing.heads(), rejected });
        PLACEHOLDER
    }

    /// Says whether the next bytes of the client begin a head.
    fn update(&self, exchange: &Exchange) {
        exchange.set_incomplete(self.malformed.is_some() || self.framing.is_in_body(), self.framing.heads());
    }
}
