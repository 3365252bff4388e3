//! All changes that the gateway makes to a message. `deploy/messages.md` lists the same ones.

use std::collections::BTreeSet;

use bearward::protocols::http::removed_fields::CLIENT_CLAIMS;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version};

use super::unchanged::RecordingBackend;
use super::unchanged::exchanges::{IDENTITY, SET, exchange, fields};
use crate::support::connection::{self, HttpConnection};
use crate::support::{Backend, Gateway, ScriptedBackend, Wire};

/// Headers that the gateway removes from every request.
const REMOVED: [(&str, &str); 7] = [
    ("expect", "100-continue"),
    ("proxy", "http://192.0.2.1:8080"),
    ("proxy-authenticate", "Basic"),
    ("proxy-authorization", "Basic YTpi"),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("tracestate", "a=1"),
    ("x-auth-observed", "expired"),
];
/// Headers that the gateway removes, and that only HTTP/1.1 has.
const HOP_BY_HOP: [(&str, &str); 5] = [
    ("connection", "x-own, upgrade, http2-settings"),
    ("http2-settings", "AAMAAABkAAQAAP__"),
    ("keep-alive", "timeout=5"),
    ("proxy-connection", "keep-alive"),
    ("upgrade", "h2c"),
];
/// Headers that the gateway removes if a route checks the method.
const METHODS: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];
/// Headers that the gateway changes. Other tests check how.
const CHANGED: [&str; 14] = [
    "access-control-allow-credentials",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "authorization",
    "content-length",
    "content-location",
    "cookie",
    "date",
    "host",
    "location",
    "refresh",
    "vary",
    "x-api-key",
    "x-forward-auth-secret",
];

/// Replaces the `*` of a pattern, to get a header name.
fn header_name(name: &str) -> HeaderName {
    name.replace('*', "member").parse().expect("a name")
}

#[tokio::test]
async fn only_the_documented_headers_are_removed() {
    for backend_version in [Version::HTTP_11, Version::HTTP_2] {
        let (recorder, _backend, gateway) = RecordingBackend::with_gateway(backend_version).await;
        let pair = gateway.issue("alice", "bears:keep").await;
        for client_version in [Version::HTTP_11, Version::HTTP_2] {
            let versions = format!("{client_version:?} to {backend_version:?}");
            let mut sent = HeaderMap::new();
            sent.insert("x-stays", HeaderValue::from_static("1"));
            sent.insert("authorization", format!("Bearer {}", pair.access).parse().expect("a value"));
            sent.append("cookie", HeaderValue::from_static("a=1"));
            sent.append("cookie", HeaderValue::from_static("b=2"));
            for name in METHODS {
                sent.insert(name, HeaderValue::from_static("DELETE"));
            }
            let mut expected = sent.clone();
            if backend_version == Version::HTTP_11 {
                expected.insert("cookie", HeaderValue::from_static("a=1; b=2"));
            }
            let mut removed = REMOVED.to_vec();
            if client_version == Version::HTTP_11 {
                sent.insert("x-own", HeaderValue::from_static("nominated"));
                sent.insert("te", HeaderValue::from_static("gzip, trailers;q=0.5, trailers"));
                expected.insert("te", HeaderValue::from_static("trailers"));
                removed.extend(HOP_BY_HOP);
            }
            for (name, value) in &removed {
                sent.insert(header_name(name), HeaderValue::from_static(value));
            }
            for name in CLIENT_CLAIMS {
                sent.insert(header_name(&name.to_lowercase()), HeaderValue::from_static("/admin"));
            }
            for name in SET.iter().chain(&IDENTITY) {
                sent.insert(HeaderName::from_static(name), HeaderValue::from_static("forged"));
            }
            recorder.prepare(&exchange("", "GET", "/"));
            let mut request = Request::get("/").body(connection::empty()).expect("a request");
            *request.headers_mut() = sent;
            let response = HttpConnection::of(client_version, gateway.address()).await.send(request).await;
            assert_eq!(response.status(), 200, "{versions}");
            let arrived = recorder.arrived.lock().expect("unpoisoned").take().expect("it arrived").headers;
            assert_eq!(
                fields(&arrived, &[&SET[..], &IDENTITY, &["host"]].concat()),
                fields(&expected, &[]),
                "{versions}"
            );
            for name in SET.iter().chain(&IDENTITY) {
                let values: Vec<_> = arrived.get_all(*name).iter().collect();
                assert!(values.len() == 1 && values[0] != "forged", "{versions}: {name}: {values:?}");
            }
        }
    }
}

