//! Limits count the client that the proxy names, and never the proxy.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::with_config;
use crate::support::frames::{self, GOAWAY, HEADERS, RST_STREAM};
use crate::support::wait::eventually;
use crate::support::wire::Wire;
use crate::support::{Client, Gateway, Upstream};

const FORWARD_AUTH: &str = "[forward_auth]\npath = \"/auth\"\ndialect = \"x-original\"\nfrom = [\"127.0.0.1\"]\n";

fn of_client(gateway: &Gateway, client: &str, target: &str) -> Client {
    let fields = [
        ("x-original-method", "GET"),
        ("x-original-host", "api.example"),
        ("x-original-uri", target),
        ("x-forwarded-for", client),
        ("x-forwarded-proto", "https"),
    ];
    fields.iter().fold(gateway.client().proxy(), |client, (name, value)| client.header(name, value))
}

#[tokio::test]
async fn rates_count_the_client_that_the_proxy_names() {
    let rate = "[[route.rate]]\nper = \"address\"\nrequests = 2\nwindow = \"1h\"\n";
    let (gateway, upstream) = with_config(&format!(
        "[[route]]\npath = \"/\"\npublic = true\n{rate}[forwarding]\ntrusted = [\"203.0.113.9\"]\n{FORWARD_AUTH}"
    ));
    let status = async |client: &str| of_client(&gateway, client, "/").get("/auth").await.status.as_u16();
    // What the client itself has written stands to the left.
    assert_eq!([status("198.51.100.7").await, status("192.0.2.1, 198.51.100.7").await], [200; 2]);
    let limited = of_client(&gateway, "192.0.2.2, 198.51.100.7", "/").get("/auth").await;
    limited.assert_rejected(429, "rate_limited");
    assert!(limited.header("retry-after").is_some() && limited.header("ratelimit").is_some(), "{limited:?}");
    // Behind a proxy that is trusted, the address before it counts.
    assert_eq!(status("198.51.100.7, 203.0.113.9").await, 429);
    assert_eq!([status("198.51.100.8, 203.0.113.9").await, status("198.51.100.9").await], [200; 2]);
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn bad_signatures_count_for_the_client_alone() {
    let (gateway, _upstream) = with_config(&format!("[limits]\nbad_signatures = 5\n{FORWARD_AUTH}"));
    let forged = gateway.forger().await;
    let pair = gateway.issue("alice", "").await;
    let mut last = 0;
    for number in 0..8 {
        let call = of_client(&gateway, "198.51.100.7", "/").bearer(&forged(number));
        last = call.get("/auth").await.status.as_u16();
    }
    assert_eq!(last, 429);
    let call = |client: &str| of_client(&gateway, client, "/").bearer(&forged(100));
    assert_eq!(call("198.51.100.7").get("/auth").await.status, 429);
    assert_eq!(call("198.51.100.8").get("/auth").await.status, 401);
    assert_eq!(of_client(&gateway, "198.51.100.8", "/").bearer(&pair.access).get("/auth").await.status, 200);
}

/// What clients send must not close the connections of their proxy, and must bring it no penalty.
#[tokio::test]
async fn a_client_cannot_lock_out_the_proxy() {
    let upstream = Upstream::start();
    let limits = "[limits]\nmalformed_requests = 1\nrejected_bodies = 1\nretry_delay = \"10s\"\n";
    let rate = "[[route.rate]]\nper = \"address\"\nrequests = 1\nwindow = \"1h\"\n";
    let gateway = Gateway::public_single_worker(
        upstream.address,
        &format!("{limits}{FORWARD_AUTH}[[route]]\npath = \"/once\"\npublic = true\n{rate}"),
    );
    let mut proxy = Wire::connect(gateway.address()).await;
    let call = |host: &str, target: &str| {
        format!(
            "GET /auth HTTP/1.1\r\nHost: gateway\r\nX-Original-Method: GET\r\nX-Original-Host: {host}\r\n\
             X-Original-URI: {target}\r\nX-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\n\r\n"
        )
    };
    let began = std::time::Instant::now();
    let once = [("api.example", "/once", 200)].into_iter().chain([("api.example", "/once", 429); 15]);
    for (host, target, status) in
        [("a b", "/", 400), ("api.example", "/..", 400)].into_iter().cycle().take(8).chain(once)
    {
        proxy.send(call(host, target)).await;
        assert_eq!(proxy.read_response().await.status, status, "{host} {target}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "no response is delayed");
    proxy.send(call("api.example", "/")).await;
    assert_eq!(proxy.read_response().await.status, 200, "the same connection");
}

/// A proxy that is known by its secret alone has the address of no list.
#[tokio::test]
async fn a_client_cannot_lock_out_a_proxy_with_a_secret() {
    const SECRET: &str = "a-secret-of-thirty-two-characters";
    let upstream = Upstream::start();
    let folder = std::sync::Arc::new(tempfile::TempDir::new().expect("a folder"));
    bearward::types::secret::write_private(&folder.path().join("proxy.secret"), SECRET.as_bytes()).expect("written");
    let limits = "[limits]\nmalformed_requests = 2\npenalty_duration = \"1h\"\n";
    let text = Gateway::config_text(
        &upstream.address.to_string(),
        &format!(
            "{limits}[forward_auth]\npath = \"/auth\"\ndialect = \"prefix\"\nsecret_file = \"proxy.secret\"\n\
             [[route]]\npath = \"/\"\npublic = true\n"
        ),
    );
    let gateway = Gateway::in_folder(text, folder, std::sync::Arc::new(crate::support::clock::ManualClock::new()));
    let call = format!(
        "GET /auth/ HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\n\
         X-Forward-Auth-Secret: {SECRET}\r\nConnection: close\r\n"
    );
    for number in 0..6 {
        let mut proxy = Wire::connect(gateway.address()).await;
        proxy.send(format!("{call}\r\n")).await;
        assert_eq!(proxy.read_response().await.status, 200, "{number}");
        // What a client of the proxy has sent, on a connection of its own.
        let mut proxy = Wire::connect(gateway.address()).await;
        proxy.send(format!("{call}Transfer-Encoding: chunked, x\r\n\r\n")).await;
        assert!(proxy.read_response().await.status >= 400, "{number}");
    }
}

/// Each client that leaves makes its proxy cancel a call (`limits::floods` has what happens to other connections).
#[tokio::test]
async fn cancelled_calls_do_not_end_the_connection_of_the_proxy() {
    let upstream = Upstream::start();
    let callers = "[forward_auth]\ndialect = \"ext_authz_grpc\"\nfrom = [\"127.0.0.1\"]\n";
    let limits = "[limits]\npenalty_duration = \"0s\"\nhttp2_resets = 20\n";
    let gateway = Gateway::public_single_worker(upstream.address, &format!("{limits}{callers}"));
    let mut proxy = frames::connect(gateway.address(), &[frames::connection_preface()]).await;
    for stream in (1..200).step_by(2) {
        proxy.send(frames::get(stream, "/hang")).await;
        eventually("the request is in flight", || upstream.in_flight() == 1).await;
        proxy.send(frames::frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])).await;
        eventually("the request is cancelled", || upstream.in_flight() == 0).await;
    }
    proxy.send(frames::get(201, "/")).await;
    let response = frames::next(&mut proxy, &[HEADERS, GOAWAY]).await;
    assert_eq!((response.kind, response.stream), (HEADERS, 201));
}

/// Envoy can send the body with the call.
#[tokio::test]
async fn the_body_of_a_call_is_ignored() {
    let dialect = FORWARD_AUTH.replace("x-original", "prefix");
    let (gateway, upstream) = with_config(&format!("[[route]]\npath = \"/\"\npublic = true\n{dialect}"));
    let client = gateway.client().proxy().header("x-forwarded-for", "198.51.100.7").header("x-forwarded-proto", "http");
    let response = client.send(Method::POST, "/auth/orders", Bytes::from_static(&[b'x'; 10_000])).await;
    assert_eq!((response.status.as_u16(), response.text().as_str()), (200, ""), "{response:?}");
    let line = gateway.log_line(|line| line["path"] == "/orders").await;
    assert_eq!(line["method"], "POST", "{line}");
    assert!(upstream.seen().is_empty());
}
