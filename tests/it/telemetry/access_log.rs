//! The access log: one line for each request, and no token in it.

use std::collections::BTreeSet;

use http::Request;
use serde_json::{Value, json};

use crate::support::connection::{self, HttpConnection};
use crate::support::tokens::Mint;
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream, Wire};
use bearward::tokens::jwt::Algorithm;

/// Returns a line without the values that differ in each run.
fn without_varying(mut line: Value) -> Value {
    let members = line.as_object_mut().expect("an object");
    for changing in ["time", "request_id", "duration_us", "server", "backend_us"] {
        let is_removed = members.remove(changing).is_some();
        let is_optional = !members.contains_key("upstream") && ["server", "backend_us"].contains(&changing);
        assert!(is_removed || is_optional, "{changing} is missing in {members:?}");
    }
    line
}

#[tokio::test]
async fn a_forwarded_request_has_a_line_with_client_and_target() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let answer = gateway.client().bearer(&pair.access).header("user-agent", "test/1").get("/orders/1?secret=1").await;
    assert_eq!(answer.status, 200);
    let line = without_varying(gateway.log_lines(1).await.remove(0));
    assert_eq!(
        line,
        json!({
            "client": "127.0.0.1",
            "method": "GET",
            "host": "gateway.test",
            "path": "/orders/1",
            "protocol": "HTTP/1.1",
            "status": 200,
            "route": "/",
            "upstream": "backend",
            "issuer": "https://gateway.example",
            "subject": "alice",
            "token_id": pair.token_id,
            "sent": 5,
            "complete": true,
            "user_agent": "test/1",
        })
    );
}

#[tokio::test]
async fn every_rejection_has_a_line_with_its_reason() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "[[route]]\npath = \"/orders/\"\nscopes = [\"orders:read\"]\n");
    let pair = gateway.issue("alice", "").await;
    let alice = gateway.client().bearer(&pair.access);
    gateway.client().get("/orders/").await;
    alice.get("/orders/").await;
    alice.get("/elsewhere").await;
    alice.get("/orders/%2e%2e/").await;
    gateway.client().bearer("not.a.token").get("/orders/").await;
    gateway.client().header("host", "a b").get("/orders/").await;
    gateway.client().get("/user/refresh").await;
    let lines = gateway.log_lines(7).await;
    let reasons: BTreeSet<_> = lines.iter().map(|line| (line["status"].as_u64(), line["reason"].as_str())).collect();
    let expected = [
        (401, "no_token"),
        (403, "insufficient_scope"),
        (404, "no_route"),
        (400, "bad_path"),
        (401, "malformed_token"),
        (400, "bad_host"),
        (405, "method_not_allowed"),
    ];
    assert_eq!(reasons, expected.map(|(status, reason)| (Some(status), Some(reason))).into());
}

/// hyper responds to these requests by itself, but the operator must see them too.
#[tokio::test]
async fn a_malformed_request_has_a_line() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(
        upstream.address,
        "[limits]\nrequest_header_size = \"8KiB\"\ntoken_size = \"8KiB\"\nuri_size = \"8KiB\"",
    );
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "v".repeat(9000));
    for (request, status, reason) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n", 400, "malformed_framing"),
        ("\0\0\0\r\n\r\n", 400, "malformed_framing"),
        (large.as_str(), 431, "head_too_large"),
    ] {
        let before = gateway.log_lines(0).await.len();
        let mut client = Wire::connect(gateway.address()).await;
        client.send(request).await;
        let response = client.read_to_end().await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")));
        let line = gateway.log_lines(before + 1).await.remove(before);
        let body = response.split_once("\r\n\r\n").expect("a body").1;
        let id = serde_json::from_str::<Value>(body).expect("JSON")["requestId"].take();
        assert_eq!(line["request_id"], id, "{response}");
        let now = bearward::types::clock::UnixTime::from_secs(gateway.now_secs()).to_string();
        assert_eq!(line["time"], now, "{line}");
        let mut line = without_varying(line);
        assert!(line.as_object_mut().expect("an object").remove("detail").is_some(), "{line}");
        let expected = json!({
            "client": "127.0.0.1", "method": "-", "path": "-", "protocol": "HTTP/1.1", "status": status,
            "reason": reason, "sent": body.len(), "complete": true,
        });
        assert_eq!(line, expected);
    }
    gateway.wait_for_metric("rejections_total{reason=\"malformed_framing\"}", 2).await;
}

#[tokio::test]
async fn a_broken_body_has_a_line_with_its_cause() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    drop(client);
    let detail = gateway.log_lines(1).await[0]["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.strip_prefix("the body cannot be read: ").is_some_and(|cause| !cause.is_empty()), "{detail}");
}

#[tokio::test]
async fn a_client_cannot_inject_line_breaks() {
    let upstream = Upstream::start();
    for format in ["json", "text", "combined"] {
        let gateway = Gateway::public_with_log_format(upstream.address, format);
        let mut client = Wire::connect(gateway.address()).await;
        client
            .send(
                b"GET /a\"b HTTP/1.1\r\nHost: a\r\nUser-Agent: \x1b[31m\t\"\\\xff 200 {\"status\":200}\r\n\
                  Connection: close\r\n\r\n" as &[u8],
            )
            .await;
        client.read_to_end().await;
        let text = gateway.log_text(1).await;
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.bytes().all(|byte| byte == b'\n' || byte >= b' '), "a control character: {text:?}");
    }
}

