//! Nonces (RFC 9449 section 8): the gateway says when a proof was made.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{HOST, Stage, presenting, reason_for};
use crate::support::prover::Prover;
use crate::support::tokens::{Mint, with_another_character};
use crate::support::{Gateway, ScriptedBackend, TestResponse, TokenPair, Upstream};

/// A gateway that requires nonces, with more sections.
fn stage(more: &str) -> Stage {
    let (upstream, issuer) = (Upstream::start(), Mint::new(bearward::tokens::jwt::Algorithm::ES256));
    let gateway = Gateway::with_issuer(&upstream, &issuer, more);
    let gateway = gateway.restart_with(|text| text.replace("[tokens]\n", "[tokens]\nproof_nonce = \"required\"\n"));
    Stage { upstream, gateway, issuer, prover: Prover::new() }
}

fn proof_with(stage: &Stage, path: &str, token: &str, nonce: Value) -> String {
    let mut draft = stage.prover.draft("GET", &format!("http://{HOST}{path}"), token, stage.now());
    if !nonce.is_null() {
        draft.claims["nonce"] = nonce;
    }
    stage.prover.sign(&draft)
}

async fn get(stage: &Stage, token: &str, nonce: Value) -> TestResponse {
    stage.get("/", token, &proof_with(stage, "/", token, nonce)).await
}

fn nonce_of(response: &TestResponse) -> Value {
    assert_eq!(response.headers.get_all("dpop-nonce").iter().count(), 1, "{response:?}");
    json!(response.header("dpop-nonce").expect("a nonce"))
}

async fn first_nonce(stage: &Stage, token: &str) -> Value {
    let response = get(stage, token, Value::Null).await;
    response.assert_rejected(401, "use_dpop_nonce");
    let challenge = response.header("www-authenticate").expect("a challenge");
    assert!(challenge.starts_with("DPoP error=\"use_dpop_nonce\""), "{challenge}");
    nonce_of(&response)
}

#[tokio::test]
async fn a_proof_needs_the_nonce_of_the_gateway() {
    let stage = stage("[cors]\norigins = [\"https://app.example\"]\n");
    let token = stage.token();
    let nonce = first_nonce(&stage, &token).await;
    assert!(stage.upstream.seen().is_empty());
    assert_eq!(reason_for(&stage.gateway, "/").await, "proof_nonce");

    let proof = proof_with(&stage, "/", &token, nonce.clone());
    let response = stage.get("/", &token, &proof).await;
    assert!(response.status == 200 && response.header("dpop-nonce").is_none(), "{response:?}");
    stage.get("/", &token, &proof).await.assert_rejected(401, "invalid_dpop_proof");
    // Another proof with the same nonce.
    assert_eq!(get(&stage, &token, nonce.clone()).await.status, 200);

    let text = nonce.as_str().expect("text");
    let changed = with_another_character(text, text.len() - 2);
    for (nonce, error) in [
        (json!("wrong"), "use_dpop_nonce"),
        (json!(""), "use_dpop_nonce"),
        (json!(changed), "use_dpop_nonce"),
        (json!(format!("{text}=")), "use_dpop_nonce"),
        (json!(7), "invalid_dpop_proof"),
        (json!([text]), "invalid_dpop_proof"),
        (json!("x".repeat(1 << 12)), "invalid_dpop_proof"),
    ] {
        get(&stage, &token, nonce.clone()).await.assert_rejected(401, error);
    }
    assert_eq!(stage.upstream.seen().len(), 2);

    let page = presenting(stage.gateway.client(), &token, &proof_with(&stage, "/", &token, Value::Null));
    let rejected = page.header("origin", "https://app.example").get("/").await;
    assert!(rejected.header("access-control-expose-headers").is_some_and(|list| list.contains("DPoP-Nonce")));
}

#[tokio::test]
async fn a_nonce_is_renewed_before_it_is_too_old() {
    let stage = stage("");
    let token = stage.token();
    let first = first_nonce(&stage, &token).await;
    stage.gateway.advance(Duration::from_secs(30));
    let response = get(&stage, &token, first.clone()).await;
    assert_eq!((response.status.as_u16(), response.header("cache-control")), (200, Some("no-store")));
    let second = nonce_of(&response);
    assert_ne!(first, second);
    assert!(get(&stage, &token, second.clone()).await.header("dpop-nonce").is_none());
    stage.gateway.advance(Duration::from_secs(30));
    get(&stage, &token, first).await.assert_rejected(401, "use_dpop_nonce");
    assert_eq!(get(&stage, &token, second).await.status, 200);
}

/// A client with a known nonce that could change its time would sign proofs for months in advance.
#[tokio::test]
async fn a_client_makes_no_nonce() {
    let stage = stage("");
    let token = stage.token();
    let first = first_nonce(&stage, &token).await;
    let decode = |nonce: &Value| URL_SAFE_NO_PAD.decode(nonce.as_str().expect("text")).expect("base64url");
    let known = decode(&first);
    for place in 0..known.len() {
        let mut changed = known.clone();
        changed[place] ^= 1;
        get(&stage, &token, json!(URL_SAFE_NO_PAD.encode(changed))).await.assert_rejected(401, "use_dpop_nonce");
    }
    assert_eq!(get(&stage, &token, first).await.status, 200);
    stage.gateway.advance(Duration::from_secs(90));
    let second = first_nonce(&stage, &token).await;
    // The time of the second one, with the MAC of the first one.
    let mixed = [&decode(&second)[..9], &known[9..]].concat();
    get(&stage, &token, json!(URL_SAFE_NO_PAD.encode(mixed))).await.assert_rejected(401, "use_dpop_nonce");
    assert_eq!(get(&stage, &token, second).await.status, 200);
}

