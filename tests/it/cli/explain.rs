//! `bearward explain`: it says what the server says, step by step, and touches nothing.

use bearward::app::explain::{Explainer, Outcome};
use bearward::tokens::jwt::Algorithm;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::support::program::{bearward, bearward_reading};
use crate::support::tokens::Mint;
use crate::support::{Client, Gateway, Upstream};

const ROUTES: &str = r#"
[[route]]
path = "/any/"
[[route]]
path = "/scoped/"
scopes = ["a"]
any_scope = ["x", "b"]
[[route]]
path = "/claim/"
[[route.claim]]
pointer = "/tenant"
equals = "acme"
[[route]]
path = "/own/"
issuers = ["https://gateway.example"]
[[route]]
path = "/cookie/"
token_from = ["cookie:session", "query:t"]
origins = ["https://friend.example"]
[[route]]
path = "/observed/"
scopes = ["admin"]
enforce = false
[[route]]
path = "/post/"
methods = ["POST"]
[[route]]
path = "/public/"
public = true
[[route]]
path = "/hosted/"
host = "a.example"
preflight = true
"#;

/// A request, but for a number that makes its path its own.
#[derive(Clone)]
struct Asked {
    method: Method,
    /// `{}` stands for the number.
    path: String,
    headers: Vec<(&'static str, String)>,
}

fn asked(path: &str) -> Asked {
    Asked { method: Method::GET, path: path.into(), headers: Vec::new() }
}

impl Asked {
    fn with(mut self, name: &'static str, value: impl Into<String>) -> Asked {
        self.headers.push((name, value.into()));
        self
    }

