//! Where one HTTP/1 request ends and the next begins, by one strict reading (RFC 9112). Pure.
//!
//! This stands in front of hyper, which repairs some of what has two readings: of several equal lengths it takes one, of a
//! length and chunks the chunks, a bare LF ends a line, and what stands behind `#` is cut off. A proxy in front may have
//! read the same bytes in the other way, and then a part of one client's body is another client's request. So hyper gets
//! whole heads that have one reading, and nothing else: [`Framing::pass`] says how much of what came may go on.
//!
//! What is said here about the end of a message has to be what hyper finds: `tests/it/framing/agreement.rs` compares them.

use memchr::memchr;

use crate::reject::Reason;

/// Of one chunk's line: sixteen digits, and extensions that nobody has ever been seen to use.
const LONGEST_CHUNK_LINE: usize = 256;
/// Of all chunk extensions of one body (RFC 9112 section 7.1.1 asks for a limit).
const MOST_EXTENSIONS: usize = 4096;

/// `limits.head_size` and `limits.headers`
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub head_size: usize,
    pub headers: usize,
}

/// Why nothing that follows is read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub reason: Reason,
    pub what: &'static str,
}

const fn fault(what: &'static str) -> Fault {
    Fault { reason: Reason::BadFraming, what }
}

const TOO_LARGE: Fault = Fault { reason: Reason::HeadTooLarge, what: "the head is larger than limits.head_size" };
const TOO_MANY: Fault = Fault { reason: Reason::HeadTooLarge, what: "more fields than limits.headers" };
const BARE_LF: Fault = fault("a line that ends in LF without CR");

/// What became of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    /// So many of them, from the front, may go on. What is left is the beginning of a head or of a chunk's line: it is to
    /// be shown again, with what comes after it.
    pub len: usize,
    /// What is left is none: the connection has to end.
    pub fault: Option<Fault>,
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

/// What is known of the head that is being read.
#[derive(Debug, Default)]
struct Head {
    /// Bytes of whole lines that were looked at already.
    read: usize,
    skipped_empty_line: bool,
    has_request_line: bool,
    is_http10: bool,
    fields: usize,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
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
    pub fn pass(&mut self, bytes: &[u8]) -> Passed {
        let mut len = 0;
        while len < bytes.len() {
            match self.step(&bytes[len..]) {
                Ok(Some(taken)) => len += taken,
                Ok(None) => break,
                Err(fault) => return Passed { len, fault: Some(fault) },
            }
        }
        Passed { len, fault: None }
    }

