//! Without an exchanged token, nothing reaches the backend.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::server::TokenServer;
use super::{gateway, last_token, reason};
use crate::support::{Client, TokenPair, Upstream, secrets};

/// How long a rejected token is not sent to the server again.
const REMEMBERED: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_bad_response_is_502_and_nothing_is_forwarded() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    let pair = gateway.issue("alice", "").await;
    for (status, changes, body) in [
        (200, json!({ "issued_token_type": null }), None),
        (200, json!({ "issued_token_type": "urn:ietf:params:oauth:token-type:refresh_token" }), None),
        (200, json!({ "token_type": "N_A" }), None),
        (200, json!({ "access_token": "a b" }), None),
        (200, json!({ "access_token": "x".repeat(9_000) }), None),
        (200, json!({}), Some("<html>")),
        (200, json!({}), Some("[]")),
        (200, json!({}), Some("{\"access_token\":\"a\",\"access_token\":\"b\"}")),
        (400, json!({ "error": "invalid_target" }), None),
        (401, json!({ "error": "invalid_client" }), None),
        (307, json!({}), None),
    ] {
        {
            let mut state = server.state();
            (state.status, state.changes, state.body) = (status, changes.clone(), body);
        }
        gateway.advance(REMEMBERED);
        let response = gateway.client().bearer(&pair.access).get("/orders").await;
        assert_eq!(response.status, 502, "{changes} {body:?}: {response:?}");
        response.assert_rejected(502, "bad_gateway");
    }
    assert!(upstream.seen().is_empty());
    assert_eq!(reason(&gateway, "/orders").await, "token_exchange_failed");
    {
        let mut state = server.state();
        (state.status, state.changes, state.body) = (200, json!({}), None);
    }
    gateway.advance(REMEMBERED);
    assert_eq!(gateway.client().bearer(&pair.access).get("/orders").await.status, 200);
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_server_that_fails_or_is_gone_is_503() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    let pair = gateway.issue("alice", "").await;
    for status in [500, 503, 429] {
        server.state().status = status;
        let response = gateway.client().bearer(&pair.access).get("/orders").await;
        response.assert_rejected(503, "temporarily_unavailable");
        assert!(response.header("retry-after").is_some());
    }
    drop(server);
    let response = gateway.client().bearer(&pair.access).get("/orders").await;
    response.assert_rejected(503, "temporarily_unavailable");
    assert!(upstream.seen().is_empty());
    assert_eq!(reason(&gateway, "/orders").await, "token_exchange_unavailable");
}

#[tokio::test]
async fn an_outage_of_the_server_is_one_message_and_its_end_another() {
    let start = secrets::capture_log();
    let upstream = Upstream::start();
    let server = TokenServer::start();
    let gateway = gateway(&upstream, &server, "");
    let pair = gateway.issue("alice", "").await;
    let client = gateway.client().bearer(&pair.access);
    server.state().status = 503;
    for _ in 0..5 {
        assert_eq!(client.get("/orders").await.status, 503);
    }
    server.state().status = 200;
    assert_eq!(client.get("/orders").await.status, 200);
    let address = server.address.to_string();
    let messages = |part: &str| {
        let log = secrets::logged_since(start);
        log.lines().filter(|line| line.contains(part) && line.contains(&address)).count()
    };
    assert_eq!(messages("cannot exchange tokens: requests that need a new one get 503"), 1);
    assert_eq!(messages("the server exchanges tokens again"), 1);
}

/// A client that repeats a token that the server rejects does not cost an exchange each time.
#[tokio::test]
async fn a_rejected_token_is_exchanged_again_after_5_seconds() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    let [alice, bob] = [gateway.issue("alice", "").await, gateway.issue("bob", "").await];
    let get = async |pair: &TokenPair, path: &str| gateway.client().bearer(&pair.access).get(path).await.status;
    (server.state().status, server.state().changes) = (400, json!({ "error": "invalid_request" }));
    for _ in 0..10 {
        assert_eq!(get(&alice, "/orders").await, 502);
    }
    assert_eq!(server.count(), 1);
    assert_eq!((get(&alice, "/stock").await.as_u16(), server.count()), (502, 2), "another exchange");
    (server.state().status, server.state().changes) = (200, json!({}));
    assert_eq!((get(&bob, "/orders").await.as_u16(), server.count()), (200, 3), "another token");
    gateway.advance(REMEMBERED - Duration::from_millis(1));
    assert_eq!((get(&alice, "/orders").await.as_u16(), server.count()), (502, 3));
    gateway.advance(Duration::from_millis(1));
    assert_eq!((get(&alice, "/orders").await.as_u16(), server.count()), (200, 4));
    for (outcome, expected) in [("issued", 2.0), ("failed", 2.0), ("unavailable", 0.0), ("skipped", 0.0)] {
        let metric = format!("bearward_token_exchanges_total{{outcome=\"{outcome}\"}}");
        assert_eq!(gateway.metric(&metric).await, expected, "{metric}");
    }
}

