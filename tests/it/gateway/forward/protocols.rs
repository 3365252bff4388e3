//! HTTP/1.1 and HTTP/2 on either side, in every combination.

use bytes::Bytes;
use http::{Method, Request, Version};

use crate::support::connection::{self, HttpConnection};
use crate::support::{Gateway, Upstream};

/// A backend for each protocol, and its `protocol` key.
fn backends() -> [(Upstream, &'static str); 2] {
    [(Upstream::start(), ""), (Upstream::start_http2(), "protocol = \"h2\"")]
}

#[tokio::test]
async fn requests_and_responses_pass_in_all_protocols() {
    for (upstream, protocol) in backends() {
        let gateway = Gateway::with_config(&upstream, protocol);
        let pair = gateway.issue("alice", "orders:write").await;
        for client in gateway.clients() {
            let client =
                client.bearer(&pair.access).header("x-twice", "1").header("x-twice", "2").header("x-empty", "");
            for size in [0, 1, 1 << 20] {
                let body = Bytes::from(vec![b'b'; size]);
                let method = Method::from_bytes(b"REPORT").expect("a method");
                let response = client.send(method, "/orders/%7E1?x=y&x=%20&z", body.clone()).await;
                assert_eq!(response.status, 200, "{response:?}");
                assert_eq!(response.body, if size == 0 { Bytes::from_static(b"hello") } else { body.clone() });

                let seen = upstream.seen().pop().expect("it arrived");
                assert_eq!(seen.method, "REPORT");
                assert_eq!(seen.target(), "/orders/%7E1?x=y&x=%20&z");
                let twice: Vec<_> = seen.headers.get_all("x-twice").iter().collect();
                assert_eq!(twice, ["1", "2"]);
                assert_eq!(seen.header("x-empty"), Some(""));
                assert_eq!(seen.header("x-auth-subject"), Some("alice"));
                assert_eq!(seen.host(), "gateway.test");
                assert_eq!(seen.body, body);
            }
        }
    }
}

#[tokio::test]
async fn each_side_uses_its_own_protocol() {
    for (upstream, protocol) in backends() {
        let gateway = Gateway::public(upstream.address, protocol);
        let version = if protocol.is_empty() { Version::HTTP_11 } else { Version::HTTP_2 };
        for client in gateway.clients() {
            let response = client.get("/").await;
            assert_eq!(response.version, client.version());
            assert_eq!(upstream.seen().pop().expect("it arrived").version, version);
        }
    }
}

/// The backend is a second gateway, because it supports TLS.
#[tokio::test]
async fn a_tls_backend_needs_a_trusted_certificate() {
    let upstream = Upstream::start();
    let backend = Gateway::public(upstream.address, "");
    let untrusted = Gateway::public(upstream.address, "");
    for protocol in ["http1", "h2"] {
        for (ca, status) in [(&backend, 200), (&untrusted, 502)] {
            let options = format!("protocol = \"{protocol}\"\nca_file = \"{}\"", ca.certificate().display());
            let text = Gateway::public_config(backend.tls_address(), &options)
                .replace("http://127.0.0.1", "https://localhost");
            let gateway = Gateway::from_text(text);
            for client in gateway.clients() {
                let response = client.send(Method::PUT, "/orders", "secret".into()).await;
                assert_eq!(response.status, status, "{response:?}");
            }
            if status == 502 {
                let line = gateway.log_lines(1).await.remove(0);
                assert_eq!(line["reason"], "upstream_connect");
                assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("certificate")), "{line}");
            }
        }
    }
    assert_eq!(upstream.seen().len(), 8);
    let lines = backend.log_lines(8).await;
    let http2 = lines.iter().filter(|line| line["protocol"] == "HTTP/2").count();
    assert_eq!(http2, 4, "the gateway uses the configured protocol");
}

/// HTTP/1.1 sends only trailers that `Trailer` announces, and only to clients that send `TE: trailers`.
#[tokio::test]
async fn trailers_pass_both_ways() {
    for (upstream, protocol) in backends() {
        let gateway = Gateway::public(upstream.address, protocol);
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let connection = HttpConnection::of(version, gateway.address()).await;
            let (upload, body) = connection::streamed();
            let request = Request::post("/trailers").header("te", "trailers").header("trailer", "x-digest").body(body);
            let sending = tokio::spawn(connection.sender().send(request.expect("a request")));
            upload.send("data").await;
            upload.end_with("x-digest", "9").await;

            let response = sending.await.expect("no panic").expect("a response");
            let (text, trailers) = connection::text_and_trailers(response.into_body()).await;
            assert_eq!(text, "data");
            assert_eq!(trailers.expect("trailers")["x-checksum"], "7", "{version:?} to {protocol:?}");
            let seen = upstream.seen().pop().expect("it arrived");
            assert_eq!(seen.body, "data");
            assert_eq!(seen.trailers.expect("trailers")["x-digest"], "9", "{version:?} to {protocol:?}");
        }
    }
}

/// Over HTTP/2 a browser sends one `Cookie` field for each cookie. HTTP/1.1 allows one field only (RFC 9113 section
/// 8.2.3).
#[tokio::test]
async fn cookies_in_several_fields_become_one_for_an_http1_backend() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let [_, client, ..] = gateway.clients();
    assert_eq!(client.header("cookie", "a=1").header("cookie", "b=2").get("/").await.status, 200);
    let seen = upstream.only_request();
    let cookies: Vec<_> = seen.headers.get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1; b=2"]);
}

/// With a wrong length, the backend would wait for missing bytes and read the next request as the body.
#[tokio::test]
async fn a_request_with_a_wrong_content_length_is_not_forwarded() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut connection = HttpConnection::http2(gateway.address()).await;
    for body in [connection::empty(), connection::full("abc")] {
        let request = Request::post("/").header("content-length", "5").body(body).expect("a request");
        connection.try_send(request).await.expect_err("the request is malformed");
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}
