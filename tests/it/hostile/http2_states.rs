//! The cases of h2spec: frames that are wrong in the state of their stream, in size or in order, and the error of RFC
//! 9113 for each. Their neighbours that are right are here too.

use Expected::{Connection, Served, Stream};

use crate::support::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, PING, PREFACE, PRIORITY, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, frame,
};
use crate::support::{Gateway, Upstream};

const PUSH_PROMISE: u8 = 5;
const UNKNOWN: u8 = 0x16;
const ACK: u8 = 1;
const PADDED: u8 = 8;
const PRIORITY_FLAG: u8 = 0x20;

// RFC 9113 section 7
const PROTOCOL_ERROR: u8 = 1;
const FLOW_CONTROL_ERROR: u8 = 3;
const STREAM_CLOSED: u8 = 5;
const FRAME_SIZE_ERROR: u8 = 6;
const COMPRESSION_ERROR: u8 = 9;

/// The stream of the request that a served client sends last.
const LAST: u32 = 101;

#[derive(Clone, Debug)]
enum Expected {
    /// GOAWAY with one of these codes.
    Connection(&'static [u8]),
    /// RST_STREAM with one of these codes for stream 1, or GOAWAY: a stricter server may end the connection (section
    /// 5.4.2).
    Stream(&'static [u8]),
    /// A request after these frames is answered, and nothing was reset.
    Served,
}

/// What the client sends after its preface and SETTINGS. The name is that of the section in h2spec.
type Case = (&'static str, Vec<Vec<u8>>, Expected);

/// A request that the backend does not answer: the stream is half-closed on the side of the client.
fn ended(stream: u32) -> Vec<u8> {
    frames::get(stream, "/hang")
}

/// The same with a body that goes on: the stream is open.
fn open(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &frames::header_block("POST", "/hang"))
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

fn window(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn setting(identifier: u8, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, identifier], &value.to_be_bytes()[..]].concat())
}

/// A header block that has not ended.
fn begun(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM, stream, &frames::header_block("GET", "/"))
}

fn continuation(stream: u32, flags: u8) -> Vec<u8> {
    frame(CONTINUATION, flags, stream, &frames::block(&[("x", "1")]))
}

fn request(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &frames::block(fields))
}

fn raw(block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &[&frames::header_block("GET", "/"), block].concat())
}

fn priority(stream: u32, on: u32) -> Vec<u8> {
    frame(PRIORITY, 0, stream, &[&on.to_be_bytes()[..], &[255]].concat())
}