    /// One head, one line or a part of a body; `None` if it is not all there.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
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

    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        loop {
            let rest = &bytes[self.head.read..];
            let Some(line) = whole_line(rest)? else {
                if bytes.len() >= self.limits.head_size {
                    return Err(TOO_LARGE);
                }
                // A line of HTTP ends some time. Other protocols, as TLS, are told at once.
                if !self.head.has_request_line && has_control(rest.strip_suffix(b"\r").unwrap_or(rest)) {
                    return Err(fault("this is not HTTP"));
                }
                return Ok(None);
            };
            self.head.read += line.len() + 2;
            if self.head.read > self.limits.head_size {
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
                    if self.head.fields > self.limits.headers {
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
    fn chunk_line(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
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

    fn trailer(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let line = whole_line(bytes)?;
        if self.trailers_size + line.map_or(bytes.len(), <[u8]>::len) >= self.limits.head_size {
            return Err(fault("trailers larger than limits.head_size"));
        }
        let Some(line) = line else { return Ok(None) };
        if line.is_empty() {
            self.state = self.after_message();
            return Ok(Some(2));
        }
        split_field(line)?;
        (self.trailers, self.trailers_size) = (self.trailers + 1, self.trailers_size + line.len() + 2);
        if self.trailers > self.limits.headers {
            return Err(fault("more trailers than limits.headers"));
        }
        Ok(Some(line.len() + 2))
    }
}

impl Head {
    /// RFC 9112 section 3: a method, a target and a version, and one space after each of the first two.
    fn request_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let (method, rest) = line.split_at(token_len(line));
        let rest = rest.strip_prefix(b" ").filter(|_| !method.is_empty());
        let rest = rest.ok_or(fault("a method that is none"))?;
        let (target, version) = rest.split_at(memchr(b' ', rest).unwrap_or(rest.len()));
        if target.is_empty() || has_control(target) || memchr(b'\t', target).is_some() {
            return Err(fault("a request target that is none"));
        }
        if memchr(b'#', target).is_some() {
            // Whoever does not cut it off takes it for a part of the path (Envoy CVE-2021-32779).
            return Err(fault("a fragment in the request target"));
        }
        self.is_http10 = match version {
            b" HTTP/1.1" => false,
            b" HTTP/1.0" => true,
            _ => return Err(fault("a version that is not HTTP/1.1 or HTTP/1.0")),
        };
        self.has_request_line = true;
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Fault> {
        let (name, value) = split_field(line)?;
        self.fields += 1;
        // By its length first, as nearly all names end there.
        match name.len() {
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade = !self.is_http10,
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value.trim_ascii())?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value.trim_ascii())?,
            _ => {}
        }
        if self.chunked && self.length.is_some() {
            return Err(fault("both Content-Length and Transfer-Encoding"));
        }
        Ok(())
    }

    /// One number, once. RFC 9110 section 8.6 lets us refuse also those that are equal.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Fault> {
        // Nineteen digits fit into 64 bits, and nobody sends so much.
        let is_number = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(value).ok().filter(|_| is_number).and_then(|digits| digits.parse().ok());
        match self.length.replace(length.ok_or(fault("a Content-Length that is no number"))?) {
            None => Ok(()),
            Some(_) => Err(fault("several Content-Length fields")),
        }
    }

    /// `chunked`, once, and in HTTP/1.1 (Pingora CVE-2026-2835).
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Fault> {
        if self.is_http10 {
            return Err(fault("Transfer-Encoding in HTTP/1.0"));
        }
        if !value.eq_ignore_ascii_case(b"chunked") || std::mem::replace(&mut self.chunked, true) {
            return Err(fault("a transfer coding other than chunked"));
        }
        Ok(())
    }
}

/// The first line, without its CRLF; `None` if it has no end yet.
fn whole_line(bytes: &[u8]) -> Result<Option<&[u8]>, Fault> {
    match memchr(b'\n', bytes) {
        None => Ok(None),
        Some(end) => bytes[..end].strip_suffix(b"\r").map(Some).ok_or(BARE_LF),
    }
}

/// A token, a colon at once, and a value without control characters: no folded line, no space before the colon.
fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let (name, rest) = line.split_at(token_len(line));
    let value = rest.strip_prefix(b":").filter(|_| !name.is_empty()).ok_or(fault("a field name that is none"))?;
    if has_control(value) {
        return Err(fault("a control character in a field"));
    }
    Ok((name, value))
}

/// Without a branch for each byte, so that compilers look at many of them at once.
fn has_control(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | ((*byte < b' ') & (*byte != b'\t')) | (*byte == 0x7f))
}

fn token_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !TOKEN[usize::from(*byte)]).unwrap_or(bytes.len())
}

