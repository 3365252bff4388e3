//! HTTP/2 trailers with pseudo-headers (RFC 9113 section 8.1), in each form that HPACK and the frames allow.

use crate::support::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, PING, RST_STREAM, connection_preface,
};
use crate::support::{Gateway, Upstream, Wire};

/// `:path: /other`, which enters the dynamic table of HPACK as its newest field.
const INDEXED_PATH: [u8; 8] = *b"\x44\x06/other";
/// That field.
const NEWEST: u8 = 0xbe;

/// The gateways for a backend with each protocol.
fn gateways() -> [(Upstream, Gateway); 2] {
    [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")].map(|(upstream, protocol)| {
        let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\""));
        (upstream, gateway)
    })
}

/// Begins a `POST /upload` with the body `body`, without an end.
async fn begin(client: &mut Wire, stream: u32) {
    let post = frames::frame(HEADERS, END_HEADERS, stream, &frames::header_block("POST", "/upload"));
    client.send([post, frames::frame(DATA, 0, stream, b"body")].concat()).await;
}

/// Sends `GET /other`, so that its path is in the dynamic table.
async fn connect_with_indexed_path(gateway: &Gateway) -> Wire {
    let without_path = frames::block(&[(":method", "GET"), (":scheme", "http"), (":authority", "a")]);
    let get = frames::frame(HEADERS, END_STREAM | END_HEADERS, 1, &[&without_path[..], &INDEXED_PATH].concat());
    let mut client = frames::connect(gateway.address(), &[connection_preface(), get]).await;
    assert_eq!(frames::next(&mut client, &[HEADERS]).await.payload[0], OK);
    client
}

/// h2 drops these pseudo-headers; the stream ends, so that nothing is taken for a whole request.
#[tokio::test]
async fn pseudo_headers_in_trailers_end_the_stream() {
    for (upstream, gateway) in gateways() {
        let mut client = connect_with_indexed_path(&gateway).await;
        upstream.forget();
        let later = |pseudo: &[u8]| [&frames::block(&[("x-sum", "7")])[..], pseudo].concat();
        let malformed = [
            vec![frames::block(&[(":path", "/other")])],
            vec![frames::block(&[(":status", "200"), ("x-sum", "7")])],
            // `:path: /` of the static table, and `:authority` as a literal with indexing.
            vec![vec![0x84]],
            vec![vec![0x41, 1, b'b']],
            // Cut behind its first field.
            vec![frames::block(&[(":path", "/other")]), frames::block(&[("x-sum", "7")])],
            // After another field, in any form.
            vec![later(&frames::block(&[(":method", "GET")]))],
            vec![later(&[NEWEST])],
            vec![frames::block(&[("x-sum", "7")]), vec![NEWEST]],
            vec![later(&[0]), frames::block(&[(":path", "/other")]).split_off(1)],
        ];
        for (fragments, stream) in malformed.into_iter().zip((3..).step_by(2)) {
            begin(&mut client, stream).await;
            client.send(trailers(stream, &fragments)).await;
            let reset = frames::next(&mut client, &[RST_STREAM, GOAWAY, HEADERS]).await;
            let protocol_error = [0, 0, 0, 1].to_vec();
            let expected = (RST_STREAM, stream, protocol_error);
            assert_eq!((reset.kind, reset.stream, reset.payload), expected, "{fragments:02x?}");
        }
        assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
        begin(&mut client, 101).await;
        client.send(trailers(101, &[frames::block(&[("x-sum", "7")])])).await;
        let response = frames::next(&mut client, &[RST_STREAM, GOAWAY, HEADERS]).await;
        assert_eq!((response.kind, response.stream, response.payload[0]), (HEADERS, 101, OK));
        assert_eq!(upstream.only_request().body, "body");
    }
}

