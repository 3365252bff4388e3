//! An unknown token with each algorithm: parsing, claims, signature; and invalid tokens, most of which are rejected
//! before the signature check.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]

use bearward::tokens::dpop::{DpopProof, Expected, PublicUrl, access_token_hash};
use bearward::tokens::jwt::verify::verify;
use bearward::tokens::jwt::{Algorithm, Validity};
use bearward::types::reject::Reason;
use bearward::types::step::StepReporter;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;

use setup::{Mint, NOW};

mod setup;

fn accepted(c: &mut Criterion) {
    use Algorithm::*;
    let mut group = c.benchmark_group("verify");
    for (name, algorithm) in
        [("es256", ES256), ("es384", ES384), ("eddsa", EdDSA), ("rs256", RS256), ("ps256", PS256), ("hs256", HS256)]
    {
        let mint = Mint::new(algorithm);
        let (token, issuers) = (mint.token(0), [mint.trusted()]);
        assert!(verify(&token, &issuers, NOW, Validity::Live, StepReporter::OFF).is_ok(), "{name}");
        group.bench_function(name, |b| b.iter(|| verify(&token, &issuers, NOW, Validity::Live, StepReporter::OFF)));
    }
}

fn rejected(c: &mut Criterion) {
    let mut group = c.benchmark_group("reject");
    let mint = Mint::new(Algorithm::ES256);
    let issuers = [mint.trusted()];
    let cut = |token: String| token[..token.len() / 2].to_owned();
    for (name, token, reason) in [
        ("expired", mint.token_with("exp", json!(NOW.as_secs() - 31)), Reason::Expired),
        ("another audience", mint.token_with("aud", json!("https://other.example")), Reason::WrongAudience),
        ("issuer unknown", mint.token_with("iss", json!("https://other.example")), Reason::UnknownIssuer),
        ("malformed: cut short", cut(mint.token(0)), Reason::MalformedToken),
        ("malformed: no dots", "x".repeat(mint.token(0).len()), Reason::MalformedToken),
        ("signature wrong", mint.forged(), Reason::BadSignature),
    ] {
        let reject =
            verify(&token, &issuers, NOW, Validity::Live, StepReporter::OFF).expect_err("the token is rejected");
        assert_eq!(reject.reason, reason, "{name}");
        group.bench_function(name, |b| b.iter(|| verify(&token, &issuers, NOW, Validity::Live, StepReporter::OFF)));
    }
}

/// A DPoP proof: all checks, all but that of the signature, and that alone.
fn proof(c: &mut Criterion) {
    let mut group = c.benchmark_group("proof");
    let client = Mint::new(Algorithm::ES256);
    let url = PublicUrl { is_https: true, authority: "api.example".into(), prefix: String::new() };
    let (token, target) = (client.token(0), url.with("/orders/1", false));
    let ath = access_token_hash(&token);
    let proof = client.proof(&json!({
        "jti": "0123456789abcdef", "htm": "GET", "htu": "https://api.example/orders/1", "iat": NOW.as_secs(),
        "ath": ath,
    }));
    let expected =
        Expected { target, method: "GET", other_method: None, ath: Some(&ath), key: None, nonce: None, now: NOW };
    assert!(DpopProof::read(proof.as_bytes(), None).and_then(|proof| proof.check(&expected)?.verify()).is_ok());
    group.bench_function("all", |b| {
        b.iter(|| DpopProof::read(proof.as_bytes(), None).and_then(|proof| proof.check(&expected)?.verify()));
    });
    // With the key ready, as the goal has it.
    let (message, signature) = proof.rsplit_once('.').expect("three segments");
    let key = client.decoding_key();
    group.bench_function("a bare signature", |b| {
        b.iter(|| jsonwebtoken::crypto::verify(signature, message.as_bytes(), &key, Algorithm::ES256));
    });
    group.bench_function("all but the signature", |b| {
        b.iter(|| DpopProof::read(proof.as_bytes(), None).and_then(|proof| proof.check(&expected).map(drop)));
    });
}

criterion_group!(benches, accepted, rejected, proof);
criterion_main!(benches);
