//! An open stream is no request: a session with nothing else becomes idle.

use std::time::Duration;

use serde_json::Value;

use super::refresh::{KEYS, is_refreshed, provider};
use super::{APP, everything, gateway};
use crate::gateway::streams::{Socket, assert_open, close_frame, open_with, within_a_second};
use crate::support::visitor::Visitor;
use crate::support::{Gateway, OidcProvider, Upstream};

/// Alice has signed in with a WebSocket. Her session may be idle for 20 minutes.
async fn signed_in() -> (OidcProvider, Upstream, Gateway, Visitor, Socket) {
    let provider = provider();
    let upstream = Upstream::start();
    let idle = "[sign_in]\nidle_lifetime = \"20m\"\n";
    let gateway = gateway(&upstream, &everything(&provider.issuer, KEYS).replace("[sign_in]\n", idle)).await;
    let mut alice = Visitor::of(&gateway);
    assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", alice.way);
    let cookie = format!("__Host-bearward={}", alice.session().expect("a session"));
    let socket = open_with(&gateway, "app.example", &[("cookie", &cookie), ("origin", APP)]).await;
    (provider, upstream, gateway, alice, socket)
}

async fn last_use(gateway: &Gateway) -> Value {
    let listed = gateway.admin_client().get("/admin/v1/tokens").await.json();
    listed["tokens"][0]["lastUsedAt"].clone()
}

#[tokio::test]
async fn a_session_with_an_open_stream_alone_becomes_idle() {
    let (provider, _upstream, gateway, mut alice, mut socket) = signed_in().await;
    let used = last_use(&gateway).await;
    assert!(used.is_string(), "{used}");
    // The stream has the session refreshed at the provider, as a request would.
    for round in 1..=2 {
        gateway.advance(Duration::from_secs(550));
        is_refreshed(&provider, round).await;
        assert_open(&mut socket).await;
    }
    assert_eq!(last_use(&gateway).await, used);
    gateway.advance(Duration::from_secs(99));
    assert_open(&mut socket).await;
    gateway.advance(Duration::from_secs(1));
    assert_eq!(within_a_second(close_frame(&mut socket)).await, (1008, "sign in again".to_owned()));
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
}

#[tokio::test]
async fn a_request_keeps_a_session_with_an_open_stream_from_being_idle() {
    let (provider, _upstream, gateway, mut alice, mut socket) = signed_in().await;
    for round in 1..=4 {
        let used = last_use(&gateway).await;
        gateway.advance(Duration::from_secs(550));
        is_refreshed(&provider, round).await;
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
        assert_ne!(last_use(&gateway).await, used);
        assert_open(&mut socket).await;
    }
}
