//! Where one HTTP/1 request ends and the next begins, by one strict reading (RFC 9112). Pure.
//!
//! This stands in front of hyper, which repairs some of what has two readings: of several equal lengths it takes one, of a
//! length and chunks the chunks, a bare LF ends a line, and what stands behind `#` is cut off. A proxy in front may have
//! read the same bytes in the other way, and then a part of one client's body is another client's request. So hyper gets
//! whole heads that have one reading, and nothing else: [`Framing::pass`] says how much of what came may go on.
//!
//! What is said here about the end of a message has to be what hyper finds: `tests/it/framing/agreement.rs` compares them.

mod head;

use head::{Head, has_control, split_field, whole_line};

use crate::types::reject::Reason;

/// Of one chunk's line: sixteen digits, and extensions that nobody has ever been seen to use.
const LONGEST_CHUNK_LINE: usize = 256;
/// Of all chunk extensions of one body (RFC 9112 section 7.1.1 asks for a limit).
const MOST_EXTENSIONS: usize = 4096;

/// `limits.request_header_size` and `limits.request_header_count`
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub request_header_size: usize,
    pub request_header_count: usize,
}

/// Why nothing that follows is read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramingError {
    pub reason: Reason,
    pub what: &'static str,
}

const fn fault(what: &'static str) -> FramingError {
    FramingError { reason: Reason::MalformedFraming, what }
}

const TOO_LARGE: FramingError =
    FramingError { reason: Reason::HeadTooLarge, what: "the head is larger than limits.request_header_size" };
const TOO_MANY: FramingError =
    FramingError { reason: Reason::HeadTooLarge, what: "more fields than limits.request_header_count" };

/// What became of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Consumed {
    /// So many of them, from the front, may go on. What is left is the beginning of a head or of a chunk's line: it is to
    /// be shown again, with what comes after it.
    pub len: usize,
    /// What is left is none: the connection has to end.
    pub fault: Option<FramingError>,
}

/// Follows one connection from head to head.
#[derive(Debug)]
pub struct Framing {
    limits: Limits,
    state: State,
    head: Head,
    /// Heads that were passed on.
    heads: u64,
    /// Of the body that is being read: bytes of extensions; fields and bytes of trailers.
    extensions: usize,
    trailers: usize,
    trailers_size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// So much is left of a body by Content-Length.
    Length(u64),
    ChunkLine,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    /// The request asks for another protocol. What follows is of that, or of HTTP: the answer decides.
    Switching,
}

impl Framing {
    pub fn new(limits: Limits) -> Self {
        let (state, head) = (State::Head, Head::default());
        Framing { limits, state, head, heads: 0, extensions: 0, trailers: 0, trailers_size: 0 }
    }

    /// Heads that were passed on so far.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Is it the body of a request that goes on here?
    pub fn is_in_body(&self) -> bool {
        !matches!(self.state, State::Head | State::Switching)
    }

    /// Waits for an answer that decides which protocol goes on: nothing passes until then.
    pub fn is_switching(&self) -> bool {
        self.state == State::Switching
    }

    /// The protocol was not switched: it is HTTP that goes on.
    pub fn stays_http(&mut self) {
        if self.is_switching() {
            self.state = State::Head;
        }
    }

    /// Looks at bytes as they came, with what was left over the last time in front of them.
    pub fn pass(&mut self, bytes: &[u8]) -> Consumed {
        let mut len = 0;
        while len < bytes.len() {
            match self.step(&bytes[len..]) {
                Ok(Some(taken)) => len += taken,
                Ok(None) => break,
                Err(fault) => return Consumed { len, fault: Some(fault) },
            }
        }
        Consumed { len, fault: None }
    }

