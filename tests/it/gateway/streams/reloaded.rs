//! A reload takes a route away, or gives it other rules: the streams end of which a new request would be rejected.

use bearward::config::{self, Probe};

use super::bodies::{backend, get};
use super::*;
use crate::support::connection::{HttpConnection, next_chunk};

const BASE: &str = "[[route]]\npath = \"/\"\nscopes = [\"orders\"]\n";

fn reload(gateway: &Gateway, upstream: &str, routes: &str) {
    let text = Gateway::config_text(upstream, routes);
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    gateway.running().reload(config).expect("it reloads");
}

#[tokio::test]
async fn a_stream_ends_if_a_reload_would_reject_its_request() {
    let upstream = Upstream::start();
    let address = upstream.address.to_string();
    let gateway = Gateway::from_text(Gateway::config_text(&address, BASE));
    let pair = gateway.issue("alice", "orders").await;
    let with = |key: &str| format!("{BASE}{key}\n");
    for (routes, reason) in [
        ("[[route]]\npath = \"/other\"\n".to_owned(), "no_route"),
        (with("methods = [\"POST\"]"), "no_route"),
        (with("host = \"other.test\""), "no_route"),
        (with("any_scope = [\"admin\"]"), "insufficient_scope"),
        (with("[[route.claim]]\npointer = \"/sub\"\nequals = \"bob\""), "claim_rejected"),
        (with("token_from = [\"query:token\"]"), "no_token"),
        (with("proof = \"required\""), "token_not_bound"),
        (with("[[route]]\npath = \"/ws\"\nscopes = [\"admin\"]"), "insufficient_scope"),
    ] {
        let mut socket = open(&gateway, &pair.access).await;
        reload(&gateway, &address, &routes);
        assert_eq!(within_a_second(close_frame(&mut socket)).await.0, 1008, "{routes}");
        assert_ended(&gateway, reason).await;
        reload(&gateway, &address, BASE);
        assert_eq!(gateway.status_of(&pair.access).await, 200, "the token is as good as before");
    }
}

/// The stream has the rules of the newest route.
#[tokio::test]
async fn a_reload_that_would_accept_its_request_ends_no_stream() {
    let upstream = Upstream::start();
    let address = upstream.address.to_string();
    let gateway = gateway_of_one_worker(&address, BASE);
    let pair = gateway.issue("alice", "orders").await;
    let mut socket = open(&gateway, &pair.access).await;
    let with = |key: &str| format!("{BASE}{key}\n");
    for routes in [
        with("token_from = [\"header\", \"query:token\"]"),
        with("[[route]]\npath = \"/other\"\nscopes = [\"admin\"]"),
        with("enforce = false"),
        "[[route]]\npath = \"/\"\npublic = true\n".to_owned(),
        "[[route]]\npath = \"/ws\"\n".to_owned(),
    ] {
        let witness = format!("{routes}[[route]]\npath = \"/witness/\"\n");
        reload(&gateway, &address, &witness);
        let bearer = format!("Bearer {}", pair.access);
        let mut ended = open_with(&gateway, "gateway.test/witness", &[("authorization", &bearer)]).await;
        reload(&gateway, &address, &format!("{witness}scopes = [\"admin\"]\n"));
        assert_eq!(within_a_second(close_frame(&mut ended)).await.0, 1008, "{routes}");
        assert_open(&mut socket).await;
    }
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked());
}

/// Its route needed no token, and needs one now.
#[tokio::test]
async fn a_stream_without_a_token_ends_with_its_public_route() {
    let upstream = Upstream::start();
    let address = upstream.address.to_string();
    for open_to_all in ["public = true\n", "enforce = false\n"] {
        let gateway =
            Gateway::from_text(Gateway::config_text(&address, &format!("[[route]]\npath = \"/\"\n{open_to_all}")));
        let mut socket = open_with(&gateway, "gateway.test", &[]).await;
        assert_open(&mut socket).await;
        reload(&gateway, &address, BASE);
        assert_eq!(within_a_second(close_frame(&mut socket)).await.0, 1008, "{open_to_all}");
        assert_ended(&gateway, "no_token").await;
    }
}

#[tokio::test]
async fn every_kind_of_stream_follows_a_reload() {
    let backend = backend("text/event-stream");
    let address = backend.address.to_string();
    let gateway = Gateway::from_text(Gateway::config_text(&address, BASE));
    let pair = gateway.issue("alice", "orders").await;
    let mut connection = HttpConnection::http1(gateway.address()).await;
    let mut events = connection.send(get("/stream", &pair.access)).await.into_body();
    assert_eq!(next_chunk(&mut events).await.expect("a chunk"), "data: 1\n\n");
    gateway.wait_for_metric("streams_opened_total", 1).await;
    reload(&gateway, &address, "[[route]]\npath = \"/\"\nscopes = [\"admin\"]\n");
    assert!(within_a_second(next_chunk(&mut events)).await.is_none(), "a clean end");
    assert_eq!(connection.send(get("/stream", &pair.access)).await.status(), 403);

    let upstream = Upstream::start();
    let address = upstream.address.to_string();
    let gateway = Gateway::from_text(Gateway::config_text(&address, BASE));
    let pair = gateway.issue("alice", "orders").await;
    let client = gateway.client().bearer(&pair.access);
    let waiting = tokio::spawn(async move { client.get("/hang").await });
    gateway.wait_for_metric("streams_opened_total", 1).await;
    reload(&gateway, &address, "[[route]]\npath = \"/other\"\n");
    // It keeps its configuration, and its token ends it.
    assert_eq!(gateway.metric("bearward_requests_in_flight").await, 1.0);
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    let response = within_a_second(waiting).await.expect("no panic");
    assert_eq!(response.status, 401, "{response:?}");
}
