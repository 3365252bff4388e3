//! The gateway and hyper find the same requests in random bytes.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use bearward::protocols::http::framing::{Framing, Limits};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::AsyncWriteExt;

use crate::support::repetitions::repetitions;

/// The number of cases if `BEARWARD_ROUNDS` is not set.
const CASES: usize = 4000;

const LIMITS: Limits = Limits { request_header_size: 8192, request_header_count: 100 };

const COMPLETE: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
    "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n00\r\nX: 1\r\n\r\n",
    "GET / HTTP/1.1\r\nUpgrade: x\r\nHost: a\r\n\r\n",
    "\r\nPOST / HTTP/1.1\r\nX:\r\ncontent-length:\t5 \r\n\r\n0\r\n\r\n",
];

/// Parts of requests, and bytes that break them.
const PIECES: &[&str] = &[
    "POST / HTTP/1.1\r\n",
    "POST / HTTP/1.1\r\n",
    "Host: a\r\n",
    "X: 1\r\n",
    "Upgrade: x\r\n",
    "Expect: 100-continue\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 26\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding:chunked \r\n",
    "\r\n",
    "\r\n",
    "hello",
    "5\r\nhello\r\n",
    "5;x\r\nhello\r\n",
    "1A\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n",
    "0\r\n\r\n",
    "0\r\n",
    "Trailer: 1\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    ",",
    "0",
];

/// Complete requests, followed by bytes that may be one.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let known = |pieces| select(pieces).prop_map(|piece: &str| piece.as_bytes().to_vec());
    let any = prop_oneof![60 => known(PIECES), 10 => known(COMPLETE), 1 => vec(any::<u8>(), 1..3)];
    (vec(known(COMPLETE), 0..4), vec(any, 0..9)).prop_map(|(complete, any)| [complete.concat(), any.concat()].concat())
}

/// Reads `bytes` in pieces of this size. Returns how many bytes the gateway passes to hyper, how many heads these are,
/// and whether it rejects the rest.
fn read_by_gateway(bytes: &[u8], piece: usize) -> (usize, u64, bool) {
    let (mut framing, mut start, mut end) = (Framing::new(LIMITS), 0, 0);
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        loop {
            let passed = framing.consume(&bytes[start..end]);
            start += passed.len;
            if passed.error.is_some() {
                return (start, framing.heads(), true);
            }
            if !framing.is_switching() {
                break;
            }
            framing.resume_http();
        }
    }
    (start, framing.heads(), false)
}

/// Returns how many requests hyper finds, and how the connection ends.
fn read_by_hyper(bytes: &[u8]) -> (u64, hyper::Result<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        client.write_all(bytes).await.expect("room");
        client.shutdown().await.expect("memory");
        let found = Rc::new(RefCell::new(0));
        let count = found.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            *count.borrow_mut() += 1;
            async move {
                // An incomplete body ends the connection.
                let _ = request.into_body().collect().await;
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let ended = http1::Builder::new().serve_connection(TokioIo::new(server), service).await;
        (found.take(), ended)
    })
}

#[test]
fn hyper_finds_exactly_the_requests_that_the_gateway_passes() {
    let cases = u32::try_from(repetitions(CASES)).expect("fewer cases");
    let counted = RefCell::new((0, 0, 0));
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&(streams(), 1..40_usize), |(bytes, piece)| {
        let (len, heads, rejected) = read_by_gateway(&bytes, piece);
        prop_assert_eq!((len, heads, rejected), read_by_gateway(&bytes, usize::MAX / 2), "in one piece");
        let (found, ended) = read_by_hyper(&bytes[..len]);
        prop_assert_eq!(found, heads, "hyper ended with {:?}", ended);
        prop_assert!(!ended.is_err_and(|error| error.is_parse()), "hyper rejects what the gateway passed");
        let mut counted = counted.borrow_mut();
        counted.0 += u32::from(!rejected);
        counted.1 += u32::from(rejected);
        counted.2 += heads;
        Ok(())
    });
    ran.unwrap_or_else(|failure| panic!("{failure}"));
    let (good, bad, heads_found) = counted.take();
    eprintln!("{good} streams passed, {bad} rejected, {heads_found} requests in them");
    assert!(good > cases / 20 && bad > cases / 20 && heads_found > u64::from(cases), "too few streams of a kind");
}
