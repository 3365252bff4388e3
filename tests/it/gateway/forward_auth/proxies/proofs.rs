//! DPoP through the real proxies: a proof is for the URL that the client sees, and good once. The client gets the nonce
//! that it needs, and no backend gets the proof.

use serde_json::json;

use super::{CLIENT, Site};
use crate::support::prover::Prover;
use crate::support::{TokenPair, Wire};

pub(super) async fn through(site: &Site) {
    let prover = Prover::new();
    let login = json!({ "sub": "alice", "scope": "orders", "jkt": prover.thumbprint() });
    let access = TokenPair::from_json(&site.gateway.request_tokens(&login).await.json()).access;
    let host = format!("app.example:{}", site.address.port());
    let proof = |url: &str, nonce: Option<&str>| {
        let mut draft = prover.draft("GET", url, &access, site.gateway.now_secs());
        nonce.into_iter().for_each(|nonce| draft.claims["nonce"] = json!(nonce));
        prover.sign(&draft)
    };
    let with = |proof: &str| format!("Authorization: DPoP {access}\r\nDPoP: {proof}\r\n");
    let own = format!("http://{host}/orders/7");
    let nonce = nonce(site, &with(&proof(&own, None))).await;
    for url in [format!("https://{host}/orders/7"), format!("http://{host}/orders"), format!("http://{host}/auth")] {
        let response = site.send("GET /orders/7?a=b", &with(&proof(&url, Some(&nonce)))).await;
        assert_eq!(response.status, 401, "{url}: {response:?}");
        let challenge = response.header("www-authenticate").expect("a challenge");
        assert!(challenge.starts_with("DPoP error=\"invalid_dpop_proof\""), "{url}: {challenge}");
        assert!(response.header("dpop-nonce").is_none(), "{url}: {response:?}");
        site.assert_silent(&url);
    }
    // The client chooses the host that the proxy describes. This one is that of another server.
    let other = format!("other.example:{}", site.address.port());
    let fields = with(&proof(&format!("http://{other}/orders/7"), Some(&nonce)));
    let mut wire = Wire::connect_from(CLIENT, site.address).await;
    wire.send(format!("GET /orders/7 HTTP/1.1\r\nHost: {other}\r\nConnection: close\r\n{fields}\r\n")).await;
    assert_eq!(wire.read_response().await.status, 401, "{other}");
    site.assert_silent(&other);
    let good = proof(&own, Some(&nonce));
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

/// The nonce with which the gateway rejects a proof without one.
async fn nonce(site: &Site, fields: &str) -> String {
    let response = site.send("GET /orders/7", fields).await;
    assert_eq!(response.status, 401, "{response:?}");
    let challenge = response.header("www-authenticate").expect("a challenge");
    assert!(challenge.starts_with("DPoP error=\"use_dpop_nonce\""), "{challenge}");
    let nonces = response.head.iter().filter(|line| line.to_lowercase().starts_with("dpop-nonce:")).count();
    assert_eq!(nonces, 1, "{response:?}");
    site.assert_silent("a proof without a nonce");
    response.header("dpop-nonce").expect("a nonce").to_owned()
}
