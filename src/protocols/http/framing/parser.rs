//! The parser: follows one connection from head to head.

use super::error::FramingError;
use super::head::{Head, complete_line, has_control_character, split_field};

/// Maximum length of a chunk's first line: sixteen digits and the extensions, which clients do not use in practice.
const MAX_CHUNK_LINE: usize = 256;
/// Maximum bytes of all chunk extensions of a body (RFC 9112 section 7.1.1 requires a limit).
const MAX_EXTENSIONS: usize = 4096;

/// `limits.request_header_size` and `limits.request_header_count`
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub request_header_size: usize,
    pub request_header_count: usize,
}

pub(super) const TOO_LARGE: FramingError =
    FramingError::head_too_large("the head is larger than limits.request_header_size");
pub(super) const TOO_MANY: FramingError = FramingError::too_many_fields("more fields than limits.request_header_count");

/// The result of [`Framing::consume`].
#[derive(Debug, PartialEq, Eq)]
pub struct Consumed {
    /// How many bytes from the front are valid and may go to hyper. The rest is an incomplete head or chunk line: pass
    /// it again, with the bytes that follow it.
    pub len: usize,
    /// The rest is not valid: close the connection.
    pub error: Option<FramingError>,
}

/// Follows one connection from head to head.
#[derive(Debug)]
pub struct Framing {
    limits: Limits,
    state: FramingState,
    head: Head,
    /// The number of complete heads.
    heads: u64,
    /// Of the current body: bytes of chunk extensions, number of trailers, bytes of trailers.
    extension_bytes: usize,
    trailers: usize,
    trailer_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramingState {
    Head,
    /// In a body with a Content-Length. How many bytes are left.
    Length(u64),
    ChunkLine,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    /// After a request for another protocol. The response decides whether the next bytes are of that protocol or of
    /// HTTP.
    Switching,
}

impl Framing {
    pub fn new(limits: Limits) -> Self {
        Framing::after(0, limits)
    }

    /// Goes on after this number of complete heads and their bodies.
    pub fn after(heads: u64, limits: Limits) -> Self {
        let state = FramingState::Head;
        let head = Head::default();
        Framing { limits, state, head, heads, extension_bytes: 0, trailers: 0, trailer_bytes: 0 }
    }

    /// Returns true if no part of another request has come. Then the number of heads is all that this knows.
    pub fn is_between_requests(&self) -> bool {
        self.state == FramingState::Head && self.head.parsed == 0
    }

    /// The number of complete heads so far.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Returns true inside the body of a request.
    pub fn is_in_body(&self) -> bool {
        !matches!(self.state, FramingState::Head | FramingState::Switching)
    }

    /// Returns true while a response decides which protocol follows. No byte is valid until then.
    pub fn is_switching(&self) -> bool {
        self.state == FramingState::Switching
    }

    /// The protocol was not switched: HTTP follows.
    pub fn resume_http(&mut self) {
        if self.is_switching() {
            self.state = FramingState::Head;
        }
    }

    /// Parses bytes in the order in which they arrived, those that were left the last time first.
    pub fn consume(&mut self, bytes: &[u8]) -> Consumed {
        let mut len = 0;
        while len < bytes.len() {
            match self.step(&bytes[len..]) {
                Ok(Some(consumed)) => len += consumed,
                Ok(None) => break,
                Err(error) => return Consumed { len, error: Some(error) },
            }
        }
        Consumed { len, error: None }
    }

