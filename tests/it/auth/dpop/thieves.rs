//! Thieves who have a token, a proof or a public key of a client, but not its private key.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::changes::flip;
use super::hostile::with_signature;
use super::{HOST, Stage, presenting, reason_for};
use crate::support::prover::Prover;
use crate::support::tokens::with_another_character;
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

const OAUTH: &str = "[oauth]\ntoken_endpoint = \"/oauth/token\"\nintrospection_endpoint = \"/oauth/introspect\"\n";

async fn bound(gateway: &Gateway, prover: &Prover, scope: &str) -> TokenPair {
    let login = json!({ "sub": "alice", "scope": scope, "jkt": prover.thumbprint() });
    TokenPair::from_json(&gateway.request_tokens(&login).await.json())
}

/// wso2/product-apim 11521: the cache of tokens must not remember that one request had a proof.
#[tokio::test]
async fn a_known_token_needs_a_proof_for_each_request() {
    let stage = Stage::new("");
    let token = stage.token();
    for _ in 0..3 {
        assert_eq!(stage.get("/", &token, &stage.proof("/", &token)).await.status, 200);
        stage.gateway.client().bearer(&token).get("/").await.assert_rejected(401, "invalid_token");
        let bare = stage.gateway.client().header("authorization", &format!("DPoP {token}"));
        bare.get("/").await.assert_rejected(401, "invalid_dpop_proof");
        let thief = Prover::new().proof("GET", &format!("http://{HOST}/"), &token, stage.now());
        stage.get("/", &token, &thief).await.assert_rejected(401, "invalid_token");
    }
    assert_eq!(stage.upstream.seen().len(), 3);
}

/// The header of a good proof is kept beside its token, with the key that it has. The rest of a proof is never known.
#[tokio::test]
async fn a_known_header_is_no_proof() {
    let stage = Stage::new("");
    let token = stage.token();
    assert_eq!(stage.get("/", &token, &stage.proof("/", &token)).await.status, 200);
    let good = stage.proof("/", &token);
    let (header, _) = good.split_once('.').expect("a header");
    let thief = Prover::new().proof("GET", &format!("http://{HOST}/"), &token, stage.now());
    let (_, signed_by_thief) = thief.split_once('.').expect("a header");
    let forged = format!("{header}.{signed_by_thief}");
    stage.get("/", &token, &forged).await.assert_rejected(401, "invalid_dpop_proof");
    assert_eq!(reason_for(&stage.gateway, "/").await, "proof_signature");
    let of_other_path = stage.proof("/other", &token);
    stage.get("/", &token, &of_other_path).await.assert_rejected(401, "invalid_dpop_proof");
    // A header that is not the known one is read as the first was.
    let changed = format!("{}.{}", header.replacen('e', "f", 1), good.split_once('.').expect("a header").1);
    stage.get("/", &token, &changed).await.assert_rejected(401, "invalid_dpop_proof");
    assert_eq!(stage.get("/", &token, &good).await.status, 200);
}

/// Each bad signature costs as much as a good one, and the public key of a client is in each of its proofs.
#[tokio::test]
async fn bad_signatures_of_proofs_are_limited() {
    let stage = Stage::new("[limits]\nbad_signatures = 5\n");
    let token = stage.token();
    let forged = || {
        let proof = stage.proof("/forged", &token);
        let (message, signature) = proof.rsplit_once('.').expect("a signature");
        format!("{message}.{}", with_another_character(signature, 0))
    };
    for _ in 0..5 {
        stage.get("/forged", &token, &forged()).await.assert_rejected(401, "invalid_dpop_proof");
    }
    let mut limited = 0;
    for _ in 0..4 {
        limited += usize::from(stage.get("/forged", &token, &forged()).await.status == 429);
    }
    // Each worker may check one at the same time.
    assert!(limited >= 2, "{limited}");
    // A token that needs no proof is not checked again.
    let plain = stage.unbound();
    stage.gateway.advance(Duration::from_secs(11));
    assert_eq!(stage.get("/", &token, &stage.proof("/", &token)).await.status, 200);
    assert_eq!(stage.gateway.client().bearer(&plain).get("/").await.status, 200);
}

async fn form(gateway: &Gateway, path: &str, fields: &[(&str, &str)], body: &str) -> TestResponse {
    let client = fields.iter().fold(gateway.client(), |client, (name, value)| client.header(name, value));
    let client = client.header("content-type", "application/x-www-form-urlencoded");
    client.send(Method::POST, path, Bytes::from(body.to_owned())).await
}

