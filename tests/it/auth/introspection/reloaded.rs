//! A reload that changes the introspection endpoint tries it.

use std::sync::Arc;

use bearward::config::{self, Probe};
use serde_json::json;

use super::endpoint::{Endpoint, response};
use super::{LOGIN, ROUTES, asking, issuer, status};
use crate::support::{Gateway, Upstream};

/// Reloads while the endpoint, which runs on this thread, can answer. Returns the warnings.
async fn reload(gateway: &Arc<Gateway>, upstream: &Upstream, endpoint: &Endpoint, more: &str) -> Vec<String> {
    let more = format!("{}{ROUTES}", issuer(LOGIN, endpoint, "", more));
    let text = Gateway::config_text(&upstream.address.to_string(), &more);
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    let gateway = gateway.clone();
    let reloaded = tokio::task::spawn_blocking(move || gateway.running().reload(config)).await.expect("no panic");
    reloaded.expect("it reloads").warnings
}

#[tokio::test]
async fn an_endpoint_that_would_fail_for_every_token_is_reported() {
    let upstream = Upstream::start();
    let first = Endpoint::start();
    let second = Endpoint::start();
    let gateway = Arc::new(asking(&upstream, &first, ""));
    second.respond_with(response("404 Not Found", "text/html", "<p>"));
    let warnings = reload(&gateway, &upstream, &second, "").await;
    assert!(warnings.len() == 1 && warnings[0].contains(LOGIN) && warnings[0].contains("404"), "{warnings:?}");
    let warnings = reload(&gateway, &upstream, &first, "cache = \"2m\"").await;
    assert!(warnings.len() == 1 && warnings[0].contains("an invented token is active"), "{warnings:?}");
    let questions = first.count();
    assert_eq!(reload(&gateway, &upstream, &first, "cache = \"3m\"").await, Vec::<String>::new());
    assert_eq!(first.count(), questions, "a known endpoint is not asked");
    let warnings = reload(&gateway, &upstream, &first, "token_prefix = [\"alice\"]").await;
    assert!(warnings.iter().any(|warning| warning.contains(LOGIN)), "a question has another form: {warnings:?}");
    assert_eq!(first.count(), questions + 1);
    second.answer_json(|token| json!({ "active": token.starts_with("alice") }));
    assert_eq!(reload(&gateway, &upstream, &second, "").await, Vec::<String>::new());
    assert_eq!(status(&gateway, "alice.1").await, 200);
}
