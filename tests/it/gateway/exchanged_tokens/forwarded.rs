//! The question to the server, the token for the backend, and its lifetime.

use std::time::Duration;

use bearward::config::{self, Probe};
use futures_util::future::join_all;
use serde_json::json;

use super::server::TokenServer;
use super::{ROUTES, exchanges, gateway, last_token};
use crate::support::tokens::claims_of;
use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn the_backend_gets_the_exchanged_token() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    let pair = gateway.issue("alice", "orders:read").await;
    for client in gateway.clients() {
        assert_eq!(client.bearer(&pair.access).get("/orders").await.status, 200);
        assert_eq!(last_token(&upstream).as_deref(), Some("exchanged.1"), "asked once");
    }
    assert_eq!(upstream.seen()[0].header("x-auth-subject"), Some("alice"));
    let (form, authorization) = server.state().seen[0].clone();
    let urn = |name: &str| format!("urn:ietf:params:oauth:{name}");
    for (name, value) in [
        ("grant_type", urn("grant-type:token-exchange")),
        ("subject_token", pair.access.clone()),
        ("subject_token_type", urn("token-type:access_token")),
        ("requested_token_type", urn("token-type:access_token")),
        ("audience", "https://orders.internal".to_owned()),
        ("scope", "orders:read orders:list".to_owned()),
    ] {
        assert_eq!(form.get(name), Some(&value), "{name}");
    }
    assert_eq!((form.len(), authorization.starts_with("Basic ")), (6, true));
    assert_eq!(gateway.client().bearer(&pair.access).get("/").await.status, 200);
    assert_eq!(last_token(&upstream), Some(pair.access), "another route passes the client's token");
}

#[tokio::test]
async fn each_token_and_each_exchange_has_a_token_of_its_own() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    let [alice, bob] = [gateway.issue("alice", "").await, gateway.issue("bob", "").await];
    let mut tokens = Vec::new();
    for _ in 0..2 {
        for (pair, path) in [(&alice, "/orders"), (&alice, "/stock"), (&bob, "/orders"), (&bob, "/stock")] {
            assert_eq!(gateway.client().bearer(&pair.access).get(path).await.status, 200);
            tokens.push(last_token(&upstream).expect("a token"));
        }
    }
    assert_eq!(tokens[..4], tokens[4..]);
    assert_eq!(server.count(), 4, "{tokens:?}");
}

/// With `subject_audience`, the other server trusts one issuer: the gateway.
#[tokio::test]
async fn the_server_can_get_a_token_of_the_gateway() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let route = "[[route]]\npath = \"/keys\"\napi_keys = true\ntoken = \"exchange\"\ntoken_exchange = \"stock\"\n";
    let gateway = gateway(&upstream, &server, route);
    let pair = gateway.issue("alice", "").await;
    let (key, _) = gateway.issue_key(&json!({ "subject": "ci" })).await;
    for (bearer, path, subject) in [(&pair.access, "/stock", "alice"), (&key, "/keys", "ci")] {
        assert_eq!(gateway.client().bearer(bearer).get(path).await.status, 200);
        let (form, _) = server.state().seen.pop().expect("asked");
        let sent = &form["subject_token"];
        assert_ne!(sent, bearer, "no server gets the client's token or key");
        let claims = claims_of(sent);
        let expected = (json!(subject), json!("https://login.internal"), json!("https://gateway.example"));
        assert_eq!((claims["sub"].clone(), claims["aud"].clone(), claims["iss"].clone()), expected);
    }
}

#[tokio::test]
async fn a_token_is_used_until_shortly_before_it_expires() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    let pair = gateway.issue("alice", "").await;
    let get = async || {
        assert_eq!(gateway.client().bearer(&pair.access).get("/orders").await.status, 200);
        last_token(&upstream).expect("a token")
    };
    assert_eq!(get().await, "exchanged.1");
    gateway.advance(Duration::from_secs(268));
    assert_eq!(get().await, "exchanged.1");
    gateway.advance(Duration::from_secs(3));
    assert_eq!(get().await, "exchanged.2", "expires_in is 300");
}

#[tokio::test]
async fn a_lifetime_can_have_any_form_of_a_number() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    for (number, expires_in) in [json!("300"), json!(300.0), json!(null)].into_iter().enumerate() {
        // `null` removes the member otherwise.
        let body = json!({
            "access_token": format!("of.{number}"), "token_type": "Bearer", "expires_in": expires_in,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        });
        server.state().body = Some(body.to_string().leak());
        let pair = gateway.issue("alice", "").await;
        assert_eq!(gateway.client().bearer(&pair.access).get("/orders").await.status, 200, "{expires_in}");
        assert_eq!(last_token(&upstream), Some(format!("of.{number}")));
    }
}

#[tokio::test]
async fn requests_at_the_same_time_share_one_exchange() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    server.state().delay = Duration::from_millis(200);
    let pair = gateway.issue("alice", "").await;
    let client = gateway.client().bearer(&pair.access);
    let requests = (0..32).map(|_| client.get("/orders"));
    for response in join_all(requests).await {
        assert_eq!(response.status, 200, "{response:?}");
    }
    assert_eq!(server.count(), 1);
    assert!(upstream.seen().iter().all(|request| request.header("authorization") == Some("Bearer exchanged.1")));
}

#[tokio::test]
async fn an_exchanged_token_ends_with_the_clients_token() {
    let (upstream, server) = (Upstream::start(), TokenServer::start());
    let gateway = gateway(&upstream, &server, "");
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.client().bearer(&pair.access).get("/orders").await.status, 200);
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(gateway.client().bearer(&pair.access).get("/orders").await.status, 401);
    assert_eq!((server.count(), upstream.seen().len()), (1, 1));
    gateway.running().reload(gateway.config()).expect("reloaded");
    let next = gateway.issue("alice", "").await;
    assert_eq!(gateway.client().bearer(&next.access).get("/orders").await.status, 200);
    assert_eq!(last_token(&upstream).as_deref(), Some("exchanged.2"));
}

/// The routes of the new configuration name the exchanges of the new configuration.
#[tokio::test]
async fn a_reload_adds_and_replaces_exchanges() {
    let (upstream, first, second) = (Upstream::start(), TokenServer::start(), TokenServer::start());
    let gateway = gateway(&upstream, &first, "");
    let pair = gateway.issue("alice", "").await;
    let reload = |tables: &str| {
        let text = Gateway::config_text(&upstream.address.to_string(), tables);
        let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
        gateway.running().reload(config).expect("it reloads");
    };
    reload("");
    reload(&format!("{}{ROUTES}", exchanges(&second)));
    for path in ["/orders", "/stock"] {
        assert_eq!(gateway.client().bearer(&pair.access).get(path).await.status, 200);
        assert!(last_token(&upstream).is_some_and(|token| token.starts_with("exchanged.")));
    }
    assert_eq!((first.state().seen.len(), second.state().seen.len()), (0, 2));
}
