//! The sources of the keys of a client, and their changes.

use std::time::Duration;

use super::super::assert_error;
use super::{MachineKey, access_token, gateway, granted};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, KeyServer, Upstream};

fn fetched(upstream: &Upstream, server: &KeyServer) -> Gateway {
    let url = format!("http://{}/keys", server.address);
    Gateway::with_config(
        upstream,
        &format!(
            "[oauth]\ntoken_endpoint = \"/oauth/token\"\n[[oauth.client]]\nclient_id = \"ci\"\n\
             jwks_url = \"{url}\"\nalgorithms = [\"ES256\"]\n"
        ),
    )
}

async fn status(gateway: &Gateway, key: &MachineKey) -> u16 {
    granted(gateway.client(), &key.assertion(gateway.now_secs()), &[]).await.status.as_u16()
}

async fn becomes(gateway: &Gateway, key: &MachineKey, expected: u16) {
    eventually_ok(&format!("the status becomes {expected}"), async || match status(gateway, key).await {
        status if status == expected => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
}

#[tokio::test]
async fn a_new_key_of_a_client_is_fetched_when_it_is_used() {
    let (upstream, [old, new]) = (Upstream::start(), [MachineKey::new(), MachineKey::new()]);
    let server = KeyServer::start(&[&old.0]);
    let gateway = fetched(&upstream, &server);
    becomes(&gateway, &old, 200).await;
    server.pages().keys = vec![new.0.jwk()];
    gateway.advance(Duration::from_secs(31));
    becomes(&gateway, &new, 200).await;
    assert_eq!(status(&gateway, &old).await, 401, "the client does not publish it any more");
}

#[tokio::test]
async fn without_its_keys_a_client_gets_503() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let server = KeyServer::start(&[&key.0]);
    server.pages().status = http::StatusCode::INTERNAL_SERVER_ERROR;
    let gateway = fetched(&upstream, &server);
    let assertion = key.assertion(gateway.now_secs());
    assert_error(&granted(gateway.client(), &assertion, &[]).await, 503, "temporarily_unavailable");
}

/// The keys of one client are not worth the traffic of all others: the gateway stays ready.
#[tokio::test]
async fn operators_see_how_the_keys_of_a_client_are() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let server = KeyServer::start(&[&key.0]);
    let gateway = fetched(&upstream, &server);
    becomes(&gateway, &key, 200).await;
    let entry = async || {
        let list = gateway.admin_client().get("/admin/v1/issuers").await.json();
        list["issuers"].as_array().expect("a list").iter().find(|entry| entry["kind"] == "client").cloned()
    };
    let found = entry().await.expect("the client is listed");
    assert_eq!((&found["issuer"], &found["state"], &found["keys"]), (&"ci".into(), &"current".into(), &1.into()));
    assert_eq!(gateway.metric("bearward_client_key_fetches_total{client=\"ci\",outcome=\"changed\"}").await, 1.0);
    server.pages().status = http::StatusCode::INTERNAL_SERVER_ERROR;
    gateway.advance(Duration::from_secs(31));
    assert_eq!(status(&gateway, &MachineKey::new()).await, 503, "it may have a new key");
    eventually_ok("a fetch has failed", async || {
        let failed = gateway.metric("bearward_client_key_fetches_total{client=\"ci\",outcome=\"failed\"}").await;
        if failed >= 1.0 { Ok(()) } else { Err(failed.to_string()) }
    })
    .await;
    assert!(gateway.metric("bearward_client_keys_age_seconds{client=\"ci\"}").await >= 31.0);
    assert_eq!(entry().await.expect("listed")["state"], "failing");
    assert_eq!(gateway.admin_client().get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_reload_changes_clients_and_their_keys() {
    let (upstream, [old, new]) = (Upstream::start(), [MachineKey::new(), MachineKey::new()]);
    let gateway = gateway(&upstream, &old, "");
    let token = access_token(&granted(gateway.client(), &old.assertion(gateway.now_secs()), &[]).await);
    std::fs::write(gateway.path().join("ci.json"), new.0.jwks()).expect("written");
    // The file is read every two seconds, and by each reload.
    gateway.running().reload(gateway.config()).expect("reloaded");
    assert_eq!((status(&gateway, &old).await, status(&gateway, &new).await), (401, 200));
    let mut without = gateway.config();
    without.oauth.clients.clear();
    gateway.running().reload(without).expect("reloaded");
    let grant = granted(gateway.client(), &new.assertion(gateway.now_secs()), &[]).await;
    assert_error(&grant, 400, "unsupported_grant_type");
    assert_eq!(gateway.status_of(&token).await, 200, "its earlier tokens end by themselves, or by a revocation");
    let config = gateway.config();
    std::fs::write(gateway.path().join("ci.json"), "{").expect("written");
    assert!(gateway.running().reload(config).is_err(), "an invalid file leaves the current clients active");
    let grant = granted(gateway.client(), &new.assertion(gateway.now_secs()), &[]).await;
    assert_error(&grant, 400, "unsupported_grant_type");
}
