//! The OAuth endpoints of the gateway.

pub mod clients;
mod exchange;
mod introspect;
mod metadata;
mod resources;
mod revoke;
mod token;

use bearward::app::explain::Explainer;
use bearward::gateway::explanation::Outcome;
use bytes::Bytes;
use http::{Method, Request};

use crate::support::{Client, Gateway, TestResponse, Upstream};

const OAUTH: &str = r#"
[oauth]
token_endpoint = "/oauth/token"
revocation_endpoint = "/oauth/revoke"
introspection_endpoint = "/oauth/introspect"
"#;

/// `WWW-Authenticate` for a client that used the scheme Basic.
const BASIC: &str = "Basic realm=\"bearward\", charset=\"UTF-8\"";

const FORM: &str = "application/x-www-form-urlencoded";

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::with_config(upstream, OAUTH)
}

/// Posts a form. The values in these tests need no escaping.
pub async fn post(client: Client, path: &str, form: &[(&str, &str)]) -> TestResponse {
    let body: Vec<String> = form.iter().map(|(name, value)| format!("{name}={value}")).collect();
    client.header("content-type", FORM).send(Method::POST, path, Bytes::from(body.join("&"))).await
}

/// Asserts an error response of RFC 6749 section 5.2.
#[track_caller]
fn assert_error(response: &TestResponse, status: u16, error: &str) {
    response.assert_rejected(status, error);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert!(response.json()["error_description"].is_string());
}

#[tokio::test]
async fn oauth_endpoints_are_off_by_default() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for path in ["/oauth/token", "/oauth/revoke", "/oauth/introspect", "/.well-known/oauth-protected-resource"] {
        post(gateway.client(), path, &[]).await.assert_rejected(401, "unauthorized");
    }
    let pair = gateway.issue("alice", "").await;
    assert_eq!(
        gateway.client().bearer(&pair.access).get("/oauth/token").await.status,
        200,
        "the path belongs to the backend"
    );
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn explain_reports_that_the_gateway_handles_oauth_endpoints() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let caller = gateway.issue("service", "token:introspect").await;
    let explainer = Explainer::prepare(&gateway.config(), gateway.clock.clone()).await.expect("it can explain");
    let request = |path: &str| Request::post(path).header("host", "gateway.test");
    let own = |path: &str| request(path).body(()).expect("a request");
    let authenticated = request("/oauth/introspect").header("authorization", format!("Bearer {}", caller.access));
    for (request, purpose) in [
        (own("/oauth/token"), "exchanges"),
        (own("/oauth/revoke"), "revokes"),
        (authenticated.body(()).expect("a request"), "introspects"),
    ] {
        let explanation = explainer.explain(&request, false).await;
        let Outcome::Local(what) = explanation.outcome else { panic!("{purpose}: {:?}", explanation.steps) };
        assert!(what.contains(purpose), "{what}");
    }
    let anonymous = explainer.explain(&own("/oauth/introspect"), false).await;
    assert!(matches!(anonymous.outcome, Outcome::Rejected(_)), "only callers with credentials introspect");
}

#[tokio::test]
async fn oauth_endpoints_accept_small_post_forms_without_duplicates() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let pair = gateway.issue("alice", "").await;
    for path in ["/oauth/token", "/oauth/revoke", "/oauth/introspect"] {
        for method in [Method::GET, Method::PUT, Method::OPTIONS, Method::DELETE] {
            let response = gateway.client().send(method, path, Bytes::new()).await;
            assert_eq!((response.status.as_u16(), response.header("allow")), (405, Some("POST")));
        }
        let valid = format!("grant_type=refresh_token&refresh_token={0}&token={0}", pair.refresh);
        let send = |kind: &str, body: String| {
            let client = gateway.client().header("content-type", kind);
            async move { client.send(Method::POST, path, body.into()).await }
        };
        for kind in ["application/json", "text/plain", "multipart/form-data", ""] {
            assert_error(&send(kind, valid.clone()).await, 400, "invalid_request");
        }
        for body in [
            format!("{valid}&x=1&x=1"),
            format!("{valid}&%74oken=x"),
            format!("{valid}&a=%zz"),
            format!("{valid}&a=%ff"),
        ] {
            assert_error(&send(FORM, body).await, 400, "invalid_request");
        }
        assert_error(&send(FORM, format!("{valid}&pad={}", "x".repeat(8 << 10))).await, 413, "invalid_request");
        let response = gateway.client().send(Method::POST, &format!("{path}?{valid}"), Bytes::new()).await;
        assert_error(&response, 400, "invalid_request");
    }
    assert_eq!(
        gateway.refresh(&pair.access, &pair.refresh).await.status,
        200,
        "none of these requests used or revoked the token"
    );
    assert!(upstream.seen().is_empty());
    gateway.drain_and_check_log();
}
