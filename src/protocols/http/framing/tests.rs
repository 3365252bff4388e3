//! Valid and invalid requests, parsed at once and byte by byte.

use super::head::BARE_LF;
use super::parser::{TOO_LARGE, TOO_MANY};
use super::*;

const LIMITS: Limits = Limits { request_header_size: 512, request_header_count: 8 };

/// Parses `bytes` at once, and asserts that byte by byte gives the same result.
fn consumed(bytes: &[u8]) -> Consumed {
    let at_once = Framing::new(LIMITS).consume(bytes);
    let mut framing = Framing::new(LIMITS);
    let mut start = 0;
    for end in 1..=bytes.len() {
        let step = framing.consume(&bytes[start..end]);
        start += step.len;
        if step.error.is_some() {
            assert_eq!(at_once, Consumed { len: start, error: step.error }, "{:?}", bytes.escape_ascii().to_string());
            return at_once;
        }
    }
    assert_eq!(at_once, Consumed { len: start, error: None }, "{:?}", bytes.escape_ascii().to_string());
    at_once
}

fn error(request: &str) -> Option<&'static str> {
    consumed(request.as_bytes()).error.map(|error| error.message)
}

#[test]
fn unambiguous_requests_pass() {
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost:a\r\nX:\r\nY: \t\r\nZ: \u{e9}\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length:\t3 \r\n\r\nabc",
        "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 003\r\n\r\nabc",
        "POST / HTTP/1.1\r\nTRANSFER-ENCODING: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
         0a;x=y;z=\"1 2\"\r\n0123456789\r\n000\r\nX: 1\r\nY: 2\r\n\r\n",
    ] {
        let twice = request.repeat(2);
        assert_eq!(consumed(request.as_bytes()), Consumed { len: request.len(), error: None }, "{request:?}");
        assert_eq!(consumed(twice.as_bytes()), Consumed { len: twice.len(), error: None }, "{request:?}");
    }
}

#[test]
fn only_complete_heads_and_lines_pass() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (incomplete, passes) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r", 0),
        ("\r\n", 0),
        ("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", 41),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5", 55),
    ] {
        let bytes = [get, incomplete].concat();
        assert_eq!(consumed(bytes.as_bytes()), Consumed { len: get.len() + passes, error: None }, "{incomplete:?}");
    }
}

#[test]
fn ambiguous_requests_are_rejected() {
    let post = |field: &str| format!("POST / HTTP/1.1\r\n{field}\r\n\r\nabc");
    for (fields, expected) in [
        ("Content-Length: 3\r\nContent-Length: 3", "several Content-Length fields"),
        ("Content-Length: 3, 3", "a Content-Length that is not a number"),
        ("Content-Length: +3", "a Content-Length that is not a number"),
        ("Content-Length:", "a Content-Length that is not a number"),
        ("Content-Length: 10000000000000000000", "a Content-Length that is not a number"),
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", "both Content-Length and Transfer-Encoding"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 3", "both Content-Length and Transfer-Encoding"),
        ("Transfer-Encoding: chunked, chunked", "a transfer coding other than chunked"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "a transfer coding other than chunked"),
        ("Transfer-Encoding: gzip, chunked", "a transfer coding other than chunked"),
        ("Transfer-Encoding: xchunked", "a transfer coding other than chunked"),
        ("X : 1", "an invalid field name"),
        ("X: 1\r\n folded", "an invalid field name"),
        (": 1", "an invalid field name"),
        ("X: a\rb", "a control character in a field"),
        ("X: a\x7f", "a control character in a field"),
        ("X: 1\nY: 2", BARE_LF.message),
        ("X: 1\r\n\n", BARE_LF.message),
    ] {
        assert_eq!(error(&post(fields)), Some(expected), "{fields:?}");
    }
    for (line, expected) in [
        ("\r\n\r\nGET / HTTP/1.1", "empty lines before a request"),
        ("\nGET / HTTP/1.1", BARE_LF.message),
        ("GET / HTTP/1.1\nHost: a", BARE_LF.message),
        ("G@T / HTTP/1.1", "an invalid method"),
        ("GET\t/ HTTP/1.1", "an invalid method"),
        ("GET  / HTTP/1.1", "an invalid request target"),
        ("GET / HTTP/1.1 ", "a version other than HTTP/1.1 or HTTP/1.0"),
        ("GET / / HTTP/1.1", "a version other than HTTP/1.1 or HTTP/1.0"),
        ("GET / HTTP/1.2", "a version other than HTTP/1.1 or HTTP/1.0"),
        ("GET /", "a version other than HTTP/1.1 or HTTP/1.0"),
        ("GET /a#b HTTP/1.1", "a fragment in the request target"),
    ] {
        let request = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(error(&request), Some(expected), "{line:?}");
    }
    assert_eq!(error("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Some("Transfer-Encoding in HTTP/1.0"));
    assert_eq!(error("\x16\x03\x01"), Some("this is not HTTP"), "without waiting for the end of a line");
}

#[test]
fn ambiguous_chunks_are_rejected() {
    for (chunks, expected) in [
        ("3 \r\nabc", "an invalid chunk extension, or too many"),
        (" 3\r\nabc", "a chunk size that is not a number"),
        ("\r\nabc", "a chunk size that is not a number"),
        ("00000000000000003\r\nabc", "a chunk size that is not a number"),
        ("3\nabc", BARE_LF.message),
        ("3;a\rb\r\nabc", "an invalid chunk extension, or too many"),
        ("3\r\nabcd\r\n", "a chunk that is longer than its size"),
        ("3\r\nabc\n0\r\n\r\n", "a chunk that is longer than its size"),
        ("0\r\nX : 1\r\n\r\n", "an invalid field name"),
        ("0\r\n\n", BARE_LF.message),
    ] {
        let request = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        assert_eq!(error(&request), Some(expected), "{chunks:?}");
    }
    let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let extensions = format!("1;{}\r\nx\r\n", "e".repeat(200)).repeat(21);
    assert_eq!(error(&[chunked, &extensions].concat()), Some("an invalid chunk extension, or too many"));
    assert_eq!(error(&[chunked, "1;", &"e".repeat(300)].concat()), Some("a chunk line that is too long"));
    assert_eq!(
        error(&[chunked, "0\r\n", &"X: 1\r\n".repeat(9)].concat()),
        Some("more trailers than limits.request_header_count")
    );
    assert_eq!(
        error(&[chunked, "0\r\nX: ", &"v".repeat(600)].concat()),
        Some("trailers larger than limits.request_header_size")
    );
}

#[test]
fn a_head_may_be_as_large_as_the_limits() {
    let head = |size: usize| {
        let line = "GET / HTTP/1.1\r\nX: ";
        format!("{line}{}\r\n\r\n", "v".repeat(size - line.len() - 4))
    };
    assert_eq!(error(&head(512)), None);
    assert_eq!(error(&head(513)), Some(TOO_LARGE.message));
    assert_eq!(error(&"x".repeat(512)), Some(TOO_LARGE.message));
    let fields = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(count));
    assert_eq!(error(&fields(8)), None);
    assert_eq!(error(&fields(9)), Some(TOO_MANY.message));
}

