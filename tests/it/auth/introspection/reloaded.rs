//! A reload that changes the introspection endpoint tries it.

use std::sync::Arc;

use bearward::config::{self, Probe};
use serde_json::json;

use super::endpoint::{Endpoint, response};
use super::{LOGIN, ROUTES, asking, client, issuer, status};
use crate::support::wait::eventually;
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

/// What one configuration looks up has its headers, and is nothing for requests of the next one.
#[tokio::test]
async fn a_question_is_not_shared_over_a_reload() {
    let upstream = Upstream::start();
    let endpoint = Endpoint::start();
    let gateway = Arc::new(asking(&upstream, &endpoint, ""));
    let old = client(&gateway, "alice.1");
    let new = client(&gateway, "alice.1");
    endpoint.hold();
    let old = tokio::spawn(async move { old.get("/old").await });
    eventually("the first configuration asks", || endpoint.count() == 1).await;
    let warnings = reload(&gateway, &upstream, &endpoint, "[identity]\nsubject = \"X-Person\"\n").await;
    assert_eq!(warnings, Vec::<String>::new());
    let new = tokio::spawn(async move { new.get("/new").await });
    eventually("the second configuration asks", || endpoint.count() == 2).await;
    endpoint.release(100);
    assert_eq!(old.await.expect("no panic").status, 200);
    assert_eq!(new.await.expect("no panic").status, 200);
    for seen in upstream.seen() {
        let expected = if seen.target() == "/new" { [None, Some("alice")] } else { [Some("alice"), None] };
        assert_eq!([seen.header("x-auth-subject"), seen.header("x-person")], expected, "{}", seen.target());
    }
}