    /// Consumes one head, one line or a part of a body. `None` if it is not complete.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        match self.state {
            FramingState::Head => self.head(bytes),
            FramingState::Length(left) => {
                let consumed = clamp_len(bytes.len(), left);
                self.state = match left - consumed as u64 {
                    0 => self.after_message(),
                    left => FramingState::Length(left),
                };
                Ok(Some(consumed))
            }
            FramingState::ChunkLine => self.chunk_line(bytes),
            FramingState::ChunkData(left) => {
                let consumed = clamp_len(bytes.len(), left);
                self.state = match left - consumed as u64 {
                    0 => FramingState::ChunkEnd,
                    left => FramingState::ChunkData(left),
                };
                Ok(Some(consumed))
            }
            FramingState::ChunkEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    self.state = FramingState::ChunkLine;
                    Ok(Some(2))
                }
                [b'\r'] => Ok(None),
                _ => Err(FramingError::malformed("a chunk that is longer than its size")),
            },
            FramingState::Trailers => self.trailer(bytes),
            FramingState::Switching => Ok(None),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        loop {
            let rest = &bytes[self.head.parsed..];
            let Some(line) = complete_line(rest)? else {
                if bytes.len() >= self.limits.request_header_size {
                    return Err(TOO_LARGE);
                }
                // Another protocol, as TLS, is rejected at once, without waiting for the end of the line.
                if !self.head.has_request_line && has_control_character(rest.strip_suffix(b"\r").unwrap_or(rest)) {
                    return Err(FramingError::malformed("this is not HTTP"));
                }
                return Ok(None);
            };
            self.head.parsed += line.len() + 2;
            if self.head.parsed > self.limits.request_header_size {
                return Err(TOO_LARGE);
            }
            match (line, self.head.has_request_line) {
                ([], true) => return Ok(Some(self.finish_head())),
                // RFC 9112 section 2.2: some clients send an empty line after a body. One is accepted.
                ([], false) if self.head.skipped_empty_line => {
                    return Err(FramingError::malformed("empty lines before a request"));
                }
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

    fn finish_head(&mut self) -> usize {
        let Head { parsed, length, chunked, .. } = self.head;
        self.heads += 1;
        (self.extension_bytes, self.trailers, self.trailer_bytes) = (0, 0, 0);
        self.state = match (chunked, length) {
            (true, _) => FramingState::ChunkLine,
            (false, None | Some(0)) => self.after_message(),
            (false, Some(length)) => FramingState::Length(length),
        };
        self.head = Head { upgrade: self.head.upgrade && self.is_in_body(), ..Head::default() };
        parsed
    }

    fn after_message(&mut self) -> FramingState {
        if std::mem::take(&mut self.head.upgrade) { FramingState::Switching } else { FramingState::Head }
    }

    /// RFC 9112 section 7.1. White space around the size is rejected, because some programs take it for the end of the
    /// line.
    fn chunk_line(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        let line = complete_line(bytes)?;
        if line_len(line, bytes) > MAX_CHUNK_LINE {
            return Err(FramingError::malformed("a chunk line that is too long"));
        }
        let Some(line) = line else { return Ok(None) };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, extension) = line.split_at(digits);
        let size = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let (Some(size), ..=16) = (size, digits.len()) else {
            return Err(FramingError::malformed("a chunk size that is not a number"));
        };
        self.extension_bytes += extension.len();
        if !matches!(extension, [] | [b';', ..])
            || has_control_character(extension)
            || self.extension_bytes > MAX_EXTENSIONS
        {
            return Err(FramingError::malformed("an invalid chunk extension, or too many"));
        }
        self.state = if size == 0 { FramingState::Trailers } else { FramingState::ChunkData(size) };
        Ok(Some(line.len() + 2))
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        let line = complete_line(bytes)?;
        if self.trailer_bytes + line_len(line, bytes) >= self.limits.request_header_size {
            return Err(FramingError::malformed("trailers larger than limits.request_header_size"));
        }
        let Some(line) = line else { return Ok(None) };
        if line.is_empty() {
            self.state = self.after_message();
            return Ok(Some(2));
        }
        split_field(line)?;
        (self.trailers, self.trailer_bytes) = (self.trailers + 1, self.trailer_bytes + line.len() + 2);
        if self.trailers > self.limits.request_header_count {
            return Err(FramingError::malformed("more trailers than limits.request_header_count"));
        }
        Ok(Some(line.len() + 2))
    }
}

/// The length of the line, or of what has arrived of it. Without its CR, so that the limit does not depend on where the
/// client's packets end.
fn line_len(line: Option<&[u8]>, arrived: &[u8]) -> usize {
    line.or(arrived.strip_suffix(b"\r")).unwrap_or(arrived).len()
}

/// The smaller of both.
fn clamp_len(len: usize, left: u64) -> usize {
    usize::try_from(left).map_or(len, |left| left.min(len))
}