#[test]
fn bytes_after_an_upgrade_request_wait_for_the_response() {
    let request = "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
    let mut framing = Framing::new(LIMITS);
    let bytes = [request.as_bytes(), b"\x81\x05hello"].concat();
    assert_eq!(framing.consume(&bytes), Consumed { len: request.len(), error: None });
    assert!(framing.is_switching());
    framing.resume_http();
    assert!(framing.consume(b"\x81\x05hello").error.is_some());
    let mut framing = Framing::new(LIMITS);
    let request = "POST / HTTP/1.1\r\nUpgrade: x\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(framing.consume([request, request].concat().as_bytes()).len, request.len(), "after its body");
    framing.resume_http();
    assert_eq!(framing.consume(request.as_bytes()).len, request.len());
    assert_eq!(framing.heads(), 2);
}

/// Names as long as those that matter mean nothing.
#[test]
fn other_names_of_the_same_length_mean_nothing() {
    let request = "GET / HTTP/1.1\r\nReferer: x\r\nAccept-Charset: utf-8\r\nx-seventeen-chars: gzip\r\n\r\n";
    let twice = request.repeat(2);
    assert_eq!(consumed(twice.as_bytes()), Consumed { len: twice.len(), error: None });
}

#[test]
fn every_control_character_counts_beside_any_other() {
    for characters in ["\u{1}", "\u{1}\u{1}", "\u{7f}", "\u{7f}\u{7f}", "\u{1}\u{7f}", "\u{7f}\u{1}", "a\u{1f}b\u{7f}c"]
    {
        let request = format!("GET / HTTP/1.1\r\nX: {characters}\r\n\r\n");
        assert_eq!(error(&request), Some("a control character in a field"), "{characters:?}");
    }
}

#[test]
fn chunk_lines_and_extensions_have_exact_limits() {
    let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = |lengths: &[usize]| {
        let chunk = |extension: &usize| format!("1;{}\r\na\r\n", "x".repeat(extension - 1));
        error(&format!("{head}{}0\r\n\r\n", lengths.iter().map(chunk).collect::<String>()))
    };
    assert_eq!((chunks(&[255]), chunks(&[256])), (None, Some("a chunk line that is too long")));
    let almost = [[255].repeat(16), vec![15]].concat();
    assert_eq!(chunks(&[almost.clone(), vec![1]].concat()), None, "4096 bytes of extensions");
    assert_eq!(chunks(&[almost, vec![2]].concat()), Some("an invalid chunk extension, or too many"));
}

#[test]
fn trailers_have_the_limits_of_a_head() {
    let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    let trailers = |lines: &[String]| error(&format!("{head}{}\r\n", lines.concat()));
    let line = || "X: 1\r\n".to_owned();
    assert_eq!(trailers(&vec![line(); LIMITS.request_header_count]), None);
    let too_many = vec![line(); LIMITS.request_header_count + 1];
    assert_eq!(trailers(&too_many), Some("more trailers than limits.request_header_count"));
    let too_large = Some("trailers larger than limits.request_header_size");
    let of_size = |size: usize| format!("X: {}\r\n", "y".repeat(size - "X: \r\n".len()));
    let size = LIMITS.request_header_size;
    assert_eq!((trailers(&[of_size(size - 1)]), trailers(&[of_size(size)])), (None, too_large));
    let half = of_size(size / 2);
    assert_eq!(trailers(&[half.clone(), of_size(size / 2 - 1)]), None);
    assert_eq!(trailers(&[half.clone(), half]), too_large, "all lines together");
}

#[test]
fn a_response_without_a_switch_changes_nothing_in_a_body() {
    let mut framing = Framing::new(LIMITS);
    assert!(framing.consume(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n").error.is_none());
    framing.resume_http();
    assert!(framing.is_in_body());
    assert_eq!(framing.consume(b"abcGET / HTTP/1.1\r\n\r\n"), Consumed { len: 21, error: None });
}
