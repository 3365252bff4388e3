//! `bearward explain` about the calls that the gateway answers itself: it says what the gateway then does.

use std::time::Duration;

use bearward::app::explain::Explainer;
use bearward::gateway::explanation::Outcome;
use bearward::tokens::jwt::Algorithm;
use bytes::Bytes;
use http::{Method, Request};
use serde_json::json;

use crate::support::tokens::Mint;
use crate::support::{Gateway, TokenPair, Upstream};

const CONFIG: &str = "[oauth]\ntoken_endpoint = \"/oauth/token\"\nrevocation_endpoint = \"/oauth/revoke\"\n\
                      introspection_endpoint = \"/oauth/introspect\"\n\
                      [[route]]\npath = \"/page\"\ntoken_from = [\"login_cookie\"]\n[[route]]\npath = \"/\"";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const JSON: (&str, &str) = ("content-type", "application/json");

struct Call<'c> {
    line: &'c str,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Call<'_> {
    fn parts(&self) -> (Method, &str) {
        let (method, path) = self.line.split_once(' ').expect("a method and a path");
        (method.parse().expect("a method"), path)
    }

    /// What `explain` says: the status, with the reason, or with what the gateway does.
    async fn explained(&self, gateway: &Gateway) -> (u16, String) {
        let explainer = Explainer::prepare(&gateway.config(), gateway.clock.clone()).await.expect("all files exist");
        let (method, path) = self.parts();
        let request = Request::builder().method(method).uri(path).header("host", "gateway.test");
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        match explainer.explain(&request.body(()).expect("a request"), false).await.outcome {
            Outcome::Local(does) => (200, does),
            Outcome::Rejected(reject) => (reject.reason.status().as_u16(), reject.reason.code().to_owned()),
            Outcome::Allowed | Outcome::Observed(_) => panic!("{}: forwarded", self.line),
            Outcome::Unknown(why) => panic!("{}: {why}", self.line),
        }
    }

    /// `explain` says this before the call, and the gateway does it then.
    async fn assert_explained(&self, gateway: &Gateway, status: u16, text: &str) {
        let explained = self.explained(gateway).await;
        assert_eq!(explained.0, status, "{} {:?}: {explained:?}", self.line, self.headers);
        assert!(explained.1.contains(text), "{}: {explained:?}", self.line);
        let client = self.headers.iter().fold(gateway.client(), |client, (name, value)| client.header(name, value));
        let (method, path) = self.parts();
        let response = client.send(method, path, Bytes::from(self.body.clone())).await;
        assert_eq!(response.status.as_u16(), status, "{}: {response:?}", self.line);
        if status != 200 {
            let id = response.json()["requestId"].clone();
            let line = gateway.log_line(|line| line["request_id"] == id).await;
            assert_eq!(line["reason"], text, "{line}");
        }
    }
}

fn delete<'c>(line: &'c str, token: &str) -> Call<'c> {
    Call { line, headers: vec![bearer(token)], body: String::new() }
}

fn refresh(access: &str, refresh: &str) -> Call<'static> {
    let headers = vec![(JSON.0, JSON.1.to_owned()), bearer(access)];
    Call { line: "POST /user/refresh", headers, body: json!({ "refreshToken": refresh }).to_string() }
}

fn form<'c>(line: &'c str, authorization: Option<&str>, body: String) -> Call<'c> {
    let mut headers = vec![(FORM.0, FORM.1.to_owned())];
    headers.extend(authorization.map(|value| ("authorization", value.to_owned())));
    Call { line, headers, body }
}

fn bearer(token: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {token}"))
}

#[tokio::test]
async fn explain_says_whether_a_session_can_be_revoked() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, CONFIG);
    let (alice, second) = (gateway.issue("alice", "").await, gateway.issue("alice", "").await);
    let (bob, operator) = (gateway.issue("bob", "").await, gateway.issue("operator", "token:revoke").await);
    let (alices, seconds) = (format!("DELETE /token/{}", alice.token_id), format!("DELETE /token/{}", second.token_id));
    let forged = gateway.forger().await(1);
    let none = Call { line: &alices, headers: Vec::new(), body: String::new() };
    none.assert_explained(&gateway, 401, "no_token").await;
    delete(&alices, &forged).assert_explained(&gateway, 401, "bad_signature").await;
    delete(&alices, &bob.access).assert_explained(&gateway, 404, "token_not_found").await;
    delete(&alices, &mint.valid_token(gateway.now_secs())).assert_explained(&gateway, 404, "token_not_found").await;
    delete("DELETE /token/none", &alice.access).assert_explained(&gateway, 404, "token_not_found").await;
    let revokes = format!("revokes session {}", second.token_id);
    delete(&seconds, &alice.access).assert_explained(&gateway, 200, &revokes).await;
    delete(&seconds, &alice.access).assert_explained(&gateway, 200, "is revoked already").await;
    delete(&seconds, &second.access).assert_explained(&gateway, 401, "revoked").await;
    delete(&alices, &operator.access).assert_explained(&gateway, 200, "revokes session").await;
}

