//! Requests that are read in one piece, byte by byte, and not at all.

use super::head::BARE_LF;
use super::*;

const LIMITS: Limits = Limits { request_header_size: 512, request_header_count: 8 };

/// How much goes on of `bytes`, and why no more; the same whether it comes at once or byte by byte.
fn passed(bytes: &[u8]) -> Consumed {
    let at_once = Framing::new(LIMITS).pass(bytes);
    let (mut framing, mut start) = (Framing::new(LIMITS), 0);
    for end in 1..=bytes.len() {
        let step = framing.pass(&bytes[start..end]);
        start += step.len;
        if step.fault.is_some() {
            assert_eq!(at_once, Consumed { len: start, fault: step.fault }, "{:?}", bytes.escape_ascii().to_string());
            return at_once;
        }
    }
    assert_eq!(at_once, Consumed { len: start, fault: None }, "{:?}", bytes.escape_ascii().to_string());
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
        assert_eq!(passed(request.as_bytes()), Consumed { len: request.len(), fault: None }, "{request:?}");
        assert_eq!(passed(twice.as_bytes()), Consumed { len: twice.len(), fault: None }, "{request:?}");
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
        assert_eq!(passed(bytes.as_bytes()), Consumed { len: get.len() + goes_on, fault: None }, "{begun:?}");
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
    assert_eq!(what("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Some("Transfer-Encoding in HTTP/1.0"));
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
        Some("more trailers than limits.request_header_count")
    );
    assert_eq!(
        what(&[chunked, "0\r\nX: ", &"v".repeat(600)].concat()),
        Some("trailers larger than limits.request_header_size")
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
    assert_eq!(framing.pass(&bytes), Consumed { len: ask.len(), fault: None });
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
