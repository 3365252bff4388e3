//! Explanations of requests with proofs: they say what the gateway would do, and use no proof up.

use bearward::types::clock::UnixTime;
use http::Method;
use serde_json::{Value, json};

use super::{HOST, Stage, presenting};
use crate::support::program::bearward_with_stdin;
use crate::support::prover::Prover;
use crate::support::{Gateway, TokenPair, Upstream};

/// A request with a token and its proof.
fn question(method: &str, path: &str, token: &str, proof: &str) -> Value {
    let headers = json!({ "Authorization": format!("DPoP {token}"), "DPoP": proof });
    json!({ "method": method, "path": path, "host": HOST, "cleartext": true, "headers": headers })
}

async fn explained(gateway: &Gateway, question: &Value) -> Value {
    let answer = gateway.admin_client().post("/admin/v1/explain", question).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[tokio::test]
async fn a_used_proof_is_explained_as_used() {
    let stage = Stage::new("[[route]]\npath = \"/observed\"\nenforce = false\n[[route]]\npath = \"/\"\n");
    let token = stage.token();
    for (path, before, after) in [("/orders", "allowed", "rejected"), ("/observed", "allowed", "observed")] {
        let proof = stage.proof(path, &token);
        let question = question("GET", path, &token, &proof);
        for _ in 0..2 {
            assert_eq!(explained(&stage.gateway, &question).await["decision"], before, "{path}");
        }
        assert_eq!(stage.get(path, &token, &proof).await.status, 200);
        for _ in 0..2 {
            let found = explained(&stage.gateway, &question).await;
            assert_eq!((&found["decision"], &found["reason"]), (&json!(after), &json!("proof_replayed")), "{path}");
        }
    }
}

/// The gateway does not know whether such a proof was used at the process before it.
#[tokio::test]
async fn a_proof_of_before_the_start_is_explained_as_too_old() {
    let stage = Stage::new("");
    let token = stage.token();
    let proof = stage.prover.proof("GET", &format!("http://{HOST}/"), &token, stage.now() - 10);
    let found = explained(&stage.gateway, &question("GET", "/", &token, &proof)).await;
    assert_eq!((&found["decision"], &found["reason"]), (&json!("rejected"), &json!("proof_time")), "{found}");
    assert!(found["detail"].as_str().is_some_and(|detail| detail.contains("older than this process")), "{found}");
    stage.get("/", &token, &proof).await.assert_rejected(401, "invalid_dpop_proof");
}

/// The gateway answers these calls itself. Before, the explanation of a refresh used its proof up.
#[tokio::test]
async fn explained_calls_use_no_proof_up() {
    let upstream = Upstream::start();
    let prover = Prover::new();
    let gateway = Gateway::with_config(&upstream, "[oauth]\ntoken_endpoint = \"/oauth/token\"\n");
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
    let pair = TokenPair::from_json(&issued.json());
    let proof = |method: &str, path: &str, token: &str| {
        prover.proof(method, &format!("http://{HOST}{path}"), token, gateway.now_secs())
    };
    let refresh = proof("POST", "/user/refresh", &pair.access);
    let asked = question("POST", "/user/refresh", &pair.access, &refresh);
    for _ in 0..2 {
        assert_eq!(explained(&gateway, &asked).await["decision"], "local");
    }
    let client = presenting(gateway.client(), &pair.access, &refresh);
    let response = client.post("/user/refresh", &json!({ "refreshToken": pair.refresh })).await;
    assert_eq!(response.status, 200, "{response:?}");
    let found = explained(&gateway, &asked).await;
    assert_eq!((&found["reason"], &found["status"]), (&json!("proof_rejected"), &json!(400)), "{found}");

    let path = format!("/token/{}", pair.token_id);
    let revoke = proof("DELETE", &path, &pair.access);
    let asked = question("DELETE", &path, &pair.access, &revoke);
    assert_eq!(explained(&gateway, &asked).await["decision"], "local");
    presenting(gateway.client(), &pair.access, &revoke).delete("/token/none").await;
    assert_eq!(presenting(gateway.client(), &pair.access, &revoke).delete(&path).await.status, 200, "not used up");

    let grant = proof("POST", "/oauth/token", "");
    let headers = json!({ "DPoP": grant });
    let mut asked = json!({ "method": "POST", "path": "/oauth/token", "host": HOST, "cleartext": true });
    asked["headers"] = headers;
    assert_eq!(explained(&gateway, &asked).await["decision"], "local");
    asked["path"] = json!("/oauth/token?x");
    assert_eq!(explained(&gateway, &asked).await["decision"], "local", "RFC 9449 section 4.3 ignores the query");
    asked["host"] = json!("other.test");
    assert_eq!(explained(&gateway, &asked).await["reason"], "proof_rejected");
}

/// The command has no memory of the gateway. Nonces, too, are known to the gateway alone.
#[tokio::test]
async fn the_command_does_not_guess_whether_a_proof_was_used() {
    let stage = Stage::new("[[route]]\npath = \"/observed\"\nenforce = false\n[[route]]\npath = \"/\"\n");
    let token = stage.token();
    let explain = |method: &str, path: &str, proof: &str, configuration: String| {
        std::fs::write(stage.gateway.path().join("gateway.toml"), configuration).expect("written");
        let authorization = format!("Authorization: DPoP {token}");
        let proof = format!("DPoP: {proof}");
        let now = UnixTime::from_secs(stage.now()).to_string();
        let arguments = ["explain", "--cleartext", "--host", HOST, "--method", method, "--path", path, "--at", &now];
        let arguments = [&arguments[..], &["--header", &authorization, "--header", &proof]].concat();
        let output = bearward_with_stdin(stage.gateway.path(), &arguments, "");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let configuration = || stage.gateway.configuration().to_owned();
    let (status, text) = explain("GET", "/", &stage.proof("/", &token), configuration());
    assert!(status == Some(3) && text.contains("unknown: allowed, unless the proof was used"), "{text}");
    assert!(text.contains("ask it with POST /admin/v1/explain"), "{text}");
    let (status, text) = explain("GET", "/observed", &stage.proof("/observed", &token), configuration());
    assert_eq!(status, Some(0), "allowed anyway: {text}");
    let (status, text) = explain("GET", "/", &stage.proof("/other", &token), configuration());
    assert!(status == Some(1) && text.contains("proof_request"), "{text}");

    let old = stage.prover.proof("GET", &format!("http://{HOST}/"), &token, stage.now() - 600);
    let (status, text) = explain("GET", "/", &old, configuration());
    assert!(status == Some(1) && text.contains("proof_time"), "{text}");
    let nonces = configuration().replace("[tokens]\n", "[tokens]\nproof_nonce = \"required\"\n");
    let (status, text) = explain("GET", "/", &old, nonces);
    assert!(status == Some(3) && text.contains("the nonce of the proof decides"), "{text}");
}

/// A login at a backend takes a proof as well.
#[tokio::test]
async fn the_proof_of_a_login_is_explained() {
    let upstream = Upstream::start();
    let prover = Prover::new();
    let gateway = Gateway::with_config(&upstream, "[[route]]\npath = \"/login\"\npublic = true\nlogin = true\n");
    let proof = prover.proof("POST", &format!("http://{HOST}/login"), "", gateway.now_secs());
    for (host, reason) in [(HOST, Value::Null), ("other.test", json!("proof_rejected"))] {
        let asked = json!({ "method": "POST", "path": "/login", "host": host, "cleartext": true, "headers": { "DPoP": proof } });
        assert_eq!(explained(&gateway, &asked).await["reason"], reason, "{host}");
    }
    let response = gateway.client().header("dpop", &proof).send(Method::POST, "/login", "".into()).await;
    assert_ne!(response.status, 400, "the proof was not used up: {response:?}");
}
