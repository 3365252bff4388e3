//! An unknown token: parsing, claims, signature, for each algorithm; and tokens that are refused before a signature is
//! checked, which is what makes them cheap.

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

fn refused(c: &mut Criterion) {
    let mut group = c.benchmark_group("refuse");
    let mint = Mint::new(Algorithm::ES256);
    let issuers = [mint.trusted()];
    let cut = |token: String| token[..token.len() / 2].to_owned();
    for (name, token, reason) in [
        ("expired", mint.token_with("exp", json!(NOW.as_secs() - 31)), Reason::Expired),
        ("audience of somebody else", mint.token_with("aud", json!("https://other.example")), Reason::WrongAudience),
        ("issuer unknown", mint.token_with("iss", json!("https://other.example")), Reason::UnknownIssuer),
        ("malformed: cut short", cut(mint.token(0)), Reason::MalformedToken),
        ("malformed: no dots", "x".repeat(mint.token(0).len()), Reason::MalformedToken),
        ("signature wrong", mint.forged(), Reason::BadSignature),
    ] {
        let refusal = verify(&token, &issuers, NOW, Validity::Live, Trace::OFF).expect_err("it is refused");
        assert_eq!(refusal.reason, reason, "{name}");
        group.bench_function(name, |b| b.iter(|| verify(&token, &issuers, NOW, Validity::Live, Trace::OFF)));
    }
}

criterion_group!(benches, accepted, refused);
criterion_main!(benches);
