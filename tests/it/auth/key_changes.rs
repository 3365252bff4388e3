//! A known token outlives a change of keys only where it would be verified again, by the key that verified it.

use std::sync::Arc;
use std::time::Duration;

use bearward::tokens::jwt::key_set::KeySet;
use bearward::tokens::jwt::verify::{TrustedIssuer, is_still_valid, verify};
use bearward::tokens::jwt::{Algorithm, Audience, Issuer, Validity, VerifiedToken};
use bearward::types::clock::UnixTime;
use bearward::types::trace::Trace;
use serde_json::{Value, json};

use crate::support::gateway::AUDIENCE;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};

/// Seconds; any moment would do.
const NOW: u64 = 1_800_000_000;

fn terms() -> Issuer {
    Issuer {
        issuer: EXTERNAL_ISSUER.into(),
        audience: Audience::OneOf(vec![AUDIENCE.into()]),
        algorithms: vec![Algorithm::ES256, Algorithm::EdDSA],
        types: vec!["at+jwt".into()],
        clock_skew: Duration::from_secs(30),
        max_lifetime: Duration::from_secs(86_400),
        require_subject: true,
        own: false,
    }
}

fn trusting(policy: &Issuer, jwks: &[Value]) -> Vec<TrustedIssuer> {
    let text = json!({ "keys": jwks }).to_string();
    let keys = KeySet::from_remote_jwks(&text, &policy.algorithms).map_or_else(|_| KeySet::default(), |(keys, _)| keys);
    vec![TrustedIssuer { policy: Arc::new(policy.clone()), keys: Arc::new(keys) }]
}

fn good(token: &str, issuers: &[TrustedIssuer]) -> Option<VerifiedToken> {
    verify(token, issuers, UnixTime::from_secs(NOW), Validity::Live, Trace::OFF).ok()
}

fn with_kid(mint: &Mint, kid: Option<&str>) -> Value {
    let mut jwk = mint.jwk();
    let members = jwk.as_object_mut().expect("a key");
    members.remove("kid");
    members.extend(kid.map(|kid| ("kid".to_owned(), json!(kid))));
    jwk
}

/// Every set of these keys, and the same key under other names.
fn key_sets(a: &Mint, b: &Mint, c: &Mint) -> Vec<Vec<Value>> {
    let entries = [a.jwk(), b.jwk(), c.jwk()];
    let mut sets: Vec<Vec<Value>> = (0..8_u8)
        .map(|bits| (0..3).filter(|bit| bits >> bit & 1 == 1).map(|bit| entries[bit].clone()).collect())
        .collect();
    sets.extend([
        vec![with_kid(a, None)],
        vec![with_kid(b, None)],
        vec![with_kid(a, Some("another"))],
        // Another key under a name that was known.
        vec![with_kid(b, Some(&a.kid))],
        vec![with_kid(b, Some(&a.kid)), with_kid(a, Some(&b.kid))],
    ]);
    sets
}

#[test]
fn what_still_holds_would_be_verified_again() {
    let [a, b, c] = [Algorithm::ES256, Algorithm::ES256, Algorithm::EdDSA].map(Mint::new);
    let unnamed = |mint: &Mint| {
        let mut header = mint.header();
        header.as_object_mut().expect("a header").remove("kid");
        mint.sign(&header, &mint.claims(NOW))
    };
    let tokens: Vec<String> =
        [&a, &b, &c].into_iter().flat_map(|mint| [mint.valid_token(NOW), unnamed(mint)]).collect();
    let sets = key_sets(&a, &b, &c);
    let (mut held, mut gone) = (0, 0);
    for before in &sets {
        for after in &sets {
            let (before, after) = (trusting(&terms(), before), trusting(&terms(), after));
            for token in &tokens {
                let Some(known) = good(token, &before) else { continue };
                match is_still_valid(&known, &after) {
                    true => assert!(good(token, &after).is_some(), "{after:?} does not take what {before:?} took"),
                    false if good(token, &after).is_none() => gone += 1,
                    // By a key that is not the same, be it only by its name.
                    false => assert!(!after[0].keys.has_all(&before[0].keys), "{after:?} has all of {before:?}"),
                }
                held += usize::from(is_still_valid(&known, &after));
            }
        }
    }
    assert!(held > 50 && gone > 50, "{held} held, {gone} gone");
}

#[test]
fn keys_that_come_and_go_beside_its_own_are_nothing_to_a_token() {
    let [a, b, c] = [Algorithm::ES256, Algorithm::ES256, Algorithm::EdDSA].map(Mint::new);
    let known = good(&a.valid_token(NOW), &trusting(&terms(), &[a.jwk(), b.jwk()])).expect("a good token");
    for others in [vec![a.jwk()], vec![c.jwk(), a.jwk()], vec![b.jwk(), a.jwk(), c.jwk()]] {
        assert!(is_still_valid(&known, &trusting(&terms(), &others)));
    }
    assert!(!is_still_valid(&known, &trusting(&terms(), &[b.jwk()])));
    assert!(!is_still_valid(&known, &[]));
    let revoking = KeySet::default().with_revoked(vec![a.kid.clone()]);
    assert!(!is_still_valid(&known, &[TrustedIssuer { policy: terms().into(), keys: revoking.into() }]));
}

#[test]
fn other_terms_are_asked_about_each_token() {
    let mint = Mint::new(Algorithm::ES256);
    let known = good(&mint.valid_token(NOW), &trusting(&terms(), &[mint.jwk()])).expect("a good token");
    for policy in [
        Issuer { issuer: "https://another.example".into(), ..terms() },
        Issuer { audience: Audience::OneOf(vec!["another".into()]), ..terms() },
        Issuer { audience: Audience::Any, ..terms() },
        Issuer { algorithms: vec![Algorithm::ES256], ..terms() },
        Issuer { types: vec!["jwt".into()], ..terms() },
        Issuer { clock_skew: Duration::ZERO, ..terms() },
        Issuer { max_lifetime: Duration::from_secs(1), ..terms() },
        Issuer { require_subject: false, ..terms() },
        Issuer { own: true, ..terms() },
    ] {
        assert!(!is_still_valid(&known, &trusting(&policy, &[mint.jwk()])), "{policy:?}");
    }
}
