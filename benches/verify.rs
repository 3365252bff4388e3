//! An unknown token with each algorithm: parsing, claims, signature; and invalid tokens, most of which are rejected
//! before the signature check.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]

use bearward::tokens::jwt::verify::verify;
use bearward::tokens::jwt::{Algorithm, Validity};
use bearward::types::reject::Reason;
use bearward::types::trace::Trace;
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
        assert!(verify(&token, &issuers, NOW, Validity::Live, Trace::OFF).is_ok(), "{name}");
        group.bench_function(name, |b| b.iter(|| verify(&token, &issuers, NOW, Validity::Live, Trace::OFF)));
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
        let reject = verify(&token, &issuers, NOW, Validity::Live, Trace::OFF).expect_err("the token is rejected");
        assert_eq!(reject.reason, reason, "{name}");
        group.bench_function(name, |b| b.iter(|| verify(&token, &issuers, NOW, Validity::Live, Trace::OFF)));
    }
}

criterion_group!(benches, accepted, rejected);
criterion_main!(benches);
