//! The changes that the gateway makes to a message: each is on the list in `deploy/messages.md`, and here.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version};

use super::faithful::{IDENTITY, SET, Table, exchange, fields};
use crate::support::connection::{self, HttpConnection};
use crate::support::{Backend, Gateway, ScriptedBackend, Wire};

/// What a client says under these names reaches no backend.
const REMOVED: [(&str, &str); 9] = [
    ("expect", "100-continue"),
    ("proxy", "http://192.0.2.1:8080"),
    ("proxy-authenticate", "Basic"),
    ("proxy-authorization", "Basic YTpi"),
    ("x-auth-observed", "expired"),
    ("x-forwarded-*", "/prefix"),
    ("x-original-*", "/admin"),
    ("x-real-ip", "192.0.2.1"),
    ("x-rewrite-url", "/admin"),
];
/// And these, which only HTTP/1.1 has.
const OF_ONE_CONNECTION: [(&str, &str); 5] = [
    ("connection", "x-own, upgrade, http2-settings"),
    ("http2-settings", "AAMAAABkAAQAAP__"),
    ("keep-alive", "timeout=5"),
    ("proxy-connection", "keep-alive"),
    ("upgrade", "h2c"),
];
/// And these, where a route decides by the method.
const METHODS: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];
/// What is changed on its way, each in a manner of its own.
const CHANGED: [&str; 5] = ["authorization", "cookie", "content-length", "date", "host"];

/// A field whose name stands for a family, by one of its members.
fn member(name: &str) -> HeaderName {
    name.replace('*', "member").parse().expect("a name")
}

#[tokio::test]
async fn only_the_documented_headers_are_removed() {
    for backend_version in [Version::HTTP_11, Version::HTTP_2] {
        let (table, _backend, gateway) = Table::served(backend_version).await;
        let pair = gateway.issue("alice", "bears:keep").await;
        for client_version in [Version::HTTP_11, Version::HTTP_2] {
            let told = format!("{client_version:?} to {backend_version:?}");
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
            let mut gone = REMOVED.to_vec();
            if client_version == Version::HTTP_11 {
                sent.insert("x-own", HeaderValue::from_static("nominated"));
                sent.insert("te", HeaderValue::from_static("gzip, trailers;q=0.5, trailers"));
                expected.insert("te", HeaderValue::from_static("trailers"));
                gone.extend(OF_ONE_CONNECTION);
            }
            for (name, value) in &gone {
                sent.insert(member(name), HeaderValue::from_static(value));
            }
            for name in SET.iter().chain(&IDENTITY) {
                sent.insert(HeaderName::from_static(name), HeaderValue::from_static("forged"));
            }
            table.lay(&exchange("", "GET", "/"));
            let mut request = Request::get("/").body(connection::empty()).expect("a request");
            *request.headers_mut() = sent;
            let response = HttpConnection::of(client_version, gateway.address()).await.send(request).await;
            assert_eq!(response.status(), 200, "{told}");
            let arrived = table.arrived.lock().expect("unpoisoned").take().expect("it arrived").headers;
            assert_eq!(fields(&arrived, &[&SET[..], &IDENTITY, &["host"]].concat()), fields(&expected, &[]), "{told}");
            for name in SET.iter().chain(&IDENTITY) {
                let values: Vec<_> = arrived.get_all(*name).iter().collect();
                assert!(values.len() == 1 && values[0] != "forged", "{told}: {name}: {values:?}");
            }
        }
    }
}

/// The tables of messages.md have the same list.
#[test]
fn every_change_is_documented() {
    let page = crate::house::source::read("deploy/messages.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let first_columns = rows.filter_map(|row| row.split('|').nth(1));
    let documented = first_columns.flat_map(|column| column.split('`').skip(1).step_by(2)).map(str::to_lowercase);
    let removed = REMOVED.iter().chain(&OF_ONE_CONNECTION).map(|(name, _)| *name);
    let tested =
        SET.into_iter().chain(IDENTITY).chain(CHANGED).chain(["te", "transfer-encoding"]).chain(METHODS).chain(removed);
    let documented: BTreeSet<String> = documented.collect();
    assert_eq!(documented, tested.map(str::to_owned).collect());
}

/// An answer without a date gets one (RFC 9110 section 6.6.1); more is not added to it.
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

/// Beyond what the page says, an answer is no answer; below, it is.
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
        // `Date` and `Content-Length` are fields, too.
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

/// Over HTTP/1.1 names are in lower case, and stand in the order in which they were first named.
#[tokio::test]
async fn the_head_of_a_forwarded_http1_request_is_exact() {
    let (heads, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let heads = heads.clone();
        async move {
            heads.send(wire.read_until("\r\n\r\n").await).expect("it is waited for");
            wire.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        }
    });
    let gateway = Gateway::public(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send("GET /a HTTP/1.1\r\nX-One:  1 \r\nHOST: Gateway.Test\r\nx-TWO: 2\r\nX-One: 3\r\n\r\n").await;
    assert_eq!(client.read_response().await.status, 204);
    let head = heard.recv().await.expect("it arrived");
    let (head, id) = head.split_once("x-request-id: ").expect("its id, last");
    assert_eq!(
        head,
        "GET /a HTTP/1.1\r\nx-one: 1\r\nx-one: 3\r\nhost: Gateway.Test\r\nx-two: 2\r\n\
         x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nforwarded: for=127.0.0.1;proto=http\r\n\
         x-forwarded-host: Gateway.Test\r\n"
    );
    assert_eq!(id.trim_end().len(), 32, "{id}");
}