/// RFC 9113 section 4.1: a receiver ignores this bit.
#[tokio::test]
async fn the_reserved_bit_of_a_stream_id_hides_no_trailers() {
    const RESERVED: u32 = 1 << 31;
    let (upstream, gateway) = gateways().into_iter().next().expect("one for each protocol");
    let mut client = connect_with_indexed_path(&gateway).await;
    upstream.forget();
    begin(&mut client, 3).await;
    client.send(trailers(3 | RESERVED, &[frames::block(&[(":path", "/other")])])).await;
    let reset = frames::next(&mut client, &[RST_STREAM, GOAWAY, HEADERS]).await;
    assert_eq!((reset.kind, reset.stream), (RST_STREAM, 3));
    for stream in [5 | RESERVED, 7, 9 | RESERVED] {
        let get = frames::header_block("GET", "/");
        client.send(frames::frame(HEADERS, END_STREAM | END_HEADERS, stream, &get)).await;
        let response = frames::next(&mut client, &[RST_STREAM, GOAWAY, HEADERS]).await;
        assert_eq!((response.kind, response.stream, response.payload[0]), (HEADERS, stream & !RESERVED, OK));
    }
}

/// A header block in one HEADERS frame and CONTINUATION frames.
fn trailers(stream: u32, fragments: &[Vec<u8>]) -> Vec<u8> {
    let framed = fragments.iter().enumerate().map(|(number, fragment)| {
        let end = if number + 1 == fragments.len() { END_HEADERS } else { 0 };
        match number {
            0 => frames::frame(HEADERS, END_STREAM | end, stream, fragment),
            _ => frames::frame(CONTINUATION, end, stream, fragment),
        }
    });
    framed.collect::<Vec<_>>().concat()
}

/// Only h2 knows its table, and the first bytes of a block may come later than its flags. h2 drops the pseudo-headers.
#[tokio::test]
async fn hidden_pseudo_headers_in_trailers_reach_no_backend() {
    for (upstream, gateway) in gateways() {
        let mut client = connect_with_indexed_path(&gateway).await;
        upstream.forget();
        let sum = frames::block(&[("x-sum", "7")]);
        let path = frames::block(&[(":path", "/other")]);
        let hidden = [
            // A field of the dynamic table, and only its name (index 62 is 15 and 47).
            vec![[&[NEWEST], &sum[..]].concat()],
            vec![[&[0x0f, 47, 2, b'/', b'b'], &sum[..]].concat()],
            // The whole field in CONTINUATION, or all but its first byte.
            vec![vec![], [&path[..], &sum].concat()],
            vec![path[..1].to_vec(), [&path[1..], &sum].concat()],
            vec![vec![], vec![0x81], sum.clone()],
        ];
        for (fragments, stream) in hidden.into_iter().zip((3..).step_by(2)) {
            begin(&mut client, stream).await;
            client.send(trailers(stream, &fragments)).await;
            assert_taken(&mut client, stream, &upstream, &format!("{fragments:02x?}")).await;
        }
        // The response to PING shows that the gateway has read the header of the frame, and nothing of its payload.
        begin(&mut client, 101).await;
        let trailers = trailers(101, &[[&path[..], &sum].concat()]);
        client.send([&frames::frame(PING, 0, 0, &[0; 8]), &trailers[..9]].concat()).await;
        frames::next(&mut client, &[PING]).await;
        client.send(&trailers[9..]).await;
        assert_taken(&mut client, 101, &upstream, "header and payload apart").await;
    }
}

/// The request arrives at the backend as it was before its trailers.
async fn assert_taken(client: &mut Wire, stream: u32, upstream: &Upstream, form: &str) {
    let response = frames::next(client, &[RST_STREAM, GOAWAY, HEADERS]).await;
    assert_eq!((response.kind, response.stream, response.payload[0]), (HEADERS, stream, OK), "{form}");
    let seen = upstream.only_request();
    let path = seen.uri.trim_start_matches("http://a");
    let request = (seen.method.as_str(), path, &*seen.host(), &*seen.body);
    assert_eq!(request, ("POST", "/upload", "a", &b"body"[..]), "{form}");
    let names: Vec<_> = seen.trailers.iter().flat_map(|trailers| trailers.keys()).map(|name| name.as_str()).collect();
    assert!(names.iter().all(|name| *name == "x-sum"), "{form}: {names:?}");
    assert!(!seen.headers.keys().any(|name| name.as_str().contains("path")), "{form}: {seen:?}");
    upstream.forget();
}