/// Sections 4 and 5: frames, header blocks, the states of streams.
fn states() -> Vec<Case> {
    let get = || frames::header_block("GET", "/");
    let large = vec![0; 16_385];
    vec![
        ("4.1 unknown type", vec![frame(UNKNOWN, 0, 0, &[0; 8])], Served),
        ("4.1 undefined flags", vec![frame(PING, 0x16, 0, &[0; 8])], Served),
        ("4.1 reserved bit", vec![frame(PING, 0, 1 << 31, &[0; 8])], Served),
        ("4.2 largest DATA", vec![open(1), frame(DATA, 0, 1, &large[1..])], Served),
        ("4.2 too large DATA", vec![open(1), frame(DATA, 0, 1, &large)], Stream(&[FRAME_SIZE_ERROR])),
        ("4.2 too large HEADERS", vec![frame(HEADERS, END_HEADERS, 1, &large)], Connection(&[FRAME_SIZE_ERROR])),
        ("4.3 invalid block", vec![frame(HEADERS, END_HEADERS, 1, &[0x80])], Connection(&[COMPRESSION_ERROR])),
        ("4.3 PRIORITY in a block", vec![begun(1), priority(1, 0)], Connection(&[PROTOCOL_ERROR])),
        ("4.3 another block in a block", vec![begun(1), begun(3)], Connection(&[PROTOCOL_ERROR])),
        ("5.1 idle: DATA", vec![frame(DATA, END_STREAM, 1, b"x")], Connection(&[PROTOCOL_ERROR])),
        ("5.1 idle: RST_STREAM", vec![reset(1)], Connection(&[PROTOCOL_ERROR])),
        ("5.1 idle: WINDOW_UPDATE", vec![window(1, 100)], Connection(&[PROTOCOL_ERROR])),
        ("5.1 idle: CONTINUATION", vec![continuation(1, END_HEADERS)], Connection(&[PROTOCOL_ERROR])),
        ("5.1 idle: PRIORITY", vec![priority(1, 0)], Served),
        ("5.1 half-closed: DATA", vec![ended(1), frame(DATA, END_STREAM, 1, b"x")], Stream(&[STREAM_CLOSED])),
        (
            "5.1 half-closed: HEADERS",
            vec![ended(1), frame(HEADERS, END_HEADERS | END_STREAM, 1, &get())],
            Stream(&[STREAM_CLOSED]),
        ),
        (
            "5.1 half-closed: HEADERS without END_STREAM",
            vec![ended(1), frame(HEADERS, END_HEADERS, 1, &get())],
            Stream(&[STREAM_CLOSED, PROTOCOL_ERROR]),
        ),
        (
            "5.1 half-closed after trailers: HEADERS",
            vec![
                open(1),
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &frames::block(&[("x-sum", "1")])),
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &get()),
            ],
            Stream(&[STREAM_CLOSED]),
        ),
        (
            "5.1 half-closed: CONTINUATION",
            vec![ended(1), continuation(1, END_HEADERS)],
            Connection(&[STREAM_CLOSED, PROTOCOL_ERROR]),
        ),
        ("5.1 half-closed: WINDOW_UPDATE", vec![ended(1), window(1, 100)], Served),
        ("5.1 half-closed: PRIORITY", vec![ended(1), priority(1, 0)], Served),
        ("5.1 half-closed: RST_STREAM", vec![ended(1), reset(1)], Served),
        (
            "5.1 closed: HEADERS",
            vec![open(1), reset(1), frame(HEADERS, END_HEADERS | END_STREAM, 1, &get())],
            Stream(&[STREAM_CLOSED]),
        ),
        (
            "5.1 closed: CONTINUATION",
            vec![open(1), reset(1), continuation(1, END_HEADERS)],
            Connection(&[STREAM_CLOSED, PROTOCOL_ERROR]),
        ),
        ("5.1 closed: PRIORITY", vec![open(1), reset(1), priority(1, 0)], Served),
        (
            "5.1.1 a stream that the client has left out",
            vec![ended(1), ended(7), frames::get(3, "/")],
            Connection(&[PROTOCOL_ERROR]),
        ),
        ("5.1.1 DATA of such a stream", vec![ended(7), frame(DATA, 0, 1, b"x")], Stream(&[STREAM_CLOSED])),
        ("5.1.1 even stream", vec![frames::get(2, "/")], Connection(&[PROTOCOL_ERROR])),
        ("5.1.1 lower stream", vec![ended(5), frames::get(3, "/")], Connection(&[PROTOCOL_ERROR])),
        ("5.5 unknown frame", vec![frame(UNKNOWN, 0, 1, &[0; 8])], Served),
        ("5.5 unknown frame in a block", vec![begun(1), frame(UNKNOWN, 0, 0, &[0; 8])], Connection(&[PROTOCOL_ERROR])),
    ]
}