    fn method(mut self, method: Method) -> Asked {
        self.method = method;
        self
    }
}

fn tokens(mint: &Mint, now: u64, own: String) -> Vec<String> {
    let good = mint.good(now);
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

fn requests(tokens: &[String]) -> Vec<Asked> {
    let paths = ["/any/{}", "/scoped/{}", "/claim/{}", "/own/{}", "/observed/{}", "/public/{}", "/none/{}", "/post/{}"];
    let mut requests: Vec<Asked> = Vec::new();
    for path in paths {
        requests.push(asked(path));
        requests.extend(tokens.iter().map(|token| asked(path).with("authorization", format!("Bearer {token}"))));
    }
    let good = &tokens[0];
    let bearer = format!("Bearer {good}");
    let cookie = format!("session={good}");
    requests.extend([
        asked("/any/{}").with("authorization", &bearer).with("authorization", &bearer),
        asked("/any/{}").with("authorization", "Basic YTpi"),
        asked("/any/../{}").with("authorization", &bearer),
        asked("/any/%2f{}").with("authorization", &bearer),
        asked("/any//{}").with("authorization", &bearer),
        asked("/any/{};x").with("authorization", &bearer),
        asked("/any/{}").with("authorization", &bearer).with("host", "a.example, b.example"),
        asked("/post/{}").with("authorization", &bearer).method(Method::POST),
        asked("/post/{}").with("authorization", &bearer).method(Method::OPTIONS),
        asked("/cookie/{}").with("cookie", &cookie),
        asked("/cookie/{}").with("cookie", &cookie).method(Method::POST),
        asked("/cookie/{}").with("cookie", &cookie).method(Method::POST).with("origin", "http://gateway.test"),
        asked("/cookie/{}").with("cookie", &cookie).method(Method::POST).with("origin", "https://friend.example"),
        asked("/cookie/{}").with("cookie", &cookie).method(Method::DELETE).with("origin", "https://evil.example"),
        asked(&format!("/cookie/{{}}?t={good}")),
        asked(&format!("/cookie/{{}}?t={good}")).with("cookie", &cookie),
        asked("/cookie/{}").with("authorization", &bearer),
        asked("/hosted/{}").with("authorization", &bearer),
        asked("/hosted/{}").with("authorization", &bearer).with("host", "A.example:8443"),
        asked("/hosted/{}").with("host", "a.example").method(Method::OPTIONS),
        asked("/hosted/{}")
            .with("host", "a.example")
            .with("origin", "https://app.example")
            .with("access-control-request-method", "PUT")
            .method(Method::OPTIONS),
    ]);
    requests
}

#[tokio::test]
async fn it_decides_as_the_server_does() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::trusting(&upstream, &mint, ROUTES);
    let own = gateway.issue("alice", "a b").await.access;
    let requests = requests(&tokens(&mint, gateway.now_secs(), own));
    assert!(requests.len() >= 60, "{}", requests.len());
    let config = gateway.config();
    let explainer = Explainer::prepare(&config, gateway.clock.clone()).await.expect("it is all there");
    let mut decisions: Vec<(String, Value)> = Vec::new();
    for (number, asked) in requests.iter().enumerate() {
        let path = asked.path.replace("{}", &number.to_string());
        let client = asked.headers.iter().fold(gateway.client(), |client, (name, value)| client.header(name, value));
        let answer = client.send(asked.method.clone(), &path, Default::default()).await;
        let mut request = Request::builder().method(asked.method.clone()).uri(&path);
        if !asked.headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "gateway.test");
        }
        let request = asked.headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        let explained = explainer.explain(&request.body(()).expect("a request"), false).await;
        let decision = match &explained.outcome {
            Outcome::Allowed => json!({ "status": 200 }),
            Outcome::Observed(reject) => {
                json!({ "status": 200, "observed": reject.reason.code(), "detail": &*reject.detail })
            }
            Outcome::Rejected(reject) => {
                json!({ "status": reject.reason.status().as_u16(), "reason": reject.reason.code(), "detail": &*reject.detail })
            }
            Outcome::Local(what) => panic!("{path}: {what}"),
        };
        assert_eq!(decision["status"], answer.status.as_u16(), "{path} {:?}: {answer:?}", asked.headers);
        decisions.push((path, decision));
    }
    let lines = gateway.log_lines(requests.len()).await;
    for (path, decision) in &decisions {
        let path = path.split('?').next().unwrap_or_default();
        let line = lines.iter().find(|line| line["path"] == *path).unwrap_or_else(|| panic!("a line of {path}"));
        for member in ["reason", "observed", "detail"] {
            let explained = decision[member].as_str().filter(|text| !text.is_empty());
            // The server remembers a token that it found forged.
            let is_remembered = member == "detail" && line[member] == "the same token again";
            assert!(is_remembered || line[member].as_str() == explained, "{member} of {path}: {line}");
        }
    }
    let mut reasons: Vec<_> = decisions.iter().filter_map(|(_, decision)| decision["reason"].as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert!(reasons.len() >= 20, "a table that tries little: {reasons:?}");
}

