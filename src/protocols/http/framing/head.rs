//! One head, line by line: what it says about the end of its message, and nothing else. Whatever is said in another way than
//! RFC 9112 has it is no head.

use memchr::memchr;

use super::{FramingError, fault};

pub(super) const BARE_LF: FramingError = fault("a line that ends in LF without CR");

/// What is known of the head that is being read.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Bytes of whole lines that were looked at already.
    pub(super) read: usize,
    pub(super) skipped_empty_line: bool,
    pub(super) has_request_line: bool,
    pub(super) is_http10: bool,
    pub(super) fields: usize,
    pub(super) length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) upgrade: bool,
}

impl Head {
    /// RFC 9112 section 3: a method, a target and a version, and one space after each of the first two.
    pub(super) fn request_line(&mut self, line: &[u8]) -> Result<(), FramingError> {
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

    pub(super) fn field(&mut self, line: &[u8]) -> Result<(), FramingError> {
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
    fn content_length(&mut self, value: &[u8]) -> Result<(), FramingError> {
        // Nineteen digits fit into 64 bits, and nobody sends so much.
        let is_number = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(value).ok().filter(|_| is_number).and_then(|digits| digits.parse().ok());
        match self.length.replace(length.ok_or(fault("a Content-Length that is no number"))?) {
            None => Ok(()),
            Some(_) => Err(fault("several Content-Length fields")),
        }
    }

    /// `chunked`, once, and in HTTP/1.1 (Pingora CVE-2026-2835).
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), FramingError> {
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
pub(super) fn whole_line(bytes: &[u8]) -> Result<Option<&[u8]>, FramingError> {
    match memchr(b'\n', bytes) {
        None => Ok(None),
        Some(end) => bytes[..end].strip_suffix(b"\r").map(Some).ok_or(BARE_LF),
    }
}

/// A token, a colon at once, and a value without control characters: no folded line, no space before the colon.
pub(super) fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), FramingError> {
    let (name, rest) = line.split_at(token_len(line));
    let value = rest.strip_prefix(b":").filter(|_| !name.is_empty()).ok_or(fault("a field name that is none"))?;
    if has_control(value) {
        return Err(fault("a control character in a field"));
    }
    Ok((name, value))
}

/// Without a branch for each byte, so that compilers look at many of them at once.
pub(super) fn has_control(bytes: &[u8]) -> bool {
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
        let character = byte as u8;
        table[byte] = character.is_ascii_alphanumeric()
            || matches!(character, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};