/// Section 5.1, for a request before the newest one. `later`: requests that the client sends in between.
fn states_of_an_older_stream(name: &'static str, later: &[u8]) -> Vec<Case> {
    let closed = || Stream(&[STREAM_CLOSED]);
    let headers = |flags: u8| frame(HEADERS, END_HEADERS | flags, 1, &frames::header_block("GET", "/"));
    let trailers = || frame(HEADERS, END_HEADERS | END_STREAM, 1, &frames::block(&[("x-sum", "1")]));
    let data = |flags: u8| frame(DATA, flags, 1, b"x");
    let begun_by = |begun: Vec<Vec<u8>>, then: Vec<Vec<u8>>| [begun, vec![later.to_vec()], then].concat();
    let half_closed = [
        (vec![headers(END_STREAM)], closed()),
        (vec![headers(0)], closed()),
        (vec![data(0)], closed()),
        (vec![data(END_STREAM)], closed()),
        (vec![window(1, 100), priority(1, 0), reset(1)], Served),
    ];
    let half_closed = half_closed.map(|(then, expected)| (name, begun_by(vec![ended(1)], then), expected));
    let others = [
        (vec![open(1), reset(1)], vec![headers(END_STREAM)], closed()),
        (vec![open(1), reset(1)], vec![data(END_STREAM)], closed()),
        (vec![open(1), reset(1)], vec![priority(1, 0)], Served),
        (vec![open(1), trailers()], vec![headers(END_STREAM)], closed()),
        (vec![open(1), data(END_STREAM)], vec![trailers()], closed()),
        (vec![open(1), data(0)], vec![data(0), data(END_STREAM), window(1, 100)], Served),
        (vec![open(1), data(0)], vec![data(0), trailers()], Served),
    ];
    let others = others.map(|(begun, then, expected)| (name, begun_by(begun, then), expected));
    half_closed.into_iter().chain(others).collect()
}

