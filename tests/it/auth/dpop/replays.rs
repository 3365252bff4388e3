//! A proof is good once: on every worker and protocol, and after a reload.

use std::time::Duration;

use serde_json::json;

use super::{HOST, Stage, presenting};
use crate::support::prover::Prover;

#[tokio::test]
async fn a_proof_is_good_once_on_every_worker_and_protocol() {
    let stage = Stage::new("");
    let token = stage.token();
    for first in 0..2 {
        let proof = stage.proof("/", &token);
        let [http1, http2, ..] = stage.gateway.clients();
        let mut clients = [http1, http2];
        clients.rotate_left(first);
        assert_eq!(presenting(clients[0].clone(), &token, &proof).get("/").await.status, 200);
        // New connections, which reach both workers.
        for _ in 0..8 {
            for client in &clients {
                let again = presenting(client.clone(), &token, &proof).get("/").await;
                again.assert_rejected(401, "invalid_dpop_proof");
            }
        }
    }
    assert_eq!(stage.upstream.seen().len(), 2);
}

#[tokio::test]
async fn of_many_at_once_one_passes() {
    let stage = Stage::new("");
    let token = stage.token();
    for _ in 0..10 {
        stage.upstream.forget();
        let proof = stage.proof("/", &token);
        let requests = (0..8).map(|_| {
            let client = presenting(stage.gateway.client(), &token, &proof);
            tokio::spawn(async move { client.get("/").await.status.as_u16() })
        });
        let mut statuses = Vec::new();
        for request in requests.collect::<Vec<_>>() {
            statuses.push(request.await.expect("no panic"));
        }
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert_eq!(stage.upstream.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_proof_stays_used_for_as_long_as_it_is_good() {
    let stage = Stage::new("");
    let token = stage.token();
    let ahead = stage.prover.proof("GET", &format!("http://{HOST}/"), &token, stage.now() + 5);
    assert_eq!(stage.get("/", &token, &ahead).await.status, 200);
    for _ in 0..13 {
        // Others come meanwhile, and lie beside it.
        for _ in 0..24 {
            assert_eq!(stage.get("/", &token, &stage.proof("/", &token)).await.status, 200);
        }
        assert_eq!(stage.get("/", &token, &ahead).await.status, 401);
        stage.gateway.advance(Duration::from_secs(5));
    }
    assert_eq!(stage.get("/", &token, &ahead).await.status, 401);
}

#[tokio::test]
async fn a_reload_forgets_no_proof() {
    let stage = Stage::new("[[route]]\npath = \"/\"\n");
    let token = stage.token();
    let proof = stage.proof("/", &token);
    assert_eq!(stage.get("/", &token, &proof).await.status, 200);
    let config = stage.gateway.configuration().replace("path = \"/\"\n", "path = \"/\"\nname = \"all\"\n");
    std::fs::write(stage.gateway.path().join("gateway.toml"), config).expect("written");
    stage.gateway.running().reload(stage.gateway.config()).expect("a valid configuration");
    stage.get("/", &token, &proof).await.assert_rejected(401, "invalid_dpop_proof");
}

/// A new process does not know what was used before it.
#[tokio::test]
async fn a_restart_makes_no_used_proof_good() {
    let mut stage = Stage::new("");
    let token = stage.token();
    let proof = stage.proof("/", &token);
    assert_eq!(stage.get("/", &token, &proof).await.status, 200);
    stage.gateway.advance(Duration::from_secs(1));
    stage.gateway = stage.gateway.restart();
    stage.get("/", &token, &proof).await.assert_rejected(401, "invalid_dpop_proof");
    assert_eq!(stage.get("/", &token, &stage.proof("/", &token)).await.status, 200);
}

/// `iat` has whole seconds, and a process can begin within the second in which the one before it has used a proof.
#[tokio::test]
async fn a_fast_restart_makes_no_used_proof_good() {
    let mut stage = Stage::new("");
    let token = stage.token();
    stage.gateway.advance(Duration::from_millis(300));
    let proof = stage.proof("/", &token);
    assert_eq!(stage.get("/", &token, &proof).await.status, 200);
    stage.gateway.advance(Duration::from_millis(300));
    stage.gateway = stage.gateway.restart();
    stage.get("/", &token, &proof).await.assert_rejected(401, "invalid_dpop_proof");
    let line = stage.gateway.log_line(|line| line["reason"] == "proof_time").await;
    assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("older than this process")), "{line}");
    stage.gateway.advance(Duration::from_millis(400));
    assert_eq!(stage.get("/", &token, &stage.proof("/", &token)).await.status, 200);
    stage.get("/", &token, &proof).await.assert_rejected(401, "invalid_dpop_proof");
}

/// A client that is rejected for another reason has not used its proof.
#[tokio::test]
async fn a_rejected_request_uses_no_proof_up() {
    let stage = Stage::new(
        "[[route]]\npath = \"/scope\"\nscopes = [\"admin\"]\n[[route]]\npath = \"/rate\"\n[[route.rate]]\nper = \"subject\"\n\
         requests = 1\nwindow = \"10s\"\n",
    );
    let token = stage.token();
    let proof = stage.proof("/scope", &token);
    for _ in 0..2 {
        stage.get("/scope", &token, &proof).await.assert_rejected(403, "insufficient_scope");
    }
    assert_eq!(stage.gateway.metric("bearward_used_proofs").await, 0.0);

    assert_eq!(stage.get("/rate", &token, &stage.proof("/rate", &token)).await.status, 200);
    let proof = stage.proof("/rate", &token);
    stage.get("/rate", &token, &proof).await.assert_rejected(429, "rate_limited");
    stage.gateway.advance(Duration::from_secs(20));
    assert_eq!(stage.get("/rate", &token, &proof).await.status, 200);
    stage.get("/rate", &token, &proof).await;
    assert_eq!(stage.upstream.seen().len(), 2);
}

/// inji-certify 1000: one client must not use up the `jti` of another one.
#[tokio::test]
async fn clients_have_each_their_own_jti() {
    let stage = Stage::new("");
    let other = Prover::new();
    let others = stage.issuer.with_claims(stage.now(), json!({ "cnf": { "jkt": other.thumbprint() } }));
    for (prover, token) in [(&stage.prover, stage.token()), (&other, others)] {
        let mut draft = prover.draft("GET", &format!("http://{HOST}/"), &token, stage.now());
        draft.claims["jti"] = json!("same");
        assert_eq!(stage.get("/", &token, &prover.sign(&draft)).await.status, 200);
        // Another method is no other proof.
        draft.claims["htm"] = json!("POST");
        let again = presenting(stage.gateway.client(), &token, &prover.sign(&draft));
        again.post("/", &json!({})).await.assert_rejected(401, "invalid_dpop_proof");
    }
}

#[tokio::test]
async fn a_full_set_rejects_proofs_and_no_other_token() {
    let stage = Stage::new("[limits]\nused_proofs = 1000\n");
    let token = stage.token();
    let first = stage.proof("/", &token);
    assert_eq!(stage.get("/", &token, &first).await.status, 200);
    for _ in 1..1_000 {
        assert_eq!(stage.get("/", &token, &stage.proof("/", &token)).await.status, 200);
    }
    let response = stage.get("/", &token, &stage.proof("/", &token)).await;
    assert_eq!((response.status.as_u16(), response.header("retry-after")), (503, Some("1")));
    // None was forgotten for it.
    stage.get("/", &token, &first).await.assert_rejected(401, "invalid_dpop_proof");
    assert_eq!(stage.gateway.client().bearer(&stage.unbound()).get("/").await.status, 200);
    stage.gateway.advance(Duration::from_secs(70));
    let token = stage.token();
    assert_eq!(stage.get("/", &token, &stage.proof("/", &token)).await.status, 200);
}