    /// One head, one line or a part of a body; `None` if it is not all there.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        match self.state {
            State::Head => self.head(bytes),
            State::Length(left) => {
                let taken = at_most(bytes.len(), left);
                self.state = match left - taken as u64 {
                    0 => self.after_message(),
                    left => State::Length(left),
                };
                Ok(Some(taken))
            }
            State::ChunkLine => self.chunk_line(bytes),
            State::ChunkData(left) => {
                let taken = at_most(bytes.len(), left);
                self.state = match left - taken as u64 {
                    0 => State::ChunkEnd,
                    left => State::ChunkData(left),
                };
                Ok(Some(taken))
            }
            State::ChunkEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    self.state = State::ChunkLine;
                    Ok(Some(2))
                }
                [b'\r'] => Ok(None),
                _ => Err(fault("a chunk that is longer than its size")),
            },
            State::Trailers => self.trailer(bytes),
            State::Switching => Ok(None),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        loop {
            let rest = &bytes[self.head.read..];
            let Some(line) = whole_line(rest)? else {
                if bytes.len() >= self.limits.request_header_size {
                    return Err(TOO_LARGE);
                }
                // A line of HTTP ends some time. Other protocols, as TLS, are told at once.
                if !self.head.has_request_line && has_control(rest.strip_suffix(b"\r").unwrap_or(rest)) {
                    return Err(fault("this is not HTTP"));
                }
                return Ok(None);
            };
            self.head.read += line.len() + 2;
            if self.head.read > self.limits.request_header_size {
                return Err(TOO_LARGE);
            }
            match (line, self.head.has_request_line) {
                ([], true) => return Ok(Some(self.head_is_complete())),
                // RFC 9112 section 2.2: some clients send one behind a body. None needs a second.
                ([], false) if self.head.skipped_empty_line => return Err(fault("empty lines before a request")),
                ([], false) => self.head.skipped_empty_line = true,
                (line, false) => self.head.request_line(line)?,
                (line, true) => {
                    self.head.field(line)?;
                    if self.head.fields > self.limits.request_header_count {
                        return Err(TOO_MANY);
                    }
                }
            }
        }
    }

    fn head_is_complete(&mut self) -> usize {
        let Head { read, length, chunked, .. } = self.head;
        self.heads += 1;
        (self.extensions, self.trailers, self.trailers_size) = (0, 0, 0);
        self.state = match (chunked, length) {
            (true, _) => State::ChunkLine,
            (false, None | Some(0)) => self.after_message(),
            (false, Some(length)) => State::Length(length),
        };
        self.head = Head { upgrade: self.head.upgrade && self.is_in_body(), ..Head::default() };
        read
    }

    fn after_message(&mut self) -> State {
        if std::mem::take(&mut self.head.upgrade) { State::Switching } else { State::Head }
    }

    /// RFC 9112 section 7.1. White space around the size is allowed to nobody: it has been read as an end.
    fn chunk_line(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        let line = whole_line(bytes)?;
        if line.map_or(bytes.len(), <[u8]>::len) > LONGEST_CHUNK_LINE {
            return Err(fault("a chunk's line that does not end"));
        }
        let Some(line) = line else { return Ok(None) };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, extension) = line.split_at(digits);
        let size = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let (Some(size), ..=16) = (size, digits.len()) else { return Err(fault("a chunk's size that is no number")) };
        self.extensions += extension.len();
        if !matches!(extension, [] | [b';', ..]) || has_control(extension) || self.extensions > MOST_EXTENSIONS {
            return Err(fault("a chunk's extension that is none, or too many"));
        }
        self.state = if size == 0 { State::Trailers } else { State::ChunkData(size) };
        Ok(Some(line.len() + 2))
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        let line = whole_line(bytes)?;
        if self.trailers_size + line.map_or(bytes.len(), <[u8]>::len) >= self.limits.request_header_size {
            return Err(fault("trailers larger than limits.request_header_size"));
        }
        let Some(line) = line else { return Ok(None) };
        if line.is_empty() {
            self.state = self.after_message();
            return Ok(Some(2));
        }
        split_field(line)?;
        (self.trailers, self.trailers_size) = (self.trailers + 1, self.trailers_size + line.len() + 2);
        if self.trailers > self.limits.request_header_count {
            return Err(fault("more trailers than limits.request_header_count"));
        }
        Ok(Some(line.len() + 2))
    }
}

fn at_most(len: usize, left: u64) -> usize {
    usize::try_from(left).map_or(len, |left| left.min(len))
}

#[cfg(test)]
mod tests;
