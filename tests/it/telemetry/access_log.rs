//! One line for every request, whatever became of it, and nothing in it that would help a thief.

use std::collections::BTreeSet;

use http::Request;
use serde_json::{Value, json};

use crate::support::session::{self, Session};
use crate::support::tokens::Mint;
use crate::support::{Gateway, Upstream, Wire};
use bearward::tokens::jwt::Algorithm;

/// A line without what is different each time.
fn settled(mut line: Value) -> Value {
    let members = line.as_object_mut().expect("an object");
    for changing in ["time", "request_id", "duration_us"] {
        assert!(members.remove(changing).is_some(), "{changing} is missing in {members:?}");
    }
    line
}

#[tokio::test]
async fn a_request_let_through_has_a_line_that_says_who_asked_for_what() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let answer = gateway.client().bearer(&pair.access).header("user-agent", "test/1").get("/orders/1?secret=1").await;
    assert_eq!(answer.status, 200);
    let line = settled(gateway.log_lines(1).await.remove(0));
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
async fn every_refusal_has_a_line_with_its_reason() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&upstream, "[[route]]\npath = \"/orders/\"\nscopes = [\"orders:read\"]\n");
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

/// hyper answers these by itself. An operator has to see them all the same.
#[tokio::test]
async fn a_request_that_nobody_can_read_has_a_line_too() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(
        upstream.address,
        "[limits]\nrequest_header_size = \"8KiB\"\ntoken_size = \"8KiB\"\nuri_size = \"8KiB\"",
    );
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "v".repeat(9000));
    for (said, status, reason) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n", 400, "malformed_framing"),
        ("\0\0\0\r\n\r\n", 400, "malformed_framing"),
        (large.as_str(), 431, "head_too_large"),
    ] {
        let before = gateway.log_lines(0).await.len();
        let mut client = Wire::connect(gateway.address()).await;
        client.say(said).await;
        assert!(client.hear_to_the_end().await.starts_with(&format!("HTTP/1.1 {status}")));
        let line = settled(gateway.log_lines(before + 1).await.remove(before));
        assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(status), Some(reason)), "{line}");
        assert_eq!((line["client"].as_str(), line["method"].as_str()), (Some("127.0.0.1"), Some("-")));
    }
    gateway.counts("rejections_total{reason=\"malformed_framing\"}", 2).await;
}

#[tokio::test]
async fn what_a_client_says_can_neither_break_a_line_nor_begin_one() {
    let upstream = Upstream::start();
    for format in ["json", "text"] {
        let gateway = Gateway::open_logging(upstream.address, format);
        let mut client = Wire::connect(gateway.address()).await;
        client
            .say(
                b"GET /a\"b HTTP/1.1\r\nHost: a\r\nUser-Agent: \x1b[31m\t\"\\\xff 200 {\"status\":200}\r\n\
                  Connection: close\r\n\r\n" as &[u8],
            )
            .await;
        client.hear_to_the_end().await;
        let text = gateway.log_text(1).await;
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.bytes().all(|byte| byte == b'\n' || byte >= b' '), "a control character: {text:?}");
    }
}

#[tokio::test]
async fn a_line_of_text_says_the_same_to_people() {
    let upstream = Upstream::start();
    let gateway = Gateway::open_logging(upstream.address, "text");
    gateway.client().get("/orders/1?secret=1").await;
    gateway.client().get("/orders/%00").await;
    let text = gateway.log_text(2).await;
    let line_with = |mark| text.lines().find(|line| line.contains(mark)).unwrap_or_else(|| panic!("{mark} in {text}"));
    let (passed, refused) = (line_with("/orders/1"), line_with("/orders/%00"));
    assert!(passed.contains(" 127.0.0.1 GET \"gateway.test\" \"/orders/1\" HTTP/1.1 200 "), "{passed}");
    assert!(!passed.contains("secret"), "{passed}");
    assert!(refused.contains(" 400 ") && refused.contains(" bad_path "), "{refused}");
}

/// A client that leaves before there is an answer, and one that leaves in the middle of it.
#[tokio::test]
async fn a_client_that_leaves_is_not_forgotten() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.say("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
    session::eventually("the backend is asked", || upstream.in_flight() == 1).await;
    drop(client);
    let line = gateway.log_lines(1).await.remove(0);
    assert_eq!((line["status"].as_u64(), line["complete"].as_bool()), (Some(0), Some(false)), "{line}");

    let mut session = Session::http2(gateway.address()).await;
    let request = Request::get("/large/100000000").body(session::empty()).expect("a request");
    let mut body = session.send(request).await.into_body();
    session::next_piece(&mut body).await.expect("a piece");
    session.cut();
    let line = gateway.log_lines(2).await.remove(1);
    assert_eq!((line["status"].as_u64(), line["complete"].as_bool()), (Some(200), Some(false)), "{line}");
    assert!(line["sent"].as_u64().is_some_and(|sent| sent > 0 && sent < 100_000_000), "{line}");
}

/// logrotate takes the file away, and tells nobody.
#[tokio::test]
async fn a_log_that_is_taken_away_is_begun_anew() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    gateway.client().get("/first").await;
    gateway.log_lines(1).await;
    let (log, rotated) = (gateway.folder.path().join("access.log"), gateway.folder.path().join("access.log.1"));
    std::fs::rename(&log, &rotated).expect("renamed");
    gateway.client().get("/second").await;
    assert_eq!(gateway.log_lines(1).await[0]["path"], "/second");
    assert!(std::fs::read_to_string(rotated).expect("a file").contains("/first"));
}

#[tokio::test]
async fn no_token_is_in_it_wherever_it_was_put() {
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
    gateway.end_without_a_token_in_the_log();
}

/// Spaces at the beginning of its header, or none of a signature, and the token begins like no other.
#[tokio::test]
async fn a_token_in_a_path_is_known_by_its_shape_as_well() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::open(upstream.address, "");
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
async fn one_line_for_each_request_however_many_come_at_once() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let session = Session::http2(gateway.address()).await;
    let requests = (0..300).map(|number| {
        let request = Request::get(format!("/{number}")).body(session::empty()).expect("a request");
        let sender = session.sender();
        tokio::spawn(async move { session::text(sender.send(request).await.expect("an answer").into_body()).await })
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
    assert_eq!(ids.len(), 300, "no two requests have one id");
}
