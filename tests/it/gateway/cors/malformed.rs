//! Requests that the gateway rejects before it knows their path.

use super::{APP, CORS, EVIL};
use crate::support::client::send_raw;
use crate::support::{Gateway, Upstream};

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