#[tokio::test]
async fn the_text_format_has_the_same_fields() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_with_log_format(upstream.address, "text");
    gateway.client().get("/orders/1?secret=1").await;
    gateway.client().get("/orders/%00").await;
    let text = gateway.log_text(2).await;
    let line_with = |mark| text.lines().find(|line| line.contains(mark)).unwrap_or_else(|| panic!("{mark} in {text}"));
    let (passed, rejected) = (line_with("/orders/1"), line_with("/orders/%00"));
    assert!(passed.contains(" 127.0.0.1 GET \"gateway.test\" \"/orders/1\" HTTP/1.1 200 "), "{passed}");
    assert!(!passed.contains("secret"), "{passed}");
    assert!(rejected.contains(" 400 ") && rejected.contains(" bad_path "), "{rejected}");
}

/// One client disconnects before the response, and one in the middle of it.
#[tokio::test]
async fn a_client_that_disconnects_has_a_line() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
    eventually("the backend has the request", || upstream.in_flight() == 1).await;
    drop(client);
    let line = gateway.log_lines(1).await.remove(0);
    assert_eq!((line["status"].as_u64(), line["complete"].as_bool()), (Some(0), Some(false)), "{line}");

    let mut connection = HttpConnection::http2(gateway.address()).await;
    let request = Request::get("/large/100000000").body(connection::empty()).expect("a request");
    let mut body = connection.send(request).await.into_body();
    connection::next_chunk(&mut body).await.expect("a piece");
    connection.abort();
    let line = gateway.log_lines(2).await.remove(1);
    assert_eq!((line["status"].as_u64(), line["complete"].as_bool()), (Some(200), Some(false)), "{line}");
    assert!(line["sent"].as_u64().is_some_and(|sent| sent > 0 && sent < 100_000_000), "{line}");
}

/// logrotate renames the file without a signal to the gateway.
#[tokio::test]
async fn a_renamed_log_file_is_created_again() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    gateway.client().get("/first").await;
    gateway.log_lines(1).await;
    let (log, rotated) = (gateway.folder.path().join("access.log"), gateway.folder.path().join("access.log.1"));
    std::fs::rename(&log, &rotated).expect("renamed");
    gateway.client().get("/second").await;
    assert_eq!(gateway.log_lines(1).await[0]["path"], "/second");
    assert!(std::fs::read_to_string(rotated).expect("a file").contains("/first"));
}

#[tokio::test]
async fn no_token_of_a_path_is_in_the_log() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let alice = gateway.client().bearer(&pair.access);
    alice.get(&format!("/?access_token={}", pair.access)).await;
    alice.get(&format!("/{}", pair.access)).await;
    alice.get(&format!("/a/{}/b", pair.refresh)).await;
    alice.delete(&format!("/token/{}", pair.refresh)).await;
    gateway.refresh(&pair.access, &pair.refresh).await;
    let lines = gateway.log_lines(5).await;
    let paths: BTreeSet<_> = lines.iter().map(|line| line["path"].as_str().expect("a path")).collect();
    assert_eq!(paths, ["/", "/[token]", "/a/[token]/b", "/token/[token]", "/user/refresh"].into());
    gateway.drain_and_check_log();
}

/// A token with spaces before its header does not begin with `eyJ`, so the gateway also detects its shape.
#[tokio::test]
async fn a_token_in_a_path_is_detected_by_its_shape() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::public(upstream.address, "");
    let (header, claims) = (mint.header().to_string(), mint.claims(gateway.now_secs()).to_string());
    let spaced =
        [format!(" {header}"), format!("\r\n{header}"), header.replace('{', "{\n "), header.replace('{', "{\t")];
    for header in &spaced {
        let token = mint.sign_text(header, &format!(" {claims}"));
        let (message, _) = token.rsplit_once('.').expect("three segments");
        assert!(!message.starts_with("eyJ"), "{message}");
        for path in [&token, &token.replace('.', "%2E"), &format!("{message}.")] {
            assert_eq!(gateway.client().get(&format!("/a/{path}/b")).await.status, 200);
        }
    }
    let lines = gateway.log_lines(3 * spaced.len()).await;
    assert!(lines.iter().all(|line| line["path"] == "/a/[token]/b"), "{lines:?}");
}

#[tokio::test]
async fn concurrent_requests_have_one_line_each() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let connection = HttpConnection::http2(gateway.address()).await;
    let requests = (0..300).map(|number| {
        let request = Request::get(format!("/{number}")).body(connection::empty()).expect("a request");
        let sender = connection.sender();
        tokio::spawn(async move { connection::text(sender.send(request).await.expect("an answer").into_body()).await })
    });
    for request in requests.collect::<Vec<_>>() {
        assert_eq!(request.await.expect("no panic"), "hello");
    }
    let lines = gateway.log_lines(300).await;
    let mut paths: Vec<_> = lines.iter().map(|line| line["path"].as_str().expect("a path").to_owned()).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!((lines.len(), paths.len()), (300, 300));
    let mut ids: Vec<_> = lines.iter().map(|line| line["request_id"].to_string()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 300, "each request has its own id");
}
