//! The limits that do not apply to gRPC calls apply to every other request, whatever its content type says.

use std::time::Duration;

use http::{Method, Request, Version};

use crate::support::connection::{self, HttpConnection};
use crate::support::{Gateway, Upstream};

fn start(protocol: &str) -> Upstream {
    if protocol == "h2" { Upstream::start_http2() } else { Upstream::start() }
}

/// The response takes a second, three times as long as `timeouts.request`.
#[tokio::test]
async fn only_a_grpc_call_outlasts_the_request_timeout() {
    for protocol in ["http1", "h2"] {
        let upstream = start(protocol);
        let limits = format!("protocol = \"{protocol}\"\n[timeouts]\nrequest = \"300ms\"\n");
        let gateway = Gateway::public(upstream.address, &limits);
        for (version, method, kind) in [
            (Version::HTTP_11, Method::POST, "application/grpc"),
            (Version::HTTP_11, Method::GET, "application/grpc"),
            (Version::HTTP_2, Method::POST, "application/grpc+proto"),
            (Version::HTTP_2, Method::PUT, "application/grpc"),
            (Version::HTTP_2, Method::GET, "application/grpc"),
            (Version::HTTP_2, Method::POST, "application/grpc-web"),
            (Version::HTTP_2, Method::POST, "application/json"),
        ] {
            let is_call = (protocol, version, &method) == ("h2", Version::HTTP_2, &Method::POST)
                && matches!(kind, "application/grpc" | "application/grpc+proto");
            let context = format!("{version:?} {method} {kind} to {protocol}");
            let mut connection = HttpConnection::of(version, gateway.address()).await;
            let request = Request::builder().method(method).uri("/slow").header("content-type", kind);
            let response = connection.send(request.body(connection::full("message")).expect("a request")).await;
            let text = connection::text(response.into_body()).await;
            assert_eq!(text == "message", is_call, "{context}: {text}");
        }
        let lines = gateway.log_lines(7).await;
        let timed_out = lines.iter().filter(|line| line["reason"] == "request_timeout" && line["status"] == 504);
        assert_eq!(timed_out.count(), if protocol == "h2" { 6 } else { 7 }, "{protocol}: {lines:?}");
    }
}

/// Single bytes, more slowly than `limits.min_upload_rate` allows.
#[tokio::test]
async fn only_a_grpc_call_may_upload_slowly() {
    for (protocol, version, is_call) in [
        ("http1", Version::HTTP_11, false),
        ("http1", Version::HTTP_2, false),
        ("h2", Version::HTTP_11, false),
        ("h2", Version::HTTP_2, true),
    ] {
        let upstream = start(protocol);
        let limits = "[limits]\nmin_upload_rate = \"2KiB\"\n[timeouts]\nrate_window = \"300ms\"\n";
        let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\"\n{limits}"));
        let mut connection = HttpConnection::of(version, gateway.address()).await;
        let (pieces, body) = connection::streamed();
        let request = Request::post("/swallow").header("content-type", "application/grpc").body(body);
        let sending = tokio::spawn(async move { connection.send(request.expect("a request")).await });
        let mut sent = 0;
        while !sending.is_finished() && sent < 40 && pieces.try_send("x").await {
            sent += 1;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        drop(pieces);
        let response = sending.await.expect("no panic");
        let text = connection::text(response.into_body()).await;
        let line = gateway.log_lines(1).await.remove(0);
        if is_call {
            assert_eq!((line["reason"].as_str(), text.as_str()), (None, "40"), "{protocol} {version:?}: {line}");
        } else {
            assert_eq!(line["reason"], "body_too_slow", "{protocol} {version:?}: {line}");
        }
    }
}
