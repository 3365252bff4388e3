//! DPoP through the real proxies: a proof is for the URL that the client sees, and good once. No backend gets it.

use serde_json::json;

use super::Site;
use crate::auth::dpop::prover::Prover;
use crate::support::TokenPair;

pub(super) async fn through(site: &Site) {
    let prover = Prover::new();
    let login = json!({ "sub": "alice", "scope": "orders", "jkt": prover.thumbprint() });
    let access = TokenPair::from_json(&site.gateway.request_tokens(&login).await.json()).access;
    let host = format!("app.example:{}", site.address.port());
    let proof = |url: &str| prover.proof("GET", url, &access, site.gateway.now_secs());
    let with = |proof: &str| format!("Authorization: DPoP {access}\r\nDPoP: {proof}\r\n");
    for url in [format!("https://{host}/orders/7"), format!("http://{host}/orders"), format!("http://{host}/auth")] {
        let response = site.send("GET /orders/7?a=b", &with(&proof(&url))).await;
        assert_eq!(response.status, 401, "{url}: {response:?}");
        let challenge = response.header("www-authenticate").expect("a challenge");
        assert!(challenge.starts_with("DPoP error=\"invalid_dpop_proof\""), "{url}: {challenge}");
        site.assert_silent(&url);
    }
    let good = proof(&format!("http://{host}/orders/7"));
    let response = site.send("GET /orders/7?a=b", &with(&good)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let seen = site.backend.only_request();
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {access}").as_str()), "{seen:?}");
    assert_eq!((seen.header("x-auth-subject"), seen.header("dpop")), (Some("alice"), None), "{seen:?}");
    site.backend.forget();
    assert_eq!(site.send("GET /orders/7?a=b", &with(&good)).await.status, 401);
    assert_eq!(site.send("GET /orders/7", &format!("Authorization: Bearer {access}\r\n")).await.status, 401);
    site.assert_silent("a proof again, and none");
}
