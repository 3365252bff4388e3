//! Parses a request head line by line, as far as it decides where the message ends. A head that is not as RFC 9112 says
//! is rejected.

use memchr::memchr;

use super::error::FramingError;
use super::target;

/// hyper reads no longer name of a field.
const MAX_NAME: usize = u16::MAX as usize;

pub(super) const BARE_LF: FramingError = FramingError::malformed("a line that ends in LF without CR");

/// The current head, as far as it was parsed.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Bytes of the complete lines that were parsed.
    pub(super) parsed: usize,
    pub(super) skipped_empty_line: bool,
    pub(super) has_request_line: bool,
    pub(super) is_http10: bool,
    pub(super) fields: usize,
    pub(super) length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) upgrade: bool,
}

impl Head {
    /// RFC 9112 section 3: a method, a target and a version, separated by one space each.
    pub(super) fn request_line(&mut self, line: &[u8]) -> Result<(), FramingError> {
        let (method, rest) = line.split_at(token_len(line));
        let rest = if method.is_empty() { None } else { rest.strip_prefix(b" ") };
        let rest = rest.ok_or(FramingError::malformed("an invalid method"))?;
        let (target, version) = rest.split_at(memchr(b' ', rest).unwrap_or(rest.len()));
        target::check(target)?;
        self.is_http10 = match version {
            b" HTTP/1.1" => false,
            b" HTTP/1.0" => true,
            _ => return Err(FramingError::malformed("a version other than HTTP/1.1 or HTTP/1.0")),
        };
        self.has_request_line = true;
        Ok(())
    }

    pub(super) fn field(&mut self, line: &[u8]) -> Result<(), FramingError> {
        let (name, value) = split_field(line)?;
        if name.len() > MAX_NAME {
            return Err(FramingError::head_too_large("a field name of 64 KiB"));
        }
        self.fields += 1;
        // The length is compared first: it rules out nearly all names.
        match name.len() {
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade = !self.is_http10,
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value.trim_ascii())?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value.trim_ascii())?,
            _ => {}
        }
        if self.chunked && self.length.is_some() {
            return Err(FramingError::malformed("both Content-Length and Transfer-Encoding"));
        }
        Ok(())
    }

    /// One number, once. RFC 9110 section 8.6 allows to reject equal ones too.
    fn content_length(&mut self, value: &[u8]) -> Result<(), FramingError> {
        // Nineteen digits always fit into 64 bits.
        let is_number = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        let digits = if is_number { std::str::from_utf8(value).ok() } else { None };
        let length = digits.and_then(|digits| digits.parse().ok());
        match self.length.replace(length.ok_or(FramingError::malformed("a Content-Length that is not a number"))?) {
            None => Ok(()),
            Some(_) => Err(FramingError::malformed("several Content-Length fields")),
        }
    }

    /// `chunked`, once, and only in HTTP/1.1 (Pingora CVE-2026-2835).
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), FramingError> {
        if self.is_http10 {
            return Err(FramingError::malformed("Transfer-Encoding in HTTP/1.0"));
        }
        if !value.eq_ignore_ascii_case(b"chunked") || std::mem::replace(&mut self.chunked, true) {
            return Err(FramingError::malformed("a transfer coding other than chunked"));
        }
        Ok(())
    }
}

/// The first line without its CRLF; `None` if it is not complete.
pub(super) fn complete_line(bytes: &[u8]) -> Result<Option<&[u8]>, FramingError> {
    match memchr(b'\n', bytes) {
        None => Ok(None),
        Some(end) => bytes[..end].strip_suffix(b"\r").map(Some).ok_or(BARE_LF),
    }
}

/// Splits a field line: a token, a colon directly after it, and a value without control characters. A folded line and a
/// space before the colon are rejected.
pub(super) fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), FramingError> {
    let (name, rest) = line.split_at(token_len(line));
    let value = if name.is_empty() { None } else { rest.strip_prefix(b":") };
    let value = value.ok_or(FramingError::malformed("an invalid field name"))?;
    if has_control_character(value) {
        return Err(FramingError::malformed("a control character in a field"));
    }
    Ok((name, value))
}

/// Without a branch for each byte, so that the compiler vectorizes the loop.
pub(super) fn has_control_character(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | ((*byte < b' ') & (*byte != b'\t')) | (*byte == 0x7f))
}

fn token_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !TOKEN[usize::from(*byte)]).unwrap_or(bytes.len())
}

/// The characters of a token (RFC 9110 section 5.6.2).
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
