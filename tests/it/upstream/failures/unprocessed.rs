//! Requests that an HTTP/2 backend has certainly not processed (RFC 9113 section 8.7) are sent again, whatever their
//! method. Their neighbours, which it may have processed, are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request};
use tempfile::TempDir;

use super::points::End;
use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, frame};
use crate::support::front_proxy::{FrontProxy, nginx};
use crate::support::ports::free_address;
use crate::support::{Gateway, ScriptedBackend};

const NO_ERROR: u8 = 0;
const INTERNAL_ERROR: u8 = 2;
const REFUSED_STREAM: u8 = 7;
const ENHANCE_YOUR_CALM: u8 = 11;

/// What the backend does with its first request.
#[derive(Clone, Copy, Debug)]
enum First {
    Reset(u8),
    /// The last stream that it may have processed, and the code. Then it closes the connection.
    GoAway(u8, u8),
    Close,
}

/// Answers each request but the first one. Returns how many requests it got.
fn backend(first: First) -> (ScriptedBackend, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let count = requests.clone();
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let count = count.clone();
        async move {
            wire.read_bytes(frames::PREFACE.len()).await;
            wire.send(frame(SETTINGS, 0, 0, &[])).await;
            loop {
                let request = frames::next(&mut wire, &[HEADERS, GOAWAY]).await;
                if request.kind == GOAWAY {
                    return;
                }
                let number = count.fetch_add(1, Ordering::SeqCst);
                let answer = frame(HEADERS, END_HEADERS | END_STREAM, request.stream, &[frames::OK]);
                match first {
                    _ if number > 0 => wire.send(answer).await,
                    First::Reset(code) => wire.send(frame(RST_STREAM, 0, request.stream, &[0, 0, 0, code])).await,
                    First::GoAway(last, code) => {
                        wire.send(frame(GOAWAY, 0, 0, &[0, 0, 0, last, 0, 0, 0, code])).await;
                        return End::HalfClose.of(wire).await;
                    }
                    First::Close => return End::HalfClose.of(wire).await,
                }
            }
        }
    });
    (backend, requests)
}

/// The status of the response, and how often the backend got the request.
async fn send(first: First, method: &str, body: &'static str) -> (u16, usize) {
    let (backend, requests) = backend(first);
    let gateway = Gateway::public_single_worker(backend.address, "protocol = \"h2\"");
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let status = gateway.client().send(method, "/", body.into()).await.status.as_u16();
    (status, requests.load(Ordering::SeqCst))
}

#[tokio::test]
async fn a_request_that_was_not_processed_is_sent_again_whatever_its_method() {
    for first in [First::Reset(REFUSED_STREAM), First::GoAway(0, NO_ERROR), First::GoAway(0, ENHANCE_YOUR_CALM)] {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "PURGE"] {
            assert_eq!(send(first, method, "").await, (200, 2), "{first:?} {method}");
        }
        // The gateway keeps no copy of a body.
        assert_eq!(send(first, "POST", "a body").await, (502, 1), "{first:?}");
    }
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_is_not_sent_again() {
    for first in [
        First::Reset(INTERNAL_ERROR),
        First::Reset(ENHANCE_YOUR_CALM),
        First::GoAway(1, NO_ERROR),
        First::GoAway(1, ENHANCE_YOUR_CALM),
        First::Close,
    ] {
        for method in ["POST", "PUT", "DELETE"] {
            assert_eq!(send(first, method, "").await, (502, 1), "{first:?} {method}");
        }
    }
}

/// A second refusal ends it: a backend that refuses everything gets each request twice.
#[tokio::test]
async fn a_request_is_sent_again_once() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_bytes(frames::PREFACE.len()).await;
        wire.send(frame(SETTINGS, 0, 0, &[])).await;
        loop {
            let request = frames::next(&mut wire, &[HEADERS, GOAWAY]).await;
            if request.kind == GOAWAY {
                return;
            }
            wire.send(frame(RST_STREAM, 0, request.stream, &[0, 0, 0, REFUSED_STREAM])).await;
        }
    });
    let gateway = Gateway::public_single_worker(backend.address, "protocol = \"h2\"");
    gateway.client().send(Method::POST, "/", "".into()).await.assert_rejected(502, "bad_gateway");
    gateway.wait_for_metric("upstream_retries_total", 1).await;
}

/// Each new connection ends before the request, too.
#[tokio::test]
async fn a_request_outlives_several_connections_that_end_before_it() {
    for (endings, status) in [(6, 200), (7, 502)] {
        let backend = ScriptedBackend::start(move |mut wire, number| async move {
            wire.read_bytes(frames::PREFACE.len()).await;
            wire.send(frame(SETTINGS, 0, 0, &[])).await;
            let request = frames::next(&mut wire, &[HEADERS]).await;
            if number < endings {
                wire.send(frame(GOAWAY, 0, 0, &[0; 8])).await;
                return End::HalfClose.of(wire).await;
            }
            wire.send(frame(HEADERS, END_HEADERS | END_STREAM, request.stream, &[frames::OK])).await;
            wire.read_to_end().await;
        });
        let gateway = Gateway::public_single_worker(backend.address, "protocol = \"h2\"");
        let response = gateway.client().send(Method::POST, "/", "".into()).await;
        assert_eq!((response.status.as_u16(), backend.connections()), (status, 7), "{response:?}");
        gateway.wait_for_metric("upstream_retries_total", 6).await;
    }
}

/// nginx ends each connection after `keepalive_requests`, while other requests are on their way.
#[tokio::test]
async fn nginx_that_ends_its_connections_loses_no_request() {
    // Fewer than `keepalive_requests`: with more, one request can meet seven endings in a row.
    const CLIENTS: usize = 12;
    const EACH: usize = 20;
    let folder = TempDir::new().expect("a folder");
    let address = free_address();
    let paths = "access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; \
        uwsgi_temp_path uwsgi; scgi_temp_path scgi;";
    let server = format!("listen {address} http2; keepalive_requests 20; location / {{ return 200 ok; }}");
    let text = format!("events {{}}\nhttp {{ {paths} server {{ {server} }} }}\n");
    std::fs::write(folder.path().join("nginx.conf"), text).expect("written");
    let path = folder.path().to_str().expect("UTF-8");
    let global = "daemon off; pid nginx.pid; error_log stderr;";
    let _nginx = FrontProxy::start(&nginx(), &["-p", path, "-c", "nginx.conf", "-g", global], folder.path(), address);
    let gateway = Gateway::public_single_worker(address, "protocol = \"h2\"");
    let clients = (0..CLIENTS).map(|number| {
        let gateway = gateway.address();
        tokio::spawn(async move {
            let mut connection = HttpConnection::http1(gateway).await;
            let mut statuses = Vec::new();
            for request in 0..EACH {
                let method = [Method::POST, Method::PUT, Method::DELETE][(number + request) % 3].clone();
                let request = Request::builder().method(method).uri("/").body(connection::empty());
                let response = connection.send(request.expect("a request")).await;
                statuses.push(response.status().as_u16());
                connection::text(response.into_body()).await;
            }
            statuses
        })
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        assert_eq!(client.await.expect("no panic"), [200; EACH]);
    }
    assert!(gateway.metric("bearward_upstream_connects_total").await >= (CLIENTS * EACH / 20) as f64);
}