/// The tables of `deploy/messages.md` have the same headers.
#[test]
fn every_change_is_documented() {
    let page = crate::support::source::read("deploy/messages.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let first_columns = rows.filter_map(|row| row.split('|').nth(1));
    let documented = first_columns.flat_map(|column| column.split('`').skip(1).step_by(2)).map(str::to_lowercase);
    let removed = REMOVED.iter().chain(&HOP_BY_HOP).map(|(name, _)| *name);
    let tested =
        SET.into_iter().chain(IDENTITY).chain(CHANGED).chain(["te", "transfer-encoding"]).chain(METHODS).chain(removed);
    let claims = CLIENT_CLAIMS.iter().map(|name| name.to_lowercase());
    let documented: BTreeSet<String> = documented.collect();
    assert_eq!(documented, tested.map(str::to_owned).chain(claims).collect());
}

/// The gateway adds a missing `Date` (RFC 9110 section 6.6.1), and no other header.
#[tokio::test]
async fn a_response_without_a_date_gets_one_and_nothing_else() {
    let backend = ScriptedBackend::responding_with("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let gateway = Gateway::public(backend.address, "");
    for client in gateway.clients() {
        let response = client.get("/").await;
        let mut names: Vec<_> = response.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "date"], "{response:?}");
    }
}

/// The limits are those of `deploy/messages.md`. A larger response becomes a 502.
#[tokio::test]
async fn response_headers_have_a_maximum_size_and_count() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let backend = Backend::start(version, move |request| async move {
            let mut numbers = request.uri().path().split('/').skip(1).map(|number| number.parse::<usize>());
            let [Some(Ok(count)), Some(Ok(size))] = [numbers.next(), numbers.next()] else { panic!("two numbers") };
            let mut response = Response::new(connection::empty());
            for number in 0..count {
                let name: HeaderName = format!("x-{number}").parse().expect("a name");
                response.headers_mut().insert(name, "v".repeat(size).parse().expect("a value"));
            }
            response
        })
        .await;
        let gateway = Gateway::public(backend.address, backend.protocol());
        // `Date` and `Content-Length` count as well.
        let cases = match version {
            Version::HTTP_2 => [("/3/80000", 200), ("/4/70000", 502), ("/150/10", 200)],
            _ => [("/5/80000", 200), ("/98/10", 200), ("/101/10", 502)],
        };
        for client_version in [Version::HTTP_11, Version::HTTP_2] {
            let mut connection = HttpConnection::of(client_version, gateway.address()).await;
            for (path, status) in cases {
                let request = Request::get(path).body(connection::empty()).expect("a request");
                let response = connection.send(request).await;
                assert_eq!(response.status(), status, "{client_version:?} to {version:?}: {path}");
                connection::text(response.into_body()).await;
            }
        }
    }
}

/// Header names are in lower case, in the order of their first occurrence.
#[tokio::test]
async fn the_head_of_a_forwarded_http1_request_is_exact() {
    let (heads, mut received) = tokio::sync::mpsc::unbounded_channel();
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let heads = heads.clone();
        async move {
            heads.send(wire.read_until("\r\n\r\n").await).expect("the test waits for it");
            wire.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        }
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send("GET /a HTTP/1.1\r\nX-One:  1 \r\nHOST: Gateway.Test\r\nx-TWO: 2\r\nX-One: 3\r\n\r\n").await;
    assert_eq!(client.read_response().await.status, 204);
    let head = received.recv().await.expect("it arrived");
    let (head, id) = head.split_once("x-request-id: ").expect("the request id comes last");
    assert_eq!(
        head,
        "GET /a HTTP/1.1\r\nx-one: 1\r\nx-one: 3\r\nhost: Gateway.Test\r\nx-two: 2\r\n\
         x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nforwarded: for=127.0.0.1;proto=http\r\n\
         x-forwarded-host: Gateway.Test\r\n"
    );
    assert_eq!(id.trim_end().len(), 32, "{id}");
}