/// Section 6: each type of frame.
fn types() -> Vec<Case> {
    let get = || frames::header_block("GET", "/");
    let padded = |kind: u8, flags: u8, pad: u8, rest: &[u8]| frame(kind, flags | PADDED, 1, &[&[pad], rest].concat());
    vec![
        ("6.1 stream 0", vec![frame(DATA, END_STREAM, 0, b"x")], Connection(&[PROTOCOL_ERROR])),
        ("6.1 padding", vec![open(1), padded(DATA, 0, 2, b"x\0\0")], Served),
        ("6.1 padding too long", vec![open(1), padded(DATA, END_STREAM, 6, b"x")], Connection(&[PROTOCOL_ERROR])),
        ("6.2 stream 0", vec![frame(HEADERS, END_HEADERS, 0, &get())], Connection(&[PROTOCOL_ERROR])),
        (
            "6.2 padding too long",
            vec![padded(HEADERS, END_HEADERS | END_STREAM, 200, &get())],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.2 priority",
            vec![frame(
                HEADERS,
                END_HEADERS | END_STREAM | PRIORITY_FLAG,
                1,
                &[&[0, 0, 0, 0, 255][..], &get()].concat(),
            )],
            Served,
        ),
        ("6.3 stream 0", vec![priority(0, 1)], Connection(&[PROTOCOL_ERROR])),
        ("6.3 length", vec![open(1), frame(PRIORITY, 0, 1, &[0; 4])], Stream(&[FRAME_SIZE_ERROR])),
        ("6.4 stream 0", vec![reset(0)], Connection(&[PROTOCOL_ERROR])),
        ("6.4 length", vec![open(1), frame(RST_STREAM, 0, 1, &[0; 3])], Connection(&[FRAME_SIZE_ERROR])),
        ("6.5 ACK with payload", vec![frame(SETTINGS, ACK, 0, &[0; 6])], Connection(&[FRAME_SIZE_ERROR])),
        ("6.5 stream", vec![frame(SETTINGS, 0, 1, &[])], Connection(&[PROTOCOL_ERROR])),
        ("6.5 length", vec![frame(SETTINGS, 0, 0, &[0; 3])], Connection(&[FRAME_SIZE_ERROR])),
        ("6.5.2 ENABLE_PUSH", vec![setting(2, 2)], Connection(&[PROTOCOL_ERROR])),
        ("6.5.2 INITIAL_WINDOW_SIZE", vec![setting(4, 1 << 31)], Connection(&[FLOW_CONTROL_ERROR])),
        ("6.5.2 small MAX_FRAME_SIZE", vec![setting(5, 16_383)], Connection(&[PROTOCOL_ERROR])),
        ("6.5.2 large MAX_FRAME_SIZE", vec![setting(5, 1 << 24)], Connection(&[PROTOCOL_ERROR])),
        ("6.5.2 unknown", vec![setting(0xff, 1)], Served),
        ("6.7 ACK", vec![frame(PING, ACK, 0, &[9; 8])], Served),
        ("6.7 stream", vec![frame(PING, 0, 1, &[0; 8])], Connection(&[PROTOCOL_ERROR])),
        ("6.7 length", vec![frame(PING, 0, 0, &[0; 6])], Connection(&[FRAME_SIZE_ERROR])),
        ("6.8 stream", vec![frame(GOAWAY, 0, 1, &[0; 8])], Connection(&[PROTOCOL_ERROR])),
        ("6.9 increment 0", vec![window(0, 0)], Connection(&[PROTOCOL_ERROR])),
        ("6.9 increment 0 of a stream", vec![open(1), window(1, 0)], Stream(&[PROTOCOL_ERROR])),
        ("6.9 length", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])], Connection(&[FRAME_SIZE_ERROR])),
        ("6.9.1 largest window", vec![window(0, (1 << 31) - 1 - 65_535)], Served),
        ("6.9.1 too large window", vec![window(0, (1 << 31) - 1)], Connection(&[FLOW_CONTROL_ERROR])),
        ("6.9.1 too large window of a stream", vec![ended(1), window(1, (1 << 31) - 1)], Stream(&[FLOW_CONTROL_ERROR])),
        (
            "6.9.2 window changed to too large",
            vec![ended(1), window(1, 1 << 30), setting(4, i32::MAX.unsigned_abs())],
            Connection(&[FLOW_CONTROL_ERROR]),
        ),
        (
            "6.10 CONTINUATION frames",
            vec![begun(1), continuation(1, 0), continuation(1, 0), continuation(1, END_HEADERS)],
            Served,
        ),
        (
            "6.10 DATA in a block",
            vec![begun(1), continuation(1, 0), frame(DATA, END_STREAM, 1, b"x")],
            Connection(&[PROTOCOL_ERROR]),
        ),
        ("6.10 stream 0", vec![begun(1), continuation(0, END_HEADERS)], Connection(&[PROTOCOL_ERROR])),
        ("6.10 after END_HEADERS", vec![ended(1), continuation(1, END_HEADERS)], Connection(&[PROTOCOL_ERROR])),
        (
            "6.10 after CONTINUATION with END_HEADERS",
            vec![begun(1), continuation(1, END_HEADERS), continuation(1, END_HEADERS)],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.10 after DATA",
            vec![open(1), frame(DATA, 0, 1, b"x"), continuation(1, END_HEADERS)],
            Connection(&[PROTOCOL_ERROR]),
        ),
        ("7 unknown code in RST_STREAM", vec![open(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 0xff])], Served),
    ]
}