/// The gateway's files as `bearward` finds them, and a token of its own.
async fn explained(gateway: &Gateway, arguments: &[&str], token: &str) -> (Option<i32>, String) {
    std::fs::write(gateway.path().join("gateway.toml"), gateway.configuration()).expect("written");
    let now = bearward::types::clock::UnixTime::from_secs(gateway.now_secs()).to_string();
    let mut all = vec!["explain", "--host", "gateway.test"];
    all.extend(arguments);
    if !arguments.contains(&"--at") {
        all.extend(["--at", &now]);
    }
    let output = bearward_reading(gateway.path(), &all, token);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(!text(&output.stderr).contains("panicked"), "{output:?}");
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[tokio::test]
async fn each_step_is_told_and_the_exit_status_says_how_it_ended() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::trusting(&upstream, &mint, ROUTES);
    let pair = gateway.issue("alice", "a b").await;
    let scoped = ["--path", "/scoped/1?x=y", "--token-stdin"];
    let (status, told) = explained(&gateway, &scoped, &pair.access).await;
    assert_eq!(status, Some(0), "{told}");
    let steps: Vec<&str> = told.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let expected = "host path route token issuer header claims time key signature revocation rules decision";
    assert_eq!(steps.join(" "), expected, "{told}");
    for line in [
        "host        gateway.test",
        "path        /scoped/1",
        "token       in the Authorization header",
        "issuer      https://gateway.example",
        "claims      sub \"alice\", scope \"a b\"",
        "revocation  not checked: the running gateway has the store",
        "rules       the scopes a; one of the scopes x, b",
        "decision    allowed",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}\n{told}");
    }
    assert!(!told.contains(&pair.access[..40]), "a token was printed: {told}");

    let refused = mint.with_claims(gateway.now_secs(), json!({ "scope": "b", "sub": "bob\u{1b}[2J" }));
    let (status, told) = explained(&gateway, &scoped, &refused).await;
    assert_eq!(status, Some(1), "{told}");
    assert!(told.ends_with("decision    rejected: 403 insufficient_scope, missing scope a\n"), "{told}");
    assert!(!told.contains("rules ") && !told.contains('\u{1b}'), "{told:?}");

    let (status, told) = explained(&gateway, &["--path", "/scoped/1", "--json"], "").await;
    assert_eq!(status, Some(1), "{told}");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let steps = json!([
        { "step": "host", "found": "gateway.test" },
        { "step": "path", "found": "/scoped/1" },
        { "step": "route", "found": "/scoped/" }
    ]);
    assert_eq!(told["steps"], steps);
    assert_eq!(
        (&told["decision"], &told["reason"], &told["status"]),
        (&json!("rejected"), &json!("no_token"), &json!(401))
    );

    for (arguments, token, status, says) in [
        (
            &["--path", "/observed/", "--token-stdin"][..],
            pair.access.as_str(),
            0,
            "does not enforce: 403 insufficient_scope",
        ),
        (&["--path", "/public/"], "", 0, "not required"),
        (&["--path", "/cookie/", "--token-stdin", "--token-in", "cookie:session"], &pair.access, 0, "in a cookie"),
        (&["--path", "/cookie/?a", "--token-stdin", "--token-in", "query:t"], &pair.access, 0, "in the query"),
        (
            &["--path", "/cookie/", "--method", "POST", "--token-stdin", "--token-in", "cookie:session"],
            &pair.access,
            1,
            "403 csrf",
        ),
        (
            &[
                "--path",
                "/cookie/",
                "--method",
                "POST",
                "--token-stdin",
                "--token-in",
                "cookie:session",
                "--header",
                "Origin: https://gateway.test",
            ],
            &pair.access,
            0,
            "origin ",
        ),
        (&["--path", "/user/refresh", "--method", "POST"], "", 0, "the gateway itself refreshes the token pair"),
        (&["--path", "/user/refresh"], "", 1, "405 method_not_allowed"),
        (&["--path", "/any/", "--token-stdin", "--at", "2000-01-01T00:00:00Z"], &pair.access, 1, "401 not_yet_valid"),
        (&["--path", "/any/", "--token-stdin", "--token-in", "body"], &pair.access, 2, "expected header"),
        (&["--at", "yesterday"], "", 2, "expected a time"),
        (&["--header", "Origin"], "", 2, "expected \"Name: value\""),
    ] {
        let (found, told) = explained(&gateway, arguments, token).await;
        assert_eq!(found, Some(status), "{arguments:?}: {told}");
        assert!(told.contains(says), "{arguments:?}: {told}");
    }
}

#[tokio::test]
async fn what_was_revoked_is_for_the_running_gateway_to_know() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    let (status, told) = explained(&gateway, &["--token-stdin"], &pair.access).await;
    assert_eq!(status, Some(0));
    assert!(told.contains("not checked"), "{told}");
    // The gateway has lost nothing by being read beside.
    gateway.client().bearer(&pair.access).get("/").await.refused(401, "invalid_token");
    assert_eq!(
        Client::http1(gateway.address()).bearer(&gateway.issue("bob", "").await.access).get("/").await.status,
        200
    );
}

#[test]
fn before_the_first_start_it_makes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n")
        .expect("written");
    let output = bearward_reading(folder.path(), &["explain", "--token-stdin"], "a.b.c");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|file| file.file_name()).collect();
    assert_eq!(names, ["gateway.toml"]);

    std::fs::write(folder.path().join("gateway.toml"), "workers = \"x\"").expect("written");
    let output = bearward(folder.path(), &["explain"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("workers"), "{output:?}");
}
