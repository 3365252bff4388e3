//! One refresh token in a thousand concurrent requests.

use std::collections::HashSet;

use bearward::types::ids::TokenId;
use futures_util::future::join_all;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::refreshed;
use crate::support::connection::{HttpConnection, full};
use crate::support::{Gateway, TokenPair, Upstream};

const CONNECTIONS: usize = 100;
const REFRESHES: usize = 1_000;

/// Refreshes over this connection.
async fn refresh(connection: &HttpConnection, pair: &TokenPair) -> (u16, Value) {
    let request = Request::post("/user/refresh").header("content-type", "application/json");
    let request = request.header("authorization", format!("Bearer {}", pair.access));
    let body = full(json!({ "refreshToken": pair.refresh }).to_string());
    let response = connection.sender().send(request.body(body).expect("a request")).await.expect("a response");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("the complete response").to_bytes();
    (status, serde_json::from_slice(&body).expect("JSON"))
}

/// Over HTTP/1.1 and HTTP/2, to both workers.
#[tokio::test]
async fn a_thousand_concurrent_refreshes_rotate_once() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let neighbour = gateway.issue("alice", "").await;
    let open = async |number: usize| match number % 2 {
        0 => HttpConnection::http1(gateway.address()).await,
        _ => HttpConnection::http2(gateway.address()).await,
    };
    let connections = join_all((0..CONNECTIONS).map(open)).await;

    let responses = join_all((0..REFRESHES).map(|number| refresh(&connections[number % CONNECTIONS], &pair))).await;

    assert!(responses.iter().all(|(status, _)| *status == 200), "{responses:?}");
    let pairs: Vec<_> = responses.iter().map(|(_, response)| TokenPair::from_json(response)).collect();
    let distinct = |part: fn(&TokenPair) -> &String| pairs.iter().map(part).collect::<HashSet<_>>().len();
    assert_eq!(distinct(|pair| &pair.refresh), 1, "the same refresh token in each response");
    assert_eq!(distinct(|pair| &pair.access), REFRESHES, "each response has its own access token");
    assert_eq!(pairs[0].token_id, pair.token_id, "no second family");
    let id = TokenId::parse(&pair.token_id).expect("a token id");
    let family = gateway.running().broker.store.family(id).await.expect("the store works").expect("the family exists");
    assert_eq!((family.generation, family.revoked), (2, None));

    // One event of the login, one of the rotation, and one for each repeated refresh. Earlier events are those of keys
    // and logins.
    let events = gateway.audit_events(REFRESHES).await;
    let before = events.iter().position(|event| event["event"] == "token.refreshed").expect("an event of the rotation");
    let mut events = gateway.audit_events(before + REFRESHES).await;
    events.retain(|event| event["token_id"] == pair.token_id);
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    let counts = ["token.issued", "token.refreshed", "refresh.replayed"].map(count);
    assert_eq!((counts, events.len()), ([1, 1, REFRESHES - 1], 1 + REFRESHES));

    let next = refreshed(&gateway, &pairs[0]).await;
    assert_eq!(gateway.status_of(&next.access).await, 200, "the session continues");
    assert_ne!(refreshed(&gateway, &neighbour).await.token_id, pair.token_id);
}