/// Strangers need no token to have the signatures of their proofs checked where tokens are granted.
#[tokio::test]
async fn bad_signatures_of_strangers_are_limited() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &format!("{OAUTH}[limits]\nbad_signatures = 5\n"));
    let stranger = Prover::new();
    let ask = async || {
        let proof = stranger.proof("POST", &format!("http://{HOST}/oauth/token"), "", gateway.now_secs());
        let forged = with_signature(&proof, flip);
        form(&gateway, "/oauth/token", &[("dpop", &forged)], "grant_type=refresh_token&refresh_token=bwr1_x").await
    };
    for _ in 0..5 {
        ask().await.assert_rejected(400, "invalid_dpop_proof");
    }
    let mut limited = 0;
    for _ in 0..4 {
        limited += usize::from(ask().await.status == 429);
    }
    // Each worker may check one at the same time.
    assert!(limited >= 2, "{limited}");
    gateway.log_line(|line| line["detail"] == "too many bad signatures from this address").await;
}

/// The caller of an introspection has a token, too.
#[tokio::test]
async fn a_proof_introspects_once() {
    let upstream = Upstream::start();
    let (gateway, prover) = (Gateway::with_config(&upstream, OAUTH), Prover::new());
    let service = bound(&gateway, &prover, "token:introspect").await;
    let alice = gateway.issue("alice", "").await;
    let proof = prover.proof("POST", &format!("http://{HOST}/oauth/introspect"), &service.access, gateway.now_secs());
    let authorization = format!("DPoP {}", service.access);
    let fields = [("authorization", authorization.as_str()), ("dpop", proof.as_str())];
    let body = format!("token={}", alice.access);
    let found = form(&gateway, "/oauth/introspect", &fields, &body).await;
    assert_eq!(found.json()["active"], true, "{found:?}");
    form(&gateway, "/oauth/introspect", &fields, &body).await.assert_rejected(401, "invalid_dpop_proof");
    assert_eq!(reason_for(&gateway, "/oauth/introspect").await, "proof_replayed");
}

/// Strangers have keys as well, and may ask for tokens. They must not use up what clients with tokens need.
#[tokio::test]
async fn strangers_at_the_token_endpoint_fill_no_place_of_clients() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &format!("{OAUTH}[limits]\nused_proofs = 1000\n"));
    let (prover, stranger) = (Prover::new(), Prover::new());
    let access = bound(&gateway, &prover, "").await.access;
    let mut full = 0;
    for _ in 0..1_005 {
        let proof = stranger.proof("POST", &format!("http://{HOST}/oauth/token"), "", gateway.now_secs());
        let body = "grant_type=refresh_token&refresh_token=bwr1_x";
        let response = form(&gateway, "/oauth/token", &[("dpop", &proof)], body).await;
        full += usize::from(response.status == 503);
    }
    assert_eq!(full, 5, "exactly limits.used_proofs are remembered");
    let proof = prover.proof("GET", &format!("http://{HOST}/"), &access, gateway.now_secs());
    assert_eq!(presenting(gateway.client(), &access, &proof).get("/").await.status, 200);
    assert_eq!(gateway.metric("bearward_used_proofs").await, 1_001.0);
}

/// Neither a proof nor its parts are in the log, not even in that of a rejection.
#[tokio::test]
async fn no_proof_is_logged() {
    let stage = Stage::new("");
    let token = stage.token();
    let proofs: Vec<String> = (0..4)
        .map(|number| {
            let path = if number == 0 { "/good" } else { "/other" };
            stage.proof(path, &token)
        })
        .collect();
    for proof in &proofs {
        stage.get("/good", &token, proof).await;
    }
    let with_jti = |jti: &str| {
        let mut draft = stage.prover.draft("GET", &format!("http://{HOST}/elsewhere?secret=of-the-client"), &token, 1);
        draft.claims["jti"] = json!(jti);
        stage.prover.sign(&draft)
    };
    stage.get("/good", &token, &with_jti("jti-of-the-client")).await;
    let log = stage.gateway.log_text(5).await;
    let rejections = stage.gateway.admin_client().get("/admin/v1/rejections").await.text();
    for text in [&log, &rejections] {
        for segment in proofs.iter().flat_map(|proof| proof.split('.').skip(1)) {
            assert!(!text.contains(segment), "{text}");
        }
        for secret in ["of-the-client", "dpop+jwt", "elsewhere"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}