/// Section 8 and HPACK: requests.
fn requests() -> Vec<Case> {
    let [method, scheme, authority, path] =
        [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    let with = |field| request(&[method, scheme, authority, path, field]);
    let of_length = |length, data: &[Vec<u8>]| {
        let fields = frames::block(&[method, scheme, authority, path, ("content-length", length)]);
        [&[frame(HEADERS, END_HEADERS, 1, &fields)], data].concat()
    };
    let malformed = || Stream(&[PROTOCOL_ERROR]);
    vec![
        ("8.1 second HEADERS without END_STREAM", vec![open(1), frame(HEADERS, END_HEADERS, 1, &[])], malformed()),
        ("8.2 upper case", vec![with(("X-Test", "1"))], malformed()),
        ("8.3 unknown pseudo-header", vec![with((":test", "1"))], malformed()),
        ("8.3 pseudo-header of responses", vec![with((":status", "200"))], malformed()),
        ("8.3 pseudo-header after a field", vec![request(&[method, ("x", "1"), scheme, authority, path])], malformed()),
        ("8.2.2 connection", vec![with(("connection", "keep-alive"))], malformed()),
        ("8.2.2 te", vec![with(("te", "trailers, deflate"))], malformed()),
        ("8.2.2 te: trailers", vec![with(("te", "trailers"))], Served),
        ("8.3.1 empty path", vec![request(&[method, scheme, authority, (":path", "")])], malformed()),
        ("8.3.1 no method", vec![request(&[scheme, authority, path])], malformed()),
        ("8.3.1 no scheme", vec![request(&[method, authority, path])], malformed()),
        ("8.3.1 no path", vec![request(&[method, scheme, authority])], malformed()),
        ("8.3.1 two methods", vec![request(&[method, method, scheme, authority, path])], malformed()),
        ("8.1.1 shorter body", of_length("5", &[frame(DATA, END_STREAM, 1, b"test")]), malformed()),
        (
            "8.1.1 longer body",
            of_length("1", &[frame(DATA, 0, 1, b"te"), frame(DATA, END_STREAM, 1, b"st")]),
            malformed(),
        ),
        (
            "8.1.1 the right body",
            of_length("4", &[frame(DATA, 0, 1, b"te"), frame(DATA, END_STREAM, 1, b"st")]),
            Served,
        ),
        ("8.4 PUSH_PROMISE", vec![frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])], Connection(&[PROTOCOL_ERROR])),
        ("HPACK 2.3.3 index", vec![raw(&[0xff, 0])], Connection(&[COMPRESSION_ERROR])),
        ("HPACK 4.2 size at the end", vec![raw(&[0x21])], Connection(&[COMPRESSION_ERROR])),
        (
            "HPACK 5.2 padding",
            vec![raw(&[0, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x84, 0x49, 0x50, 0x9f, 0xff])],
            Connection(&[COMPRESSION_ERROR]),
        ),
        (
            "HPACK 5.2 EOS",
            vec![raw(&[0, 0x85, 0xf2, 0xb2, 0x4a, 0x87, 0xff, 0x89, 0xf3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xcf])],
            Connection(&[COMPRESSION_ERROR]),
        ),
        ("HPACK 6.1 index 0", vec![raw(&[0x80])], Connection(&[COMPRESSION_ERROR])),
        (
            "HPACK 6.3 size",
            vec![frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &[&[0x3f, 0xe2, 0x1f][..], &frames::header_block("GET", "/")].concat(),
            )],
            Connection(&[COMPRESSION_ERROR]),
        ),
    ]
}

/// h2 names every error of the connection PROTOCOL_ERROR, also where the RFC has a name for it. The connection ends in
/// the same way.
fn is_code(code: u8, kind: u8, expected: &[u8]) -> bool {
    let is_named = |code: &u8| [FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, COMPRESSION_ERROR].contains(code);
    expected.contains(&code) || kind == GOAWAY && code == PROTOCOL_ERROR && expected.iter().all(is_named)
}

/// Sends the frames, and says what the gateway did otherwise.
async fn fault(gateway: &Gateway, (name, sent, expected): &Case) -> Option<String> {
    let sent = [vec![frames::connection_preface()], sent.clone()].concat();
    let mut client = frames::connect(gateway.address(), &sent).await;
    if matches!(expected, Served) {
        client.send(frames::get(LAST, "/")).await;
    }
    loop {
        let found = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
        let code = match found.kind {
            GOAWAY => found.payload[7],
            RST_STREAM => found.payload[3],
            _ => 0,
        };
        let is_expected = match (expected, found.kind) {
            // The response to the request of the case.
            (Served, HEADERS) if found.stream != LAST => continue,
            (Served, HEADERS) => found.payload[0] == OK,
            (Connection(codes) | Stream(codes), GOAWAY) => is_code(code, GOAWAY, codes),
            (Stream(codes), RST_STREAM) => found.stream == 1 && is_code(code, RST_STREAM, codes),
            _ => false,
        };
        return (!is_expected).then(|| format!("{name}: expected {expected:?}, found {found:?}"));
    }
}

