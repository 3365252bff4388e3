//! `bearward_limit_hits_total`: limits that no reason names alone, or that reject nothing.

use std::collections::BTreeSet;

use crate::support::source;
use crate::support::{Client, Gateway, Upstream, Wire};

const NO_PENALTY: &str = "[limits]\npenalty_duration = \"0s\"\n";

async fn assert_hits(gateway: &Gateway, limit: &str, hits: u64) {
    gateway.wait_for_metric(&format!("limit_hits_total{{limit=\"{limit}\"}}"), hits).await;
}

/// Sends a request, and waits until the gateway closes the connection.
async fn send(gateway: &Gateway, request: &str) {
    let mut client = Wire::connect(gateway.address()).await;
    client.send(request).await;
    client.read_to_end().await;
}

#[tokio::test]
async fn limits_with_one_reason_are_counted_apart() {
    let upstream = Upstream::start();
    let more = "[limits]\nrequest_header_count = 20\nrequest_header_size = \"8KiB\"\nuri_size = \"8KiB\"\n\
                token_size = \"8KiB\"\nmalformed_requests = 0\n";
    let gateway = Gateway::public_single_worker(upstream.address, more);
    let many = "X: 1\r\n".repeat(30);
    send(&gateway, &format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")).await;
    assert_hits(&gateway, "limits.request_header_count", 1).await;
    let mut http2 = Client::http2(gateway.address()).host("a");
    for number in 0..30 {
        http2 = http2.header(&format!("x-{number}"), "1");
    }
    assert_eq!(http2.get("/").await.status, 431);
    assert_hits(&gateway, "limits.request_header_count", 2).await;
    assert_hits(&gateway, "limits.request_header_size", 0).await;
    let large = "x".repeat(9_000);
    send(&gateway, &format!("GET / HTTP/1.1\r\nHost: a\r\nX: {large}\r\n\r\n")).await;
    assert_hits(&gateway, "limits.request_header_size", 1).await;
    assert_hits(&gateway, "limits.request_header_count", 2).await;
}

#[tokio::test]
async fn limits_that_reject_nothing_are_counted() {
    let upstream = Upstream::start();
    let more = format!("{NO_PENALTY}requests_per_connection = 2\nmalformed_requests = 1\nrejected_bodies = 1\n");
    let gateway = Gateway::public_single_worker(upstream.address, &format!("{more}body_size = \"1KiB\"\n"));
    let mut client = Wire::connect(gateway.address()).await;
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.read_response().await.status, 200);
    }
    assert_hits(&gateway, "limits.requests_per_connection", 1).await;
    for _ in 0..2 {
        send(&gateway, "GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n").await;
        let mut upload = Wire::connect(gateway.address()).await;
        upload.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n").await;
        assert_eq!(upload.read_response().await.status, 413);
    }
    assert_hits(&gateway, "limits.malformed_requests", 1).await;
    assert_hits(&gateway, "limits.rejected_bodies", 1).await;
    assert_hits(&gateway, "limits.body_size", 2).await;
}

/// It stops for longer than `timeouts.write`.
#[tokio::test]
async fn a_silent_reader_does_not_count_for_the_download_rate() {
    let upstream = Upstream::start();
    let more = "[limits]\nmin_download_rate = \"1B\"\n[timeouts]\nwrite = \"200ms\"\nrate_window = \"1h\"";
    let gateway = Gateway::public_single_worker(upstream.address, more);
    let mut client = Wire::connect(gateway.address()).await;
    client.send("GET /large/100000000 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    gateway.wait_for_metric("slow_clients_disconnected_total", 1).await;
    assert_hits(&gateway, "limits.min_download_rate", 0).await;
}

/// The gateway's own calls have a fixed limit.
#[tokio::test]
async fn a_large_body_of_an_own_call_does_not_count_for_body_size() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let alice = gateway.issue("alice", "").await;
    let body = serde_json::json!({ "refreshToken": "x".repeat(30_000) });
    assert_eq!(gateway.client().bearer(&alice.access).post("/user/refresh", &body).await.status, 413);
    gateway.wait_for_metric("rejections_total{reason=\"body_too_large\"}", 1).await;
    assert_hits(&gateway, "limits.body_size", 0).await;
}

/// `src/lib.rs` has the table of all limits.
#[test]
fn each_limit_is_counted_or_documented_as_not_counted() {
    let text = source::read("src/telemetry/metrics/limits.rs") + &source::read("src/types/limit.rs");
    let is_counted = |key: &str| text.contains(&format!("\"{key}\""));
    let page = source::read("deploy/monitoring.md");
    let (_, uncounted) = page.split_once("It does not count ").expect("a sentence about them");
    let (uncounted, _) = uncounted.split_once("\n\n").expect("a paragraph");
    let uncounted: BTreeSet<&str> = uncounted.split('`').skip(1).step_by(2).collect();
    for row in source::table("# Limits") {
        for key in row[0].split(", ") {
            assert_ne!(is_counted(key), uncounted.contains(key), "{key} is counted, or named in monitoring.md");
        }
    }
}
