//! The standard doors: what an OAuth client sends, and what it gets.

mod introspect;
mod metadata;
mod revoke;
mod token;

use bearward::app::explain::{Explainer, Outcome};
use bytes::Bytes;
use http::{Method, Request};

use crate::support::{Answer, Client, Gateway, Upstream};

const OAUTH: &str = r#"
[oauth]
token_endpoint = "/oauth/token"
revocation_endpoint = "/oauth/revoke"
introspection_endpoint = "/oauth/introspect"
"#;

const FORM: &str = "application/x-www-form-urlencoded";

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::with(upstream, OAUTH)
}

/// As a client sends a form. What is in the stories needs no escape.
async fn post(client: Client, path: &str, form: &[(&str, &str)]) -> Answer {
    let body: Vec<String> = form.iter().map(|(name, value)| format!("{name}={value}")).collect();
    client.header("content-type", FORM).send(Method::POST, path, Bytes::from(body.join("&"))).await
}

/// `error` of RFC 6749 section 5.2, in an answer that nobody keeps.
#[track_caller]
fn refused(answer: &Answer, status: u16, error: &str) {
    answer.refused(status, error);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.json()["error_description"].is_string());
}

#[tokio::test]
async fn each_is_off_unless_it_is_configured() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for path in ["/oauth/token", "/oauth/revoke", "/oauth/introspect", "/.well-known/oauth-protected-resource"] {
        post(gateway.client(), path, &[]).await.refused(401, "unauthorized");
    }
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.client().bearer(&pair.access).get("/oauth/token").await.status, 200, "it is the backend's");
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn explain_says_that_the_gateway_answers_them_itself() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let explainer = Explainer::prepare(&gateway.config(), gateway.clock.clone()).await.expect("it can explain");
    for (path, says) in
        [("/oauth/token", "exchanges"), ("/oauth/revoke", "revokes"), ("/oauth/introspect", "introspects")]
    {
        let request = Request::post(path).header("host", "gateway.test").body(()).expect("a request");
        let explanation = explainer.explain(&request, false).await;
        let Outcome::Local(what) = explanation.outcome else { panic!("{path}: {:?}", explanation.steps) };
        assert!(what.contains(says), "{what}");
    }
}

#[tokio::test]
async fn they_take_forms_by_post_each_parameter_once_and_not_too_large() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let pair = gateway.issue("alice", "").await;
    for path in ["/oauth/token", "/oauth/revoke", "/oauth/introspect"] {
        for method in [Method::GET, Method::PUT, Method::OPTIONS, Method::DELETE] {
            let answer = gateway.client().send(method, path, Bytes::new()).await;
            assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, Some("POST")));
        }
        let good = format!("grant_type=refresh_token&refresh_token={0}&token={0}", pair.refresh);
        let send = |kind: &str, body: String| {
            let client = gateway.client().header("content-type", kind);
            async move { client.send(Method::POST, path, body.into()).await }
        };
        for kind in ["application/json", "text/plain", "multipart/form-data", ""] {
            refused(&send(kind, good.clone()).await, 400, "invalid_request");
        }
        for body in
            [format!("{good}&x=1&x=1"), format!("{good}&%74oken=x"), format!("{good}&a=%zz"), format!("{good}&a=%ff")]
        {
            refused(&send(FORM, body).await, 400, "invalid_request");
        }
        refused(&send(FORM, format!("{good}&pad={}", "x".repeat(8 << 10))).await, 413, "invalid_request");
        let answer = gateway.client().send(Method::POST, &format!("{path}?{good}"), Bytes::new()).await;
        refused(&answer, 400, "invalid_request");
    }
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200, "nothing of that did anything");
    assert!(upstream.seen().is_empty());
    gateway.end_without_a_token_in_the_log();
}
