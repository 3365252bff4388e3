//! Opaque tokens that are bound to a key (RFC 9449 section 6.2).

use serde_json::json;

use super::endpoint::Endpoint;
use super::{asking, status};
use crate::support::prover::Prover;
use crate::support::{Upstream, secrets};

const BOUND: &str = "bound.1";

/// The gateway knows the answer after the first request, and still needs a proof for each one.
#[tokio::test]
async fn an_opaque_token_is_good_with_its_proof_alone() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let (own, thief) = (Prover::new(), Prover::new());
    let cnf = json!({ "jkt": own.thumbprint() });
    endpoint.answer_json(move |token| match token {
        BOUND => json!({ "token_type": "DPoP", "cnf": cnf }),
        _ => json!({}),
    });
    let gateway = asking(&upstream, &endpoint, "");
    secrets::remember(BOUND);
    let with = async |prover: &Prover, token: &str| {
        let proof = prover.proof("GET", "http://gateway.test/", token, gateway.now_secs());
        let client = gateway.client().header("authorization", &format!("DPoP {BOUND}"));
        client.header("dpop", &proof).get("/").await.status.as_u16()
    };
    for _ in 0..2 {
        assert_eq!(status(&gateway, BOUND).await, 401, "as a Bearer");
        assert_eq!((with(&thief, BOUND).await, with(&own, "other").await), (401, 401));
        assert_eq!((with(&own, BOUND).await, status(&gateway, "free.1").await), (200, 200));
    }
    assert_eq!((upstream.seen().len(), endpoint.count()), (4, 2), "one question for each token");
}
