//! A cached token stays valid after a change of keys only if the key that verified it is still there.

use std::sync::Arc;
use std::time::Duration;

use bearward::tokens::jwt::key_set::KeySet;
use bearward::tokens::jwt::verify::{TrustedIssuer, is_still_valid, verify};
use bearward::tokens::jwt::{Algorithm, Audience, Issuer, Validity, VerifiedToken};
use bearward::types::clock::UnixTime;
use bearward::types::step::StepReporter;
use serde_json::{Value, json};

use crate::support::tokens::{self, Mint};

/// Unix time in seconds. Any time works.
const NOW: u64 = 1_800_000_000;

fn policy() -> Issuer {
    tokens::policy(vec![Algorithm::ES256, Algorithm::EdDSA])
}

fn trusting(policy: &Issuer, jwks: &[Value]) -> Vec<TrustedIssuer> {
    let text = json!({ "keys": jwks }).to_string();
    let keys = KeySet::from_remote_jwks(&text, &policy.algorithms).map_or_else(|_| KeySet::default(), |(keys, _)| keys);
    vec![TrustedIssuer { policy: Arc::new(policy.clone()), keys: Arc::new(keys) }]
}

fn verified(token: &str, issuers: &[TrustedIssuer]) -> Option<VerifiedToken> {
    verify(token, issuers, UnixTime::from_secs(NOW), Validity::Live, StepReporter::OFF).ok()
}

fn with_kid(mint: &Mint, kid: Option<&str>) -> Value {
    let mut jwk = mint.jwk();
    let members = jwk.as_object_mut().expect("a key");
    members.remove("kid");
    members.extend(kid.map(|kid| ("kid".to_owned(), json!(kid))));
    jwk
}

/// All subsets of these keys, and keys under other ids.
fn key_sets(a: &Mint, b: &Mint, c: &Mint) -> Vec<Vec<Value>> {
    let entries = [a.jwk(), b.jwk(), c.jwk()];
    let mut sets: Vec<Vec<Value>> = (0..8_u8)
        .map(|bits| (0..3).filter(|bit| bits >> bit & 1 == 1).map(|bit| entries[bit].clone()).collect())
        .collect();
    sets.extend([
        vec![with_kid(a, None)],
        vec![with_kid(b, None)],
        vec![with_kid(a, Some("another"))],
        // Another key under the id of a known one.
        vec![with_kid(b, Some(&a.kid))],
        vec![with_kid(b, Some(&a.kid)), with_kid(a, Some(&b.kid))],
    ]);
    sets
}

#[test]
fn a_token_that_stays_valid_would_be_verified_again() {
    let [a, b, c] = [Algorithm::ES256, Algorithm::ES256, Algorithm::EdDSA].map(Mint::new);
    let unnamed = |mint: &Mint| {
        let mut header = mint.header();
        header.as_object_mut().expect("a header").remove("kid");
        mint.sign(&header, &mint.claims(NOW))
    };
    let tokens: Vec<String> =
        [&a, &b, &c].into_iter().flat_map(|mint| [mint.valid_token(NOW), unnamed(mint)]).collect();
    let sets = key_sets(&a, &b, &c);
    let (mut kept, mut dropped) = (0, 0);
    for before in &sets {
        for after in &sets {
            let (before, after) = (trusting(&policy(), before), trusting(&policy(), after));
            for token in &tokens {
                let Some(cached) = verified(token, &before) else { continue };
                match is_still_valid(&cached, &after) {
                    true => {
                        assert!(verified(token, &after).is_some(), "{after:?} does not accept what {before:?} accepted")
                    }
                    false if verified(token, &after).is_none() => dropped += 1,
                    // Another key would verify it, or the same key under another id.
                    false => assert!(!after[0].keys.has_all(&before[0].keys), "{after:?} has all of {before:?}"),
                }
                kept += usize::from(is_still_valid(&cached, &after));
            }
        }
    }
    assert!(kept > 50 && dropped > 50, "{kept} kept, {dropped} dropped");
}

#[test]
fn changes_of_other_keys_do_not_affect_a_cached_token() {
    let [a, b, c] = [Algorithm::ES256, Algorithm::ES256, Algorithm::EdDSA].map(Mint::new);
    let cached = verified(&a.valid_token(NOW), &trusting(&policy(), &[a.jwk(), b.jwk()])).expect("a valid token");
    for others in [vec![a.jwk()], vec![c.jwk(), a.jwk()], vec![b.jwk(), a.jwk(), c.jwk()]] {
        assert!(is_still_valid(&cached, &trusting(&policy(), &others)));
    }
    assert!(!is_still_valid(&cached, &trusting(&policy(), &[b.jwk()])));
    assert!(!is_still_valid(&cached, &[]));
    let revoking = KeySet::default().with_revoked(vec![a.kid.clone()]);
    assert!(!is_still_valid(&cached, &[TrustedIssuer { policy: policy().into(), keys: revoking.into() }]));
}

#[test]
fn a_changed_issuer_policy_invalidates_cached_tokens() {
    let mint = Mint::new(Algorithm::ES256);
    let cached = verified(&mint.valid_token(NOW), &trusting(&policy(), &[mint.jwk()])).expect("a valid token");
    for policy in [
        Issuer { issuer: "https://another.example".into(), ..policy() },
        Issuer { audience: Audience::OneOf(vec!["another".into()]), ..policy() },
        Issuer { audience: Audience::Any, ..policy() },
        Issuer { algorithms: vec![Algorithm::ES256], ..policy() },
        Issuer { types: vec!["jwt".into()], ..policy() },
        Issuer { clock_skew: Duration::ZERO, ..policy() },
        Issuer { max_lifetime: Duration::from_secs(1), ..policy() },
        Issuer { require_subject: false, ..policy() },
        Issuer { own: true, ..policy() },
    ] {
        assert!(!is_still_valid(&cached, &trusting(&policy, &[mint.jwk()])), "{policy:?}");
    }
}