#[tokio::test]
async fn explain_says_whether_a_session_can_be_refreshed() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, CONFIG);
    let (alice, ended) = (gateway.issue("alice", "").await, gateway.issue("alice", "").await);
    assert_eq!(gateway.revoke(&alice.access, &ended.token_id).await.status, 200);
    let foreign = mint.valid_token(gateway.now_secs());
    refresh("x", &alice.refresh).assert_explained(&gateway, 401, "malformed_token").await;
    refresh(&foreign, &alice.refresh).assert_explained(&gateway, 400, "grant_mismatch").await;
    refresh(&ended.access, &ended.refresh).assert_explained(&gateway, 400, "grant_revoked").await;
    refresh(&alice.access, &alice.refresh).assert_explained(&gateway, 200, "refreshes session").await;

    let (bob, carol) = (gateway.issue("bob", "").await, gateway.issue("carol", "").await);
    let access = |pair: &TokenPair| format!("__Host-bearward-access={}", pair.access);
    let both = |pair: &TokenPair| format!("{}; __Host-bearward-refresh={}", access(pair), pair.refresh);
    let page = |cookie: String| Call { line: "GET /page", headers: vec![("cookie", cookie)], body: String::new() };
    gateway.advance(Duration::from_hours(1));
    page(access(&bob)).assert_explained(&gateway, 401, "expired").await;
    page(both(&bob)).assert_explained(&gateway, 200, "and decides again").await;
    assert_eq!(gateway.admin_client().delete(&format!("/admin/v1/tokens/{}", carol.token_id)).await.status, 200);
    page(both(&carol)).assert_explained(&gateway, 401, "expired").await;
}

#[tokio::test]
async fn explain_says_whether_an_oauth_call_is_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, &CONFIG.replace("\n[[route]]\npath = \"/\"", ""));
    let (alice, service) = (gateway.issue("alice", "").await, gateway.issue("service", "token:introspect").await);
    let (grant, token) =
        (format!("grant_type=refresh_token&refresh_token={}", alice.refresh), format!("token={}", alice.access));
    let basic = Some("Basic YTpi");
    let authorization = |token: &str| format!("Bearer {token}");
    for (line, body) in [("POST /oauth/token", &grant), ("POST /oauth/revoke", &token)] {
        form(line, basic, body.clone()).assert_explained(&gateway, 401, "client_authentication").await;
    }
    let introspect = "POST /oauth/introspect";
    form(introspect, basic, token.clone()).assert_explained(&gateway, 401, "wrong_client_secret").await;
    form(introspect, None, token.clone()).assert_explained(&gateway, 401, "no_token").await;
    let by = authorization(&alice.access);
    form(introspect, Some(&by), token.clone()).assert_explained(&gateway, 403, "insufficient_scope").await;
    let by = authorization(&service.access);
    form(introspect, Some(&by), token.clone()).assert_explained(&gateway, 200, "introspects a token").await;
    form("POST /oauth/token", None, grant).assert_explained(&gateway, 200, "exchanges a refresh token").await;
    form("POST /oauth/revoke", None, token).assert_explained(&gateway, 200, "revokes a token").await;
}

/// Another site must not log a browser in as its own user.
#[tokio::test]
async fn explain_says_that_a_login_from_another_site_is_rejected() {
    let upstream = Upstream::start();
    let route = "[[route]]\npath = \"/login\"\npublic = true\nlogin = \"cookie\"";
    let gateway = Gateway::with_config(&upstream, route);
    let headers = vec![("origin", "https://other.example".to_owned())];
    let login = Call { line: "POST /login", headers, body: String::new() };
    login.assert_explained(&gateway, 403, "csrf").await;
}
