//! Requests that the gateway rejects before it knows their path.

use bytes::Bytes;
use http::{Method, Version};
use serde_json::json;

use super::{APP, CORS, EVIL, assert_no_fields, assert_readable};
use crate::support::client::send_raw;
use crate::support::{Client, Gateway, Upstream};

/// The gateway rejects these before it parses the head, so it looks for the Origin in the bytes.
#[tokio::test]
async fn a_malformed_request_tells_its_page_why() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &format!("{CORS}[limits]\nrequest_header_size = \"8KiB\"\n"));
    let large = format!("X: {}\r\n", "x".repeat(9_000));
    for (status, fields) in [
        (400, "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
        (400, "Content-Length: 1\r\nContent-Length: 2\r\n"),
        (400, "no colon\r\n"),
        (431, &large),
    ] {
        let sent = async |origin: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{origin}{fields}\r\n");
            let response = send_raw(gateway.address(), head.as_bytes()).await.to_ascii_lowercase();
            assert!(response.starts_with(&format!("http/1.1 {status} ")), "{fields}: {response}");
            assert!(response.contains("\r\nvary: origin\r\n"), "{response}");
            response.contains(&format!("\r\naccess-control-allow-origin: {APP}\r\n"))
        };
        assert!(sent(&format!("Origin: {APP}\r\n")).await, "{fields}");
        assert!(!sent("").await);
        assert!(!sent(&format!("Origin: {EVIL}\r\n")).await);
        assert!(!sent(&format!("Origin: {APP}\r\nOrigin: {APP}\r\n")).await);
    }
}

/// Over HTTP/2, the gateway knows method and path, but decides about none of them.
#[tokio::test]
async fn a_head_of_http2_that_is_too_large_tells_its_page_why() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &format!("{CORS}[limits]\nrequest_header_size = \"8KiB\"\n"));
    let client = Client::http2(gateway.tls_address()).over_tls(&gateway.certificate()).host("localhost");
    let page = client.header("x-large", &"x".repeat(9_000));
    let response = page.clone().header("origin", APP).get("/orders").await;
    assert_eq!(response.version, Version::HTTP_2);
    response.assert_rejected(431, "invalid_request");
    assert_readable(&response);
    let line = gateway.log_line(|line| line["reason"] == "head_too_large").await;
    let logged = (&line["status"], &line["method"], &line["path"], &line["sent"]);
    assert_eq!(logged, (&json!(431), &json!("GET"), &json!("/orders"), &json!(response.body.len())), "{line}");
    for client in [page.clone().header("origin", EVIL), page.clone()] {
        let response = client.get("/orders").await;
        response.assert_rejected(431, "invalid_request");
        assert_no_fields(&response);
    }
    let asks = page.header("origin", APP).header("access-control-request-method", "GET");
    assert_eq!(asks.send(Method::OPTIONS, "/orders", Bytes::new()).await.status, 431);
    assert!(upstream.seen().is_empty());
    gateway.wait_for_metric("rejections_total{reason=\"head_too_large\"}", 4).await;
}