/// RFC 9110 section 5.6.2
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = matches!(byte as u8, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*')
            || matches!(byte as u8, b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};

fn at_most(len: usize, left: u64) -> usize {
    usize::try_from(left).map_or(len, |left| left.min(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { head_size: 512, headers: 8 };

    /// How much goes on of `bytes`, and why no more; the same whether it comes at once or byte by byte.
    fn passed(bytes: &[u8]) -> Passed {
        let at_once = Framing::new(LIMITS).pass(bytes);
        let (mut framing, mut start) = (Framing::new(LIMITS), 0);
        for end in 1..=bytes.len() {
            let step = framing.pass(&bytes[start..end]);
            start += step.len;
            if step.fault.is_some() {
                assert_eq!(at_once, Passed { len: start, fault: step.fault }, "{:?}", bytes.escape_ascii().to_string());
                return at_once;
            }
        }
        assert_eq!(at_once, Passed { len: start, fault: None }, "{:?}", bytes.escape_ascii().to_string());
        at_once
    }

    fn what(request: &str) -> Option<&'static str> {
        passed(request.as_bytes()).fault.map(|fault| fault.what)
    }

    #[test]
    fn what_has_one_reading_goes_on() {
        for request in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost:a\r\nX:\r\nY: \t\r\nZ: \u{e9}\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length:\t3 \r\n\r\nabc",
            "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 003\r\n\r\nabc",
            "POST / HTTP/1.1\r\nTRANSFER-ENCODING: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0a;x=y;z=\"1 2\"\r\n0123456789\r\n000\r\nX: 1\r\nY: 2\r\n\r\n",
        ] {
            let twice = request.repeat(2);
            assert_eq!(passed(request.as_bytes()), Passed { len: request.len(), fault: None }, "{request:?}");
            assert_eq!(passed(twice.as_bytes()), Passed { len: twice.len(), fault: None }, "{request:?}");
        }
    }

    #[test]
    fn what_is_not_whole_stays_and_what_is_before_it_goes_on() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for (begun, goes_on) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r", 0),
            ("\r\n", 0),
            ("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", 41),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5", 55),
        ] {
            let bytes = [get, begun].concat();
            assert_eq!(passed(bytes.as_bytes()), Passed { len: get.len() + goes_on, fault: None }, "{begun:?}");
        }
    }

    #[test]
    fn what_has_two_readings_ends_here() {
        let post = |field: &str| format!("POST / HTTP/1.1\r\n{field}\r\n\r\nabc");
        for (fields, expected) in [
            ("Content-Length: 3\r\nContent-Length: 3", "several Content-Length fields"),
            ("Content-Length: 3, 3", "a Content-Length that is no number"),
            ("Content-Length: +3", "a Content-Length that is no number"),
            ("Content-Length:", "a Content-Length that is no number"),
            ("Content-Length: 10000000000000000000", "a Content-Length that is no number"),
            ("Content-Length: 3\r\nTransfer-Encoding: chunked", "both Content-Length and Transfer-Encoding"),
            ("Transfer-Encoding: chunked\r\nContent-Length: 3", "both Content-Length and Transfer-Encoding"),
            ("Transfer-Encoding: chunked, chunked", "a transfer coding other than chunked"),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "a transfer coding other than chunked"),
            ("Transfer-Encoding: gzip, chunked", "a transfer coding other than chunked"),
            ("Transfer-Encoding: xchunked", "a transfer coding other than chunked"),
            ("X : 1", "a field name that is none"),
            ("X: 1\r\n folded", "a field name that is none"),
            (": 1", "a field name that is none"),
            ("X: a\rb", "a control character in a field"),
            ("X: a\x7f", "a control character in a field"),
            ("X: 1\nY: 2", BARE_LF.what),
            ("X: 1\r\n\n", BARE_LF.what),
        ] {
            assert_eq!(what(&post(fields)), Some(expected), "{fields:?}");
        }
        for (line, expected) in [
            ("\r\n\r\nGET / HTTP/1.1", "empty lines before a request"),
            ("\nGET / HTTP/1.1", BARE_LF.what),
            ("GET / HTTP/1.1\nHost: a", BARE_LF.what),
            ("G@T / HTTP/1.1", "a method that is none"),
            ("GET\t/ HTTP/1.1", "a method that is none"),
            ("GET  / HTTP/1.1", "a request target that is none"),
            ("GET / HTTP/1.1 ", "a version that is not HTTP/1.1 or HTTP/1.0"),
            ("GET / / HTTP/1.1", "a version that is not HTTP/1.1 or HTTP/1.0"),
            ("GET / HTTP/1.2", "a version that is not HTTP/1.1 or HTTP/1.0"),
            ("GET /", "a version that is not HTTP/1.1 or HTTP/1.0"),
            ("GET /a#b HTTP/1.1", "a fragment in the request target"),
        ] {
            let request = format!("{line}\r\nHost: a\r\n\r\n");
            assert_eq!(what(&request), Some(expected), "{line:?}");
        }
        assert_eq!(
            what("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
            Some("Transfer-Encoding in HTTP/1.0")
        );
        assert_eq!(what("\x16\x03\x01"), Some("this is not HTTP"), "without waiting for the end of a line");
    }

    #[test]
    fn chunks_have_one_reading() {
        for (chunks, expected) in [
            ("3 \r\nabc", "a chunk's extension that is none, or too many"),
            (" 3\r\nabc", "a chunk's size that is no number"),
            ("\r\nabc", "a chunk's size that is no number"),
            ("00000000000000003\r\nabc", "a chunk's size that is no number"),
            ("3\nabc", BARE_LF.what),
            ("3;a\rb\r\nabc", "a chunk's extension that is none, or too many"),
            ("3\r\nabcd\r\n", "a chunk that is longer than its size"),
            ("3\r\nabc\n0\r\n\r\n", "a chunk that is longer than its size"),
            ("0\r\nX : 1\r\n\r\n", "a field name that is none"),
            ("0\r\n\n", BARE_LF.what),
        ] {
            let request = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            assert_eq!(what(&request), Some(expected), "{chunks:?}");
        }
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let extensions = format!("1;{}\r\nx\r\n", "e".repeat(200)).repeat(21);
        assert_eq!(what(&[chunked, &extensions].concat()), Some("a chunk's extension that is none, or too many"));
        assert_eq!(what(&[chunked, "1;", &"e".repeat(300)].concat()), Some("a chunk's line that does not end"));
        assert_eq!(
            what(&[chunked, "0\r\n", &"X: 1\r\n".repeat(9)].concat()),
            Some("more trailers than limits.headers")
        );
        assert_eq!(
            what(&[chunked, "0\r\nX: ", &"v".repeat(600)].concat()),
            Some("trailers larger than limits.head_size")
        );
    }

    #[test]
    fn a_head_is_as_large_as_the_limits_and_no_larger() {
        let head = |size: usize| {
            let line = "GET / HTTP/1.1\r\nX: ";
            format!("{line}{}\r\n\r\n", "v".repeat(size - line.len() - 4))
        };
        assert_eq!(what(&head(512)), None);
        assert_eq!(what(&head(513)), Some(TOO_LARGE.what));
        assert_eq!(what(&"x".repeat(512)), Some(TOO_LARGE.what));
        let fields = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(count));
        assert_eq!(what(&fields(8)), None);
        assert_eq!(what(&fields(9)), Some(TOO_MANY.what));
    }

    #[test]
    fn what_follows_a_wish_for_another_protocol_waits_for_the_answer() {
        let ask = "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
        let mut framing = Framing::new(LIMITS);
        let bytes = [ask.as_bytes(), b"\x81\x05hello"].concat();
        assert_eq!(framing.pass(&bytes), Passed { len: ask.len(), fault: None });
        assert!(framing.is_switching());
        framing.stays_http();
        assert!(framing.pass(b"\x81\x05hello").fault.is_some());
        let mut framing = Framing::new(LIMITS);
        let ask = "POST / HTTP/1.1\r\nUpgrade: x\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(framing.pass([ask, ask].concat().as_bytes()).len, ask.len(), "after its body");
        framing.stays_http();
        assert_eq!(framing.pass(ask.as_bytes()).len, ask.len());
        assert_eq!(framing.heads(), 2);
    }
}