#[tokio::test]
async fn each_frame_that_is_wrong_gets_the_error_of_the_rfc() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\npenalty_duration = \"0s\"\n");
    let older = states_of_an_older_stream("5.1 before the newest", &ended(3));
    let with_gap = states_of_an_older_stream("5.1 before the newest, with a gap", &[ended(5), ended(11)].concat());
    let cases: Vec<Case> = [states(), older, with_gap, types(), requests()].concat();
    let mut faults = Vec::new();
    for case in &cases {
        faults.extend(fault(&gateway, case).await);
    }
    eprintln!("{} cases of HTTP/2", cases.len());
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

/// RFC 9113 section 5.1: the gateway has reset a request, and the rest of its body is still on the way.
#[tokio::test]
async fn frames_of_a_request_that_the_gateway_has_reset_do_no_harm() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let without_path = frames::block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a")]);
    let wrong = frame(HEADERS, END_HEADERS, 1, &without_path);
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), wrong]).await;
    let found = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
    assert_eq!((found.kind, found.stream), (RST_STREAM, 1), "{found:?}");
    let rest =
        [frame(DATA, 0, 1, b"x"), frames::get(3, "/"), frame(DATA, 0, 1, b"x"), frame(DATA, END_STREAM, 1, b"x")];
    for frame in rest.into_iter().chain([frames::get(5, "/")]) {
        client.send(frame).await;
    }
    for stream in [3, 5] {
        let found = frames::next(&mut client, &[HEADERS, GOAWAY]).await;
        assert_eq!((found.kind, found.stream, found.payload[0]), (HEADERS, stream, OK), "{found:?}");
    }
    // But not after its end.
    client.send(frame(DATA, 0, 1, b"x")).await;
    let found = frames::next(&mut client, &[HEADERS, GOAWAY]).await;
    assert_eq!((found.kind, found.payload[7]), (GOAWAY, STREAM_CLOSED), "{found:?}");
}

/// RFC 9113 section 3.4: the preface is these 24 bytes, and then SETTINGS.
#[tokio::test]
async fn a_connection_begins_with_settings() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let ping = frame(PING, 0, 0, &[0; 8]);
    for first in
        [frames::get(1, "/"), ping.clone(), frame(SETTINGS, ACK, 0, &[]), window(0, 1), frame(UNKNOWN, 0, 0, &[])]
    {
        let sent = [PREFACE.as_bytes().to_vec(), first.clone(), frame(SETTINGS, 0, 0, &[]), frames::get(3, "/")];
        let mut client = frames::connect(gateway.address(), &sent).await;
        // The server's own SETTINGS come first, as it must.
        let settings = frames::next(&mut client, &[HEADERS, PING, GOAWAY, SETTINGS]).await;
        assert_eq!(settings.kind, SETTINGS, "{first:?}");
        let end = frames::next(&mut client, &[HEADERS, PING, GOAWAY]).await;
        assert_eq!((end.kind, end.payload[7]), (GOAWAY, PROTOCOL_ERROR), "{first:?}: {end:?}");
        client.read_to_end().await;
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
    // Byte by byte, too.
    let mut client = crate::support::Wire::connect(gateway.address()).await;
    for byte in [PREFACE.as_bytes(), &ping].concat() {
        if client.try_send([byte]).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(frames::next(&mut client, &[PING, GOAWAY]).await.kind, GOAWAY);
    let honest = [frames::connection_preface(), frames::get(1, "/")];
    let mut client = frames::connect(gateway.address(), &honest).await;
    assert_eq!(frames::next(&mut client, &[HEADERS]).await.payload[0], OK, "no penalty follows");
}
