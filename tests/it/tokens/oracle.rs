//! Compares verification with that of the jsonwebtoken library, which checks less, on random tokens. The library
//! accepts every token that the gateway accepts, and reads the same claims. If only the gateway rejects a token, the
//! reason is one of the checks that the library lacks.

use std::cell::Cell;
use std::sync::Arc;

use bearward::tokens::jwt::key_set::KeySet;
use bearward::tokens::jwt::verify::{TrustedIssuer, verify};
use bearward::tokens::jwt::{Algorithm, Validity, VerifiedToken};
use bearward::types::clock::UnixTime;
use bearward::types::reject::Reason;
use bearward::types::step::StepReporter;
use jsonwebtoken::errors::Error;
use jsonwebtoken::{DecodingKey, Validation};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use crate::support::gateway::AUDIENCE;
use crate::support::repetitions::repetitions;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint, policy};

/// The time in seconds. Any value works.
const NOW: u64 = 1_800_000_000;

/// Cases for each algorithm if `BEARWARD_ROUNDS` is not set.
const CASES: usize = 700;

/// Reasons that the library lacks, or checks less strictly. It does not check the time here.
const STRICTER: &[Reason] = &[
    Reason::WrongType,
    Reason::ForbiddenHeader,
    Reason::MalformedToken,
    Reason::BadClaims,
    Reason::LifetimeTooLong,
    Reason::Expired,
    Reason::NotYetValid,
    Reason::UnknownKey,
    Reason::WrongAudience,
    // The library treats an `iss` that is no string as missing, and accepts it.
    Reason::UnknownIssuer,
];

fn trusting(mint: &Mint) -> Vec<TrustedIssuer> {
    let policy = policy(vec![mint.algorithm]);
    let keys = KeySet::from_jwks(&mint.jwks(), &policy.algorithms).expect("a key set");
    vec![TrustedIssuer { policy: Arc::new(policy), keys: Arc::new(keys) }]
}

fn ours(token: &str, issuers: &[TrustedIssuer]) -> Result<VerifiedToken, Reason> {
    verify(token, issuers, UnixTime::from_secs(NOW), Validity::Live, StepReporter::OFF).map_err(|reject| reject.reason)
}

fn theirs(token: &str, mint: &Mint) -> Result<Map<String, Value>, Error> {
    let mut terms = Validation::new(mint.algorithm);
    terms.validate_exp = false;
    terms.set_issuer(&[EXTERNAL_ISSUER]);
    terms.set_audience(&[AUDIENCE]);
    let jwk = serde_json::from_value(mint.jwk()).expect("a JWK");
    let key = DecodingKey::from_jwk(&jwk).expect("a key");
    jsonwebtoken::decode(token, &key, &terms).map(|data| data.claims)
}

/// Any JSON value with little nesting.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((".{0,4}", inner), 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Times near the limits, and any other value.
fn date() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => (NOW - 40..NOW + 40).prop_map(Value::from),
        4 => (NOW..NOW + 90_000).prop_map(Value::from),
        2 => (NOW as f64 - 40.0..NOW as f64 + 40.0).prop_map(Value::from),
        1 => anything(),
    ]
}

/// An added or changed member, often one that the verification reads.
fn change() -> impl Strategy<Value = (&'static str, Value)> {
    let text = |values: &'static [&'static str]| select(values).prop_map(Value::from);
    prop_oneof![
        select(&["exp", "nbf", "iat"][..]).prop_flat_map(|name| (Just(name), date())),
        (
            Just("aud"),
            prop_oneof![text(&[AUDIENCE, "x", ""]), Just(json!(["x", AUDIENCE])), Just(json!([])), anything()]
        ),
        (Just("iss"), prop_oneof![text(&[EXTERNAL_ISSUER, "https://login.example/", "x"]), anything()]),
        (Just("sub"), anything()),
        (select(&["scope", "scp", "jti", "other"][..]), anything()),
    ]
}

fn header_change() -> impl Strategy<Value = (&'static str, Value)> {
    let text = |values: &'static [&'static str]| select(values).prop_map(Value::from);
    prop_oneof![
        4 => (Just("typ"), prop_oneof![text(&["at+jwt", "AT+JWT", "application/at+jwt", "JWT", ""]), anything()]),
        1 => (Just("alg"), prop_oneof![text(&["none", "HS256", "RS256", "ES256", "EdDSA"]), anything()]),
        2 => (Just("kid"), anything()),
        1 => (select(&["crit", "b64", "zip", "jku", "jwk", "x5u", "cty", "other"][..]), anything()),
    ]
}

fn changed(mut object: Value, changes: Vec<(&str, Value)>) -> Value {
    for (name, value) in changes {
        object[name] = value;
    }
    object
}

fn runner() -> TestRunner {
    let cases = u32::try_from(repetitions(CASES)).expect("fewer cases");
    TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() })
}

fn mints() -> Vec<Mint> {
    let secret = Mint::hmac(Algorithm::HS256, &[7; 64]);
    vec![secret, Mint::new(Algorithm::ES256), Mint::new(Algorithm::EdDSA)]
}

#[test]
fn the_library_accepts_and_reads_every_accepted_token() {
    for mint in mints() {
        let issuers = trusting(&mint);
        let (accepted, rejected) = (Cell::new(0), Cell::new(0));
        let changes = (vec(header_change(), 0..2), vec(change(), 0..4));
        let outcome = runner().run(&changes, |(header, claims)| {
            let token = mint.sign(&changed(mint.header(), header), &changed(mint.claims(NOW), claims));
            let verdict = ours(&token, &issuers);
            let count = if verdict.is_ok() { &accepted } else { &rejected };
            count.set(count.get() + 1);
            match (verdict, theirs(&token, &mint)) {
                (Ok(verified), Ok(claims)) => prop_assert_eq!(verified.claims, claims),
                (Ok(_), Err(error)) => prop_assert!(false, "the library rejects it: {}", error),
                (Err(reason), Ok(_)) => prop_assert!(STRICTER.contains(&reason), "{:?}", reason),
                (Err(_), Err(_)) => {}
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{:?}: {failure}", mint.algorithm));
        let (accepted, rejected) = (accepted.get(), rejected.get());
        let least = repetitions(CASES) / 12;
        assert!(accepted > least && rejected > least, "{:?}: {accepted} accepted, {rejected} rejected", mint.algorithm);
    }
}

/// A token has one encoding. A change of any bit, and any added or removed character, makes it invalid.
#[test]
fn no_edit_of_a_valid_token_is_valid() {
    for mint in mints() {
        let issuers = trusting(&mint);
        let valid = mint.valid_token(NOW);
        assert!(ours(&valid, &issuers).is_ok());
        let characters = "[A-Za-z0-9_.=+/ \\-\\n]";
        let edits = (0..valid.len(), 0..3usize, characters);
        let outcome = runner().run(&edits, |(place, taken, put)| {
            let mut edited = valid.clone();
            edited.replace_range(place..(place + taken).min(valid.len()), &put);
            prop_assert!(edited == valid || ours(&edited, &issuers).is_err(), "{}", edited);
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{:?}: {failure}", mint.algorithm));
    }
}
