//! Requests with a proof, over every protocol and in every place of a token.

use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use http::Method;
use serde_json::json;

use super::{HOST, Stage, presenting, reason_for};
use crate::support::prover::Prover;

#[tokio::test]
async fn a_bound_token_is_good_with_its_proof_only() {
    let stage = Stage::new("");
    let token = stage.token();
    let response = stage.get("/orders?q=1", &token, &stage.proof("/orders", &token)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let seen = stage.upstream.only_request();
    assert_eq!(seen.header("x-auth-subject"), Some("bob"));
    // The proof is used up. A backend that would ask for one gets no scheme that promises it.
    assert_eq!((seen.header("dpop"), seen.header("authorization")), (None, Some(format!("Bearer {token}").as_str())));

    stage.upstream.forget();
    let bearer = stage.gateway.client().bearer(&token);
    bearer.get("/as-bearer").await.assert_rejected(401, "invalid_token");
    let with_proof = bearer.header("dpop", &stage.proof("/as-bearer-2", &token));
    with_proof.get("/as-bearer-2").await.assert_rejected(401, "invalid_token");
    let bare = stage.gateway.client().header("authorization", &format!("DPoP {token}"));
    bare.get("/no-proof").await.assert_rejected(401, "invalid_dpop_proof");
    presenting(stage.gateway.client(), &stage.unbound(), "x")
        .get("/unbound")
        .await
        .assert_rejected(401, "invalid_token");
    assert!(stage.upstream.seen().is_empty());
    for (path, reason) in [
        ("/as-bearer", "bound_to_key"),
        ("/as-bearer-2", "bound_to_key"),
        ("/no-proof", "proof_missing"),
        ("/unbound", "token_not_bound"),
    ] {
        assert_eq!(reason_for(&stage.gateway, path).await, reason, "{path}");
    }
    assert_eq!(stage.gateway.client().bearer(&stage.unbound()).get("/").await.status, 200);
}

#[tokio::test]
async fn a_proof_is_for_the_url_that_the_client_sees() {
    let stage = Stage::new("");
    for (client, scheme, host) in [
        (stage.gateway.clients()[0].clone(), "http", HOST),
        (stage.gateway.clients()[1].clone(), "http", HOST),
        (stage.gateway.clients()[2].clone().host("localhost"), "https", "localhost"),
        (stage.gateway.clients()[3].clone().host("localhost"), "https", "localhost"),
    ] {
        let token = stage.token();
        for (method, path) in [(Method::GET, "/"), (Method::POST, "/a/b"), (Method::DELETE, "/a//b?x=%2F")] {
            let url = format!("{scheme}://{host}{}", path.split('?').next().expect("a path"));
            let proof = stage.prover.proof(method.as_str(), &url, &token, stage.now());
            let response = presenting(client.clone(), &token, &proof).send(method, path, "".into()).await;
            assert!(response.status == 200 || path.contains("//") && response.status == 400, "{path} {response:?}");
        }
        let other = if scheme == "http" { "https" } else { "http" };
        let proof = stage.prover.proof("GET", &format!("{other}://{host}/"), &token, stage.now());
        presenting(client, &token, &proof).get("/").await.assert_rejected(401, "invalid_dpop_proof");
    }
}

#[tokio::test]
async fn every_asymmetric_algorithm_can_sign_proofs() {
    let stage = Stage::new("");
    for algorithm in [Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA, Algorithm::RS256] {
        let prover = Prover::with(algorithm);
        let token = stage.issuer.with_claims(stage.now(), json!({ "cnf": { "jkt": prover.thumbprint() } }));
        let proof = prover.proof("GET", &format!("http://{HOST}/"), &token, stage.now());
        assert_eq!(stage.get("/", &token, &proof).await.status, 200, "{algorithm:?}");
    }
}

/// A trusted proxy that ends TLS says so. What a stranger says changes nothing.
#[tokio::test]
async fn only_a_trusted_proxy_changes_the_scheme() {
    for (trusted, scheme) in [("[\"127.0.0.1\"]", "https"), ("[]", "http")] {
        let stage = Stage::new(&format!("[forwarding]\ntrusted = {trusted}\n"));
        let token = stage.token();
        for (tried, expected) in [(scheme, 200), (if scheme == "http" { "https" } else { "http" }, 401)] {
            let proof = stage.prover.proof("GET", &format!("{tried}://{HOST}/"), &token, stage.now());
            let client = presenting(stage.gateway.client(), &token, &proof)
                .header("x-forwarded-for", "192.0.2.9")
                .header("x-forwarded-proto", "https")
                .header("x-forwarded-host", "other.example")
                .header("forwarded", "for=192.0.2.9;proto=https;host=other.example");
            assert_eq!(client.get("/").await.status, expected, "{trusted} {tried}");
        }
    }
}

#[tokio::test]
async fn a_route_says_which_tokens_need_a_proof() {
    let routes = "[[route]]\npath = \"/off\"\nproof = \"off\"\n[[route]]\npath = \"/required\"\nproof = \"required\"\n\
                  strip_prefix = \"/required\"\n[[route]]\npath = \"/cookie\"\ntoken_from = [\"cookie:t\"]\n\
                  [[route]]\npath = \"/drop\"\ntoken = \"drop\"\n";
    let stage = Stage::new(routes);
    let (bound, unbound) = (stage.token(), stage.unbound());
    let client = || stage.gateway.client();
    assert_eq!(client().bearer(&bound).get("/off").await.status, 200);
    assert_eq!(stage.gateway.metric("bearward_unproven_tokens_total").await, 1.0);
    client().bearer(&unbound).get("/required").await.assert_rejected(401, "invalid_token");
    // The path as the client sees it, and not as the backend does.
    assert_eq!(stage.get("/required/a", &bound, &stage.proof("/required/a", &bound)).await.status, 200);
    assert_eq!(stage.get("/required/a", &bound, &stage.proof("/a", &bound)).await.status, 401);

    let in_cookie = client().header("cookie", &format!("t={bound}")).header("origin", &format!("http://{HOST}"));
    in_cookie.get("/cookie").await.assert_rejected(401, "invalid_dpop_proof");
    let proven = in_cookie.header("dpop", &stage.proof("/cookie", &bound));
    assert_eq!(proven.get("/cookie").await.status, 200);

    stage.upstream.forget();
    assert_eq!(stage.get("/drop", &bound, &stage.proof("/drop", &bound)).await.status, 200);
    let seen = stage.upstream.only_request();
    assert_eq!((seen.header("authorization"), seen.header("dpop")), (None, None));
}

/// With `forwarding.keep`, a backend that checks proofs itself gets those that the gateway does not check, and no
/// other.
#[tokio::test]
async fn a_backend_gets_only_proofs_that_the_gateway_does_not_use() {
    let stage = Stage::new(
        "[forwarding]\nkeep = [\"DPoP\"]\n[[route]]\npath = \"/off\"\nproof = \"off\"\n[[route]]\npath = \"/\"\n",
    );
    let (bound, unbound) = (stage.token(), stage.unbound());
    let fields = |token: &str, scheme: &str| (Some("proof".to_owned()), Some(format!("{scheme} {token}")));
    for (path, authorization, proof, expected) in [
        ("/off", format!("DPoP {bound}"), "proof".to_owned(), fields(&bound, "DPoP")),
        ("/a", format!("Bearer {unbound}"), "proof".to_owned(), fields(&unbound, "Bearer")),
        ("/a", format!("DPoP {bound}"), stage.proof("/a", &bound), (None, fields(&bound, "Bearer").1)),
    ] {
        stage.upstream.forget();
        let client = stage.gateway.client().header("authorization", &authorization).header("dpop", &proof);
        assert_eq!(client.get(path).await.status, 200, "{path} {authorization}");
        let seen = stage.upstream.only_request();
        let found = ["dpop", "authorization"].map(|name| seen.header(name).map(str::to_owned));
        assert_eq!((found[0].clone(), found[1].clone()), expected, "{path} {authorization}");
    }
}

#[tokio::test]
async fn a_route_that_reports_lets_a_replay_pass_without_identity() {
    let stage = Stage::new("[[route]]\npath = \"/\"\nenforce = false\n");
    let token = stage.token();
    let proof = stage.proof("/", &token);
    for expected in [None, Some("proof_replayed")] {
        assert_eq!(stage.get("/", &token, &proof).await.status, 200);
        let seen = stage.upstream.only_request();
        assert_eq!(seen.header("x-auth-observed"), expected);
        assert_eq!(seen.header("x-auth-subject").is_some(), expected.is_none());
        stage.upstream.forget();
    }
}

/// A client learns by how much its clock differs.
#[tokio::test]
async fn a_wrong_clock_is_named() {
    let stage = Stage::new("");
    let token = stage.token();
    let proof = stage.proof("/", &token);
    stage.gateway.advance(Duration::from_secs(73));
    let response = stage.get("/", &token, &proof).await;
    response.assert_rejected(401, "invalid_dpop_proof");
    assert_eq!(response.json()["error_description"], "the proof is 73 s old, at most 60 s");
    let line = stage.gateway.log_line(|line| line["reason"] == "proof_time").await;
    assert_eq!(line["detail"], "the proof is 73 s old, at most 60 s");
    assert_eq!(line["subject"], "bob", "the token itself was good");
}

#[tokio::test]
async fn an_issuer_can_forbid_or_ignore_bindings() {
    for (cnf, as_bearer, with_proof) in [("reject", 401, 401), ("ignore", 200, 401), ("check", 401, 200)] {
        let stage = Stage::new(&format!("cnf = \"{cnf}\"\n"));
        let token = stage.token();
        assert_eq!(stage.gateway.client().bearer(&token).get("/").await.status, as_bearer, "{cnf}");
        let proven = stage.get("/", &token, &stage.proof("/", &token)).await;
        assert_eq!(proven.status, with_proof, "{cnf}");
    }
}

/// Each reason has its own metric, as every rejection.
#[tokio::test]
async fn rejected_proofs_are_counted_by_reason() {
    let stage = Stage::new("");
    let token = stage.token();
    let proof = stage.proof("/", &token);
    for expected in [200, 401, 401] {
        assert_eq!(stage.get("/", &token, &proof).await.status, expected);
    }
    stage.gateway.wait_for_metric("rejections_total{reason=\"proof_replayed\"}", 2).await;
    assert_eq!(stage.gateway.metric("bearward_used_proofs").await, 1.0);
}
