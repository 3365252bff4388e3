//! `bearward explain` decides as the running gateway does, for many requests.

use bearward::app::explain::Explainer;
use bearward::gateway::explanation::Outcome;
use bearward::tokens::jwt::Algorithm;
use http::{Method, Request};
use serde_json::{Value, json};

use super::ROUTES;
use crate::support::tokens::Mint;
use crate::support::{Gateway, Upstream};

/// A request. The test puts a number into its path to make it unique.
#[derive(Clone)]
struct TestRequest {
    method: Method,
    /// `{}` stands for the number.
    path: String,
    headers: Vec<(&'static str, String)>,
}

fn request_for(path: &str) -> TestRequest {
    TestRequest { method: Method::GET, path: path.into(), headers: Vec::new() }
}

impl TestRequest {
    fn with(mut self, name: &'static str, value: impl Into<String>) -> TestRequest {
        self.headers.push((name, value.into()));
        self
    }

    fn method(mut self, method: Method) -> TestRequest {
        self.method = method;
        self
    }
}

fn tokens(mint: &Mint, now: u64, own: String) -> Vec<String> {
    let good = mint.valid_token(now);
    vec![
        good.clone(),
        own,
        mint.with_claims(now, json!({ "tenant": "acme", "scope": "a x admin" })),
        mint.with_claims(now, json!({ "scope": "b" })),
        mint.with_claims(now, json!({ "iss": "https://evil.example" })),
        mint.with_claims(now, json!({ "aud": "x" })),
        mint.with_claims(now, json!({ "sub": null })),
        mint.with_claims(now, json!({ "iat": now - 100, "exp": now - 31 })),
        mint.with_claims(now, json!({ "nbf": now + 31 })),
        mint.with_claims(now, json!({ "exp": now + 90_000 })),
        mint.with_header(now, json!({ "typ": "JWT" })),
        mint.with_header(now, json!({ "alg": "none" })),
        mint.with_header(now, json!({ "kid": "other" })),
        mint.with_header(now, json!({ "crit": ["exp"] })),
        Mint::new(Algorithm::ES256).sign(&mint.header(), &mint.claims(now)),
        format!("{good}.x"),
        "x".repeat(8193),
    ]
}

fn requests(tokens: &[String]) -> Vec<TestRequest> {
    let paths = ["/any/{}", "/scoped/{}", "/claim/{}", "/own/{}", "/observed/{}", "/public/{}", "/none/{}", "/post/{}"];
    let mut requests: Vec<TestRequest> = Vec::new();
    for path in paths {
        requests.push(request_for(path));
        requests.extend(tokens.iter().map(|token| request_for(path).with("authorization", format!("Bearer {token}"))));
    }
    let good = &tokens[0];
    let bearer = format!("Bearer {good}");
    let cookie = format!("session={good}");
    requests.extend([
        request_for("/any/{}").with("authorization", &bearer).with("authorization", &bearer),
        request_for("/any/{}").with("authorization", "Basic YTpi"),
        request_for("/any/../{}").with("authorization", &bearer),
        request_for("/any/%2f{}").with("authorization", &bearer),
        request_for("/any//{}").with("authorization", &bearer),
        request_for("/any/{};x").with("authorization", &bearer),
        request_for("/any/{}").with("authorization", &bearer).with("host", "a.example, b.example"),
        request_for("/post/{}").with("authorization", &bearer).method(Method::POST),
        request_for("/post/{}").with("authorization", &bearer).method(Method::OPTIONS),
        request_for("/cookie/{}").with("cookie", &cookie),
        request_for("/cookie/{}").with("cookie", &cookie).method(Method::POST),
        request_for("/cookie/{}").with("cookie", &cookie).method(Method::POST).with("origin", "http://gateway.test"),
        request_for("/cookie/{}").with("cookie", &cookie).method(Method::POST).with("origin", "https://friend.example"),
        request_for("/cookie/{}").with("cookie", &cookie).method(Method::DELETE).with("origin", "https://evil.example"),
        request_for(&format!("/cookie/{{}}?t={good}")),
        request_for(&format!("/cookie/{{}}?t={good}")).with("cookie", &cookie),
        request_for("/cookie/{}").with("authorization", &bearer),
        request_for("/hosted/{}").with("authorization", &bearer),
        request_for("/hosted/{}").with("authorization", &bearer).with("host", "A.example:8443"),
        request_for("/hosted/{}").with("host", "a.example").method(Method::OPTIONS),
        request_for("/hosted/{}")
            .with("host", "a.example")
            .with("origin", "https://app.example")
            .with("access-control-request-method", "PUT")
            .method(Method::OPTIONS),
    ]);
    requests
}

#[tokio::test]
async fn explain_decides_as_the_gateway_does() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, ROUTES);
    let own = gateway.issue("alice", "a b").await.access;
    let requests = requests(&tokens(&mint, gateway.now_secs(), own));
    assert!(requests.len() >= 60, "{}", requests.len());
    let config = gateway.config();
    let explainer = Explainer::prepare(&config, gateway.clock.clone()).await.expect("all files exist");
    let mut decisions: Vec<(String, Value)> = Vec::new();
    for (number, test_request) in requests.iter().enumerate() {
        let path = test_request.path.replace("{}", &number.to_string());
        let client =
            test_request.headers.iter().fold(gateway.client(), |client, (name, value)| client.header(name, value));
        let answer = client.send(test_request.method.clone(), &path, Default::default()).await;
        let mut request = Request::builder().method(test_request.method.clone()).uri(&path);
        if !test_request.headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "gateway.test");
        }
        let request = test_request.headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        let explained = explainer.explain(&request.body(()).expect("a request"), false).await;
        let decision = match &explained.outcome {
            Outcome::Unknown(why) => panic!("the database is there: {why}"),
            Outcome::Allowed => json!({ "status": 200 }),
            Outcome::Observed(reject) => {
                json!({ "status": 200, "observed": reject.reason.code(), "detail": &*reject.detail })
            }
            Outcome::Rejected(reject) => {
                json!({ "status": reject.reason.status().as_u16(), "reason": reject.reason.code(), "detail": &*reject.detail })
            }
            Outcome::Local(what) => panic!("{path}: {what}"),
        };
        assert_eq!(decision["status"], answer.status.as_u16(), "{path} {:?}: {answer:?}", test_request.headers);
        decisions.push((path, decision));
    }
    let lines = gateway.log_lines(requests.len()).await;
    for (path, decision) in &decisions {
        let path = path.split('?').next().unwrap_or_default();
        let line = lines.iter().find(|line| line["path"] == *path).unwrap_or_else(|| panic!("no log line of {path}"));
        for member in ["reason", "observed", "detail"] {
            let explained = decision[member].as_str().filter(|text| !text.is_empty());
            // The gateway caches tokens with a bad signature.
            let is_remembered = member == "detail" && line[member] == "the same token again";
            assert!(is_remembered || line[member].as_str() == explained, "{member} of {path}: {line}");
        }
    }
    let mut reasons: Vec<_> = decisions.iter().filter_map(|(_, decision)| decision["reason"].as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert!(reasons.len() >= 20, "too few different reasons: {reasons:?}");
}
