//! A take-over passes on which DPoP proofs were used: each is good once at both processes together, and none is lost.

use bearward::types::clock::{Clock, SystemClock};
use serde_json::json;

use super::soon;
use super::upgrade::{FirstGateway, store_in_postgres, take_over, wait_for_exit};
use crate::support::program::GatewayProcess;
use crate::support::prover::Prover;
use crate::support::{TestResponse, TokenPair, Upstream, Wire};

/// A client with a token that is bound to its key.
struct BoundClient {
    prover: Prover,
    access: String,
}

impl BoundClient {
    /// The gateway accepts no proof of the second in which it began.
    async fn of(gateway: &GatewayProcess, scope: &str) -> BoundClient {
        let began = SystemClock.now().as_secs();
        soon("the next second begins", async || SystemClock.now().as_secs() > began).await;
        let prover = Prover::new();
        let login = json!({ "sub": "alice", "scope": scope, "jkt": prover.thumbprint() });
        let issued = gateway.admin_client().post("/admin/v1/tokens", &login).await;
        BoundClient { prover, access: TokenPair::from_json(&issued.json()).access }
    }

    fn proof(&self, method: &str, path: &str, nonce: Option<&str>) -> String {
        let url = format!("http://gateway.test{path}");
        let mut draft = self.prover.draft(method, &url, &self.access, SystemClock.now().as_secs());
        nonce.into_iter().for_each(|nonce| draft.claims["nonce"] = json!(nonce));
        self.prover.sign(&draft)
    }

    async fn get(&self, gateway: &GatewayProcess, proof: &str) -> TestResponse {
        let client = gateway.client().header("authorization", &format!("DPoP {}", self.access));
        client.header("dpop", proof).get("/private").await
    }
}

#[tokio::test]
async fn a_take_over_knows_the_proofs_of_before() {
    let in_process = "proof_replay = \"process\"\n";
    for (tokens, store) in [("", String::new()), ("", store_in_postgres()), (in_process, store_in_postgres())] {
        let upstream = Upstream::start();
        let FirstGateway { folder, served: old, .. } = FirstGateway::with(&upstream, tokens, &store).await;
        let client = BoundClient::of(&old, "").await;
        let (used, unused) = (client.proof("GET", "/private", None), client.proof("GET", "/private", None));
        assert_eq!(client.get(&old, &used).await.status, 200);
        // The client has signed it before the next process begins, and sends it after that.
        tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
        let new = take_over(folder.path()).await;
        client.get(&new, &used).await.assert_rejected(401, "invalid_dpop_proof");
        let response = client.get(&new, &unused).await;
        assert_eq!(response.status, 200, "{tokens} {response:?}");
        client.get(&new, &unused).await.assert_rejected(401, "invalid_dpop_proof");
        wait_for_exit(old.program).await;
        // And on to a third one.
        let third = take_over(folder.path()).await;
        for proof in [&used, &unused] {
            client.get(&third, proof).await.assert_rejected(401, "invalid_dpop_proof");
        }
        assert_eq!(upstream.seen().len(), 2);
        wait_for_exit(new.program).await;
    }
}

#[tokio::test]
async fn nonces_of_before_a_take_over_are_good() {
    let upstream = Upstream::start();
    let first = FirstGateway::with(&upstream, "proof_nonce = \"required\"\n", "").await;
    let FirstGateway { folder, served: old, .. } = first;
    let client = BoundClient::of(&old, "").await;
    let asked = client.get(&old, &client.proof("GET", "/private", None)).await;
    asked.assert_rejected(401, "use_dpop_nonce");
    let nonce = asked.header("dpop-nonce").expect("a nonce").to_owned();
    let used = client.proof("GET", "/private", Some(&nonce));
    assert_eq!(client.get(&old, &used).await.status, 200);
    let new = take_over(folder.path()).await;
    client.get(&new, &used).await.assert_rejected(401, "invalid_dpop_proof");
    let response = client.get(&new, &client.proof("GET", "/private", Some(&nonce))).await;
    assert_eq!(response.status, 200, "{response:?}");
    wait_for_exit(old.program).await;
}

/// A proof that the old process accepted now would be good a second time at the new one.
#[tokio::test]
async fn the_old_process_accepts_no_proof_any_more() {
    let upstream = Upstream::start();
    let more = "[[route]]\npath = \"/mirror\"\n[oauth]\nintrospection_endpoint = \"/oauth/introspect\"\n";
    let FirstGateway { folder, address, served: old, .. } = FirstGateway::with(&upstream, "", more).await;
    let service = BoundClient::of(&old, "token:introspect").await;
    let proof = service.proof("POST", "/oauth/introspect", None);
    let body = format!("token={}", service.access);
    let mut late = Wire::connect(address).await;
    let head = format!(
        "POST /oauth/introspect HTTP/1.1\r\nHost: gateway.test\r\nAuthorization: DPoP {}\r\nDPoP: {proof}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n",
        service.access,
        body.len()
    );
    late.send(format!("{head}{}", &body[..9])).await;
    let new = take_over(folder.path()).await;
    late.send(&body[9..]).await;
    let response = late.read_response().await;
    assert_eq!((response.status, response.header("retry-after").is_some()), (503, true), "{response:?}");
    soon("the reason is logged", async || {
        let lines = std::fs::read_to_string(folder.path().join("access.log")).expect("a log");
        lines.contains("another process has taken over")
    })
    .await;
    let mut again = Wire::connect(address).await;
    again.send(format!("{head}{body}")).await;
    let response = again.read_response().await;
    assert!(response.status == 200 && response.body.contains("\"active\":true"), "{response:?}");
    wait_for_exit(old.program).await;
    drop(new);
}
