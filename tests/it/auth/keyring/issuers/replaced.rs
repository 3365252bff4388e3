//! A reload that changes where the keys of an issuer come from: the keys that work stay until the new source works.

use std::sync::Arc;
use std::time::Duration;

use bearward::admin::Reloaded;
use bearward::config::{self, Probe};
use serde_json::json;

use super::{fetched_from, folder, issuer, mint, new_token, start_in, status, wait_for_status};
use crate::support::tokens::EXTERNAL_ISSUER;
use crate::support::wait::eventually;
use crate::support::{Gateway, KeyServer, Upstream};

fn reload(gateway: &Gateway, upstream: &Upstream, more: &str) -> Reloaded {
    let text = Gateway::config_text(&upstream.address.to_string(), more);
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    gateway.running().reload(config).expect("it reloads")
}

#[tokio::test]
async fn working_keys_stay_until_the_new_source_has_answered() {
    let upstream = Upstream::start();
    let old = mint();
    let new = mint();
    let server = KeyServer::start(&[&old]);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    assert_eq!(status(&gateway, &new_token(&gateway, &old)).await, 200);

    let mistyped = fetched_from(&server.url("/kyes"), "");
    for more in [mistyped.clone(), format!("{mistyped}require_subject = false\n")] {
        let warnings = reload(&gateway, &upstream, &more).warnings;
        assert_eq!(status(&gateway, &new_token(&gateway, &old)).await, 200, "the reload has replaced a working source");
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        for part in [EXTERNAL_ISSUER, "/kyes", "404", "its keys from before the reload stay in use"] {
            assert!(warning.contains(part), "{part} is not in {warning}");
        }
    }

    // A token with a key that is not among them may be good: `explain` says why the gateway cannot know.
    let explain = async |token: String| {
        let explained = gateway.admin_client().post("/admin/v1/explain", &json!({ "token": token })).await;
        explained.json()
    };
    assert_eq!(explain(new_token(&gateway, &old)).await["decision"], "allowed");
    let unknown = explain(new_token(&gateway, &new)).await;
    assert_eq!(unknown["reason"], "keys_unavailable", "{unknown}");
    let text = unknown.to_string();
    assert!(text.contains("/kyes") && text.contains("404"), "{text}");

    // Once the new source answers, only its keys count.
    server.pages().documents.push(("/kyes".to_owned(), new.jwks()));
    wait_for_status(&gateway, &new, 200).await;
    assert_eq!(status(&gateway, &new_token(&gateway, &old)).await, 401);
    assert_eq!(reload(&gateway, &upstream, &fetched_from(&server.url("/keys"), "")).warnings, Vec::<String>::new());
    assert_eq!(status(&gateway, &new_token(&gateway, &old)).await, 200);
}

#[tokio::test]
async fn keys_of_a_file_stay_until_the_url_has_answered() {
    let upstream = Upstream::start();
    let key = mint();
    let folder = folder();
    let server = KeyServer::start(&[&key]);
    server.fail_with(503);
    std::fs::write(folder.path().join("keys.json"), key.jwks()).expect("written");
    let gateway = start_in(folder, &upstream, &issuer(EXTERNAL_ISSUER, "jwks_file = \"keys.json\""));
    let fetched = fetched_from(&server.url("/keys"), "startup = \"continue\"");
    let warnings = reload(&gateway, &upstream, &fetched).warnings;
    assert_eq!(status(&gateway, &new_token(&gateway, &key)).await, 200);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

/// The operator takes an algorithm away because its keys must not count any more.
#[tokio::test]
async fn keys_for_an_algorithm_that_a_reload_removes_do_not_stay() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    let token = new_token(&gateway, &key);
    assert_eq!(status(&gateway, &token).await, 200);
    let other = fetched_from(&server.url("/keys"), "startup = \"continue\"").replace("ES256", "ES384");
    let warnings = reload(&gateway, &upstream, &other).warnings;
    assert!(warnings[0].contains("no key can be used with ES384"), "{warnings:?}");
    assert_ne!(status(&gateway, &token).await, 200);
}

/// Of another issuer, no key counts: the response and `explain` say why.
#[tokio::test]
async fn a_new_issuer_without_keys_is_reported_with_its_error() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    let gateway = Gateway::with_config(&upstream, "");
    let mistyped = fetched_from(&server.url("/kyes"), "startup = \"continue\"\nmax_lifetime = \"10m\"");
    let warnings = reload(&gateway, &upstream, &mistyped).warnings;
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains("404") && warning.contains("its tokens get 503"), "{warning}");
    let token = new_token(&gateway, &key);
    assert_eq!(status(&gateway, &token).await, 503);
    let explained = gateway.admin_client().post("/admin/v1/explain", &json!({ "token": token })).await;
    let text = explained.text();
    assert!(text.contains("keys_unavailable") && text.contains("404"), "{text}");
    // The access log names no more than before: only operators see what an issuer responds.
    let line = gateway.log_line(|line| line["reason"] == "keys_unavailable").await;
    assert!(!line.to_string().contains("404"), "{line}");
}

/// A reload waits for the keys of a new source. Operators ask meanwhile, and the thread that they ask fetches the keys.
#[tokio::test]
async fn explain_answers_while_a_reload_waits_and_delays_no_keys() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    let gateway = Arc::new(Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), "")));
    let token = new_token(&gateway, &key);
    server.pages().documents.push(("/slow".to_owned(), key.jwks()));
    server.pages().delay = Duration::from_secs(2);
    let slow = fetched_from(&server.url("/slow"), "");
    let reloading = tokio::task::spawn_blocking({
        let gateway = gateway.clone();
        let address = upstream.address;
        move || {
            let text = Gateway::config_text(&address.to_string(), &slow);
            let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
            gateway.running().reload(config).expect("it reloads")
        }
    });
    eventually("the reload fetches the keys", || server.pages().seen.iter().any(|(path, _)| path == "/slow")).await;
    let explained = gateway.admin_client().post("/admin/v1/explain", &json!({ "token": token })).await;
    assert_eq!(explained.json()["decision"], "allowed", "{explained:?}");
    assert!(!reloading.is_finished(), "explain waits for the reload");
    assert_eq!(reloading.await.expect("no panic").warnings, Vec::<String>::new());
}