/// draft-dpop 67: the nonce is the time.
#[tokio::test]
async fn a_wrong_clock_does_no_harm_with_a_nonce() {
    let stage = stage("");
    let token = stage.token();
    let nonce = first_nonce(&stage, &token).await;
    for (iat, expected) in
        [(json!(1), 200), (json!(stage.now() + 86_400), 200), (json!("now"), 401), (Value::Null, 401)]
    {
        let mut draft = stage.prover.draft("GET", &format!("http://{HOST}/"), &token, stage.now());
        draft.claims["nonce"] = nonce.clone();
        draft.claims["iat"] = iat.clone();
        let response = stage.get("/", &token, &stage.prover.sign(&draft)).await;
        assert_eq!(response.status, expected, "{iat} {response:?}");
    }
}

/// A proof is good at the process that made its nonce, and nowhere else.
#[tokio::test]
async fn a_restart_makes_new_nonces() {
    let mut stage = stage("");
    let token = stage.token();
    let nonce = first_nonce(&stage, &token).await;
    let proof = proof_with(&stage, "/", &token, nonce);
    assert_eq!(stage.get("/", &token, &proof).await.status, 200);
    stage.gateway = stage.gateway.restart();
    let response = stage.get("/", &token, &proof).await;
    response.assert_rejected(401, "use_dpop_nonce");
    assert_eq!(get(&stage, &token, nonce_of(&response)).await.status, 200);
}

#[tokio::test]
async fn a_refresh_needs_a_nonce_too() {
    let stage = stage("[oauth]\ntoken_endpoint = \"/oauth/token\"\n");
    let response = stage.gateway.request_tokens(&json!({ "sub": "alice", "jkt": stage.prover.thumbprint() })).await;
    let refresh = response.json()["refreshToken"].as_str().expect("a token").to_owned();
    let refreshed = async |nonce: Value| {
        let mut draft = stage.prover.draft("POST", &format!("http://{HOST}/oauth/token"), "", stage.now());
        if !nonce.is_null() {
            draft.claims["nonce"] = nonce;
        }
        let client = stage.gateway.client().header("dpop", &stage.prover.sign(&draft));
        let client = client.header("content-type", "application/x-www-form-urlencoded");
        let body = format!("grant_type=refresh_token&refresh_token={refresh}");
        client.send(http::Method::POST, "/oauth/token", body.into()).await
    };
    let rejected = refreshed(Value::Null).await;
    rejected.assert_rejected(400, "use_dpop_nonce");
    let response = refreshed(nonce_of(&rejected)).await;
    assert_eq!(response.status, 200, "{response:?}");
}

/// Beside the access token, and with a login. Not 401: many clients refresh again on any 401.
#[tokio::test]
async fn calls_that_give_tokens_ask_for_a_nonce_with_400() {
    let backend = ScriptedBackend::responding_with(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-bearward-subject: alice\r\ncontent-length: 2\r\n\r\n{}",
    );
    let login = "[[route]]\npath = \"/login\"\npublic = true\nlogin = true\n";
    let text = Gateway::config_text(&backend.address.to_string(), login);
    let gateway = Gateway::from_text(text.replace("[tokens]\n", "[tokens]\nproof_nonce = \"required\"\n"));
    let prover = Prover::new();
    let call = async |path: &str, access: &str, body: &Value, nonce: &Value| {
        let mut draft = prover.draft("POST", &format!("http://{HOST}{path}"), access, gateway.now_secs());
        if !nonce.is_null() {
            draft.claims["nonce"] = nonce.clone();
        }
        let mut client = gateway.client().header("dpop", &prover.sign(&draft));
        if !access.is_empty() {
            client = client.header("authorization", &format!("DPoP {access}"));
        }
        client.post(path, body).await
    };
    let rejected = call("/login", "", &json!({}), &Value::Null).await;
    rejected.assert_rejected(400, "use_dpop_nonce");
    let logged_in = call("/login", "", &json!({}), &nonce_of(&rejected)).await;
    let pair = TokenPair::from_json(&logged_in.json());
    let body = json!({ "refreshToken": pair.refresh });
    let rejected = call("/user/refresh", &pair.access, &body, &Value::Null).await;
    rejected.assert_rejected(400, "use_dpop_nonce");
    let refreshed = call("/user/refresh", &pair.access, &body, &nonce_of(&rejected)).await;
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
}

/// What several gateways share. One after the other here: SQLite has one process at a time.
#[tokio::test]
async fn a_proof_in_the_store_is_used_for_every_gateway() {
    let mut stage = Stage::new("");
    stage.gateway =
        stage.gateway.restart_with(|text| text.replace("[tokens]\n", "[tokens]\nproof_replay = \"store\"\n"));
    let token = stage.token();
    let (used, unused) = (stage.proof("/", &token), stage.proof("/", &token));
    assert_eq!(stage.get("/", &token, &used).await.status, 200);
    stage.gateway = stage.gateway.restart();
    stage.get("/", &token, &used).await.assert_rejected(401, "invalid_dpop_proof");
    // Made before this process began, and never used.
    assert_eq!(stage.get("/", &token, &unused).await.status, 200);
    let line = stage.gateway.log_line(|line| line["reason"] == "proof_replayed").await;
    assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("another gateway")), "{line}");
}