/// The first three exchanges wait for a server that hangs. After that, one at a time tries it for all.
#[tokio::test]
async fn a_server_that_hangs_delays_few_requests() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    server.state().delay = Duration::from_hours(1);
    let mut clients = Vec::new();
    for number in 0..13 {
        clients.push(gateway.client().bearer(&gateway.issue(&format!("user{number}"), "").await.access));
    }
    let statuses = async |clients: &[Client]| {
        let responses = join_all(clients.iter().map(|client| client.get("/orders"))).await;
        responses.iter().map(|response| response.status.as_u16()).collect::<Vec<_>>()
    };
    assert_eq!((statuses(&clients[..3]).await, server.count()), (vec![503; 3], 3));
    assert_eq!((statuses(&clients[3..]).await, server.count()), (vec![503; 10], 4));
    server.state().delay = Duration::ZERO;
    assert_eq!(statuses(&clients[..1]).await, [200]);
    assert_eq!(statuses(&clients).await, [200; 13]);
    assert_eq!(gateway.metric("bearward_token_exchanges_total{outcome=\"skipped\"}").await, 9.0);
}

#[tokio::test]
async fn requests_at_the_same_time_share_one_failure() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    {
        let mut state = server.state();
        (state.status, state.delay) = (500, Duration::from_millis(200));
    }
    let pair = gateway.issue("alice", "").await;
    let client = gateway.client().bearer(&pair.access);
    let requests = (0..16).map(|_| client.get("/orders"));
    let statuses: Vec<u16> = join_all(requests).await.iter().map(|response| response.status.as_u16()).collect();
    assert_eq!(statuses, [503; 16]);
    assert!(server.count() <= 2, "{} questions", server.count());
}

/// With `enforce = false` a request without a token is forwarded, and one with a token still needs the exchange.
#[tokio::test]
async fn the_clients_token_is_never_passed_on_instead() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.client().get("/observed").await.status, 200);
    assert_eq!(gateway.client().bearer("x.y.z").get("/observed").await.status, 200);
    assert!(upstream.seen().iter().all(|request| request.header("authorization").is_none()));
    assert_eq!((server.count(), upstream.seen().len()), (0, 2));
    server.state().status = 400;
    assert_eq!(gateway.client().bearer(&pair.access).get("/observed").await.status, 502);
    server.state().status = 200;
    gateway.advance(REMEMBERED);
    assert_eq!(gateway.client().bearer(&pair.access).get("/observed").await.status, 200);
    assert_eq!(last_token(&upstream).as_deref(), Some("exchanged.2"));
}

#[tokio::test]
async fn beside_another_proxy_the_answer_has_the_exchanged_token() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(
        &upstream,
        &server,
        "[forward_auth]\npath = \"/auth\"\ndialect = \"x-forwarded\"\nfrom = [\"127.0.0.0/8\"]\n",
    );
    let pair = gateway.issue("alice", "").await;
    let ask = || {
        let client = gateway.client().proxy().bearer(&pair.access).header("x-forwarded-method", "GET");
        let client = client.header("x-forwarded-proto", "https").header("x-forwarded-host", "gateway.test");
        client.header("x-forwarded-for", "198.51.100.7").header("x-forwarded-uri", "/orders")
    };
    let answer = ask().get("/auth").await;
    assert_eq!((answer.status.as_u16(), answer.header("authorization")), (200, Some("Bearer exchanged.1")));
    gateway.running().reload(gateway.config()).expect("reloaded");
    server.state().status = 400;
    let answer = ask().get("/auth").await;
    assert_eq!((answer.status.as_u16(), answer.header("authorization")), (502, None));
}
