//! DPoP proofs at two gateways with one database: together they accept each proof once, whether they remember it in the
//! database or require nonces.

use std::sync::Arc;

use serde_json::json;

use crate::gateway::oauth::post;
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::prover::Prover;
use crate::support::replicas::{folder, gateway, two_gateways};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TokenPair, Upstream};

async fn status(gateway: &Gateway, access: &str, proof: &str) -> u16 {
    let client = gateway.client().header("authorization", &format!("DPoP {access}")).header("dpop", proof);
    client.get("/").await.status.as_u16()
}

#[tokio::test]
async fn a_proof_is_good_at_one_of_two_gateways() {
    let upstream = Upstream::start();
    let ([first, second], prover) = (two_gateways(&upstream), Prover::new());
    let issued = first.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
    let access = TokenPair::from_json(&issued.json()).access;
    let another = || prover.proof("GET", "http://gateway.test/", &access, first.now_secs());
    for [one, other] in [[&first, &second], [&second, &first]] {
        let proof = another();
        assert_eq!(status(one, &access, &proof).await, 200);
        let headers = json!({ "Authorization": format!("DPoP {access}"), "DPoP": proof });
        let question = json!({ "host": "gateway.test", "cleartext": true, "headers": headers });
        for gateway in [one, other] {
            let explained = gateway.admin_client().post("/admin/v1/explain", &question).await.json();
            assert_eq!(explained["reason"], "proof_replayed", "{explained}");
            assert_eq!(status(gateway, &access, &proof).await, 401);
        }
        assert_eq!(status(other, &access, &another()).await, 200);
    }
    assert_eq!(upstream.seen().len(), 4);
}

/// A client that asks for tokens uses its proof up as well.
#[tokio::test]
async fn a_proof_gets_tokens_at_one_of_two_gateways() {
    let upstream = Upstream::start();
    let oauth = |text: String| text.replace("[tokens]\n", "[oauth]\ntoken_endpoint = \"/oauth/token\"\n[tokens]\n");
    let (gateways, prover) = (two_gateways(&upstream).map(|gateway| gateway.restart_with(oauth)), Prover::new());
    let [first, second] = &gateways;
    let issued = first.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
    let refresh = TokenPair::from_json(&issued.json()).refresh;
    let ask = async |gateway: &Gateway, refresh: &str, proof: &str| {
        let client = gateway.client().header("dpop", proof);
        post(client, "/oauth/token", &[("grant_type", "refresh_token"), ("refresh_token", refresh)]).await
    };
    let another = || prover.proof("POST", "http://gateway.test/oauth/token", "", first.now_secs());
    let proof = another();
    let granted = ask(first, &refresh, &proof).await;
    assert_eq!(granted.status, 200, "{granted:?}");
    let next = granted.json()["refresh_token"].as_str().expect("a token").to_owned();
    for gateway in [second, first] {
        ask(gateway, &next, &proof).await.assert_rejected(400, "invalid_dpop_proof");
    }
    let line = second.log_line(|line| line["reason"] == "proof_rejected").await;
    assert!(line["detail"].as_str().is_some_and(|detail| detail.starts_with("proof_replayed")), "{line}");
    assert_eq!(ask(second, &next, &another()).await.status, 200);
}

/// Without the database, it is not known whether another gateway has accepted the proof. Other tokens need none.
#[tokio::test]
async fn without_the_database_no_proof_is_accepted() {
    let (upstream, prover) = (Upstream::start(), Prover::new());
    let mut server = PostgresServer::start_with(&["fsync=off"], "trust");
    let gateway = gateway(&upstream, &server.store_keys(), &folder(), &Arc::new(ManualClock::new()));
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
    let (access, free) = (TokenPair::from_json(&issued.json()).access, gateway.issue("bob", "").await.access);
    let another = || prover.proof("GET", "http://gateway.test/", &access, gateway.now_secs());
    assert_eq!(status(&gateway, &access, &another()).await, 200);
    server.kill();
    let late = another();
    assert_eq!(status(&gateway, &access, &late).await, 503);
    let line = gateway.log_line(|line| line["status"] == 503).await;
    assert_eq!(line["reason"], "store_unavailable", "{line}");
    assert_eq!((gateway.status_of(&free).await, upstream.seen().len()), (200, 2));
    server.restart();
    eventually_ok("proofs are accepted again", async || match status(&gateway, &access, &another()).await {
        200 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
}

/// A nonce is of one gateway. The other one gives its own, so that a client succeeds at the second attempt, and a proof
/// is good at no more than one of them.
#[tokio::test]
async fn a_nonce_is_good_at_the_gateway_that_made_it() {
    let upstream = Upstream::start();
    let required = |text: String| text.replace("[tokens]\n", "[tokens]\nproof_nonce = \"required\"\n");
    let (gateways, prover) = (two_gateways(&upstream).map(|gateway| gateway.restart_with(required)), Prover::new());
    let [first, second] = &gateways;
    let issued = first.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
    let access = TokenPair::from_json(&issued.json()).access;
    let with_nonce = |nonce: &str| {
        let mut draft = prover.draft("GET", "http://gateway.test/", &access, first.now_secs());
        draft.claims["nonce"] = json!(nonce);
        prover.sign(&draft)
    };
    let nonce_of = async |gateway: &Gateway, proof: &str| {
        let client = gateway.client().header("authorization", &format!("DPoP {access}")).header("dpop", proof);
        let response = client.get("/").await;
        response.assert_rejected(401, "use_dpop_nonce");
        response.header("dpop-nonce").expect("a nonce").to_owned()
    };
    let proof = with_nonce(&nonce_of(first, &with_nonce("")).await);
    assert_eq!(status(first, &access, &proof).await, 200);
    let of_second = nonce_of(second, &proof).await;
    assert_eq!(status(second, &access, &with_nonce(&of_second)).await, 200);
    nonce_of(first, &with_nonce(&of_second)).await;
    assert_eq!(upstream.seen().len(), 2);
}
