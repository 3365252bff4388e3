//! DPoP proofs at two gateways with one database: together they accept each proof once.

use serde_json::json;

use super::sessions::two_gateways;
use crate::auth::dpop::prover::Prover;
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
        for gateway in [one, other] {
            assert_eq!(status(gateway, &access, &proof).await, 401);
        }
        assert_eq!(status(other, &access, &another()).await, 200);
    }
    assert_eq!(upstream.seen().len(), 4);
}
