//! `bearward verify`, and the test vectors of Project Wycheproof, which hold faults of other verifiers.

use std::collections::BTreeMap;

use bearward::tokens::jwt::jws::verify_signature;
use bearward::tokens::jwt::key_set::KeySet;
use bearward::tokens::jwt::{ALGORITHMS, Algorithm};
use bearward::types::step::StepReporter;
use serde_json::{Value, json};
use tempfile::TempDir;
use wycheproof_ng_kdf_jose::json_web::{TestName, TestSet};

use crate::support::program::bearward_with_stdin;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint, segment};

/// Vectors with another outcome here, and why. All are stricter, except for two vectors that are wrong in the file.
const DEVIATIONS: &[(usize, &str, &str)] = &[
    (346, "unknown_key", "signed with PS384 by a key for PS256: the gateway pins each key to its algorithm"),
    (350, "unknown_key", "the same, with key_ops"),
    (347, "admission", "ES512 over P-521 is not supported"),
    (351, "admission", "the same, with key_ops"),
    (372, "malformed_token", "a question mark in base64url: RFC 7515 section 2 allows no other characters"),
    (373, "malformed_token", "the same, in the payload"),
    (367, "accepted", "the comment names padding, but the text is that of the valid vector 357"),
    (370, "accepted", "the same, in the payload"),
];

/// Returns the payload, or the reason of the rejection.
fn verdict(jwk: &Value, jws: &str) -> Result<Vec<u8>, String> {
    let all: Vec<Algorithm> = ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).collect();
    let jwks = json!({ "keys": [jwk] }).to_string();
    let keys = KeySet::from_jwks(&jwks, &all).map_err(|_| "admission".to_owned())?;
    verify_signature(jws, &keys, StepReporter::OFF).map_err(|reject| reject.reason.code().to_owned())
}

#[test]
fn wycheproof_vectors_have_the_right_or_a_listed_outcome() {
    let set = TestSet::load(TestName::JsonWebSignature).expect("the vectors");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut texts: BTreeMap<usize, String> = BTreeMap::new();
    for group in &set.test_groups {
        let jwk = group.public_key.as_ref().or(group.private_key.as_ref()).expect("a key");
        for test in &group.tests {
            let jws = test.jws.as_ref().and_then(Value::as_str).expect("a compact JWS");
            texts.insert(test.tc_id, jws.to_owned());
            let outcome = verdict(jwk, jws).map_or_else(|reason| reason, |_| "accepted".into());
            let deviation = DEVIATIONS.iter().find(|(id, ..)| *id == test.tc_id);
            match deviation {
                Some((id, expected, why)) => {
                    assert_eq!(outcome, *expected, "{id}: {why}");
                    let is_right = test.result.must_fail() != (outcome == "accepted");
                    assert!(!is_right, "{id} is no longer a deviation");
                }
                None if !test.result.must_fail() => assert_eq!(outcome, "accepted", "{}", test.tc_id),
                None => assert_ne!(outcome, "accepted", "{}: {}", test.tc_id, test.comment),
            }
            let kind = jwk["alg"].as_str().unwrap_or("no alg");
            *counts.entry(format!("{kind:8} {:?} {outcome}", test.result)).or_default() += 1;
        }
    }
    for (category, count) in &counts {
        eprintln!("{count:4}  {category}");
    }
    assert_eq!(counts.values().sum::<usize>(), 401);
    for wrong in [367, 370] {
        assert_eq!(texts[&wrong], texts[&357], "{wrong} is no longer the valid vector");
    }
}

#[test]
fn weak_and_unsuitable_wycheproof_keys_verify_nothing() {
    let all: Vec<Algorithm> = ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).collect();
    let set = TestSet::load(TestName::JsonWebKey).expect("the vectors");
    let mut accepted = Vec::new();
    for group in &set.test_groups {
        let jwks = group.public_key.as_ref().or(group.private_key.as_ref()).expect("a key set").to_string();
        let keys = KeySet::from_jwks(&jwks, &all);
        for test in &group.tests {
            let Some(jws) = test.jws.as_ref().and_then(Value::as_str) else { continue };
            let is_accepted = keys.as_ref().is_ok_and(|keys| verify_signature(jws, keys, StepReporter::OFF).is_ok());
            assert!(!is_accepted || !test.result.must_fail(), "{}: {}", test.tc_id, test.comment);
            accepted.extend(is_accepted.then_some(test.tc_id));
        }
        if group.group_comment == "jws_rsa_roca_key" {
            let error = keys.expect_err("the key is not admitted").to_string();
            assert!(error.contains("CVE-2017-15361"), "{error}");
        }
    }
    assert_eq!(accepted, [2, 5, 13, 14, 15], "all valid ones");
}

/// A folder with the keys of a mint, and a configuration that accepts its tokens.
fn folder(mint: &Mint) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("written");
    write("keys.json", mint.jwks());
    let mut nameless = mint.jwk();
    nameless.as_object_mut().expect("an object").remove("alg");
    write("nameless.json", json!({ "keys": [nameless] }).to_string());
    write("empty.json", json!({ "keys": [] }).to_string());
    let issuer = format!("[[issuer]]\nissuer = \"{EXTERNAL_ISSUER}\"\naudience = [\"https://api.example\"]\n");
    let keys = "jwks_file = \"keys.json\"\nalgorithms = [\"RS256\"]\n";
    write("gateway.toml", format!("[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n{issuer}{keys}"));
    folder
}

#[test]
fn the_exit_status_shows_whether_the_signature_is_valid() {
    let mint = Mint::new(Algorithm::RS256);
    let folder = folder(&mint);
    let now = 1_800_000_000;
    let good = mint.valid_token(now);
    let (message, signature) = good.rsplit_once('.').expect("three segments");
    let forged = format!("{message}.{}{}", if signature.starts_with('A') { 'B' } else { 'A' }, &signature[1..]);
    let foo = mint.sign_message(&format!("{}.{}", segment(r#"{"alg":"RS256"}"#), segment("no claims at all")));
    let keys = ["--jwks", "keys.json"];
    let at = ["--jwks", "keys.json", "--claims", "--at", "2027-01-15T08:00:00Z"];
    let rows: Vec<(&[&str], String, i32, &str)> = vec![
        (&keys, good.clone(), 0, "valid"),
        (&keys, format!("  {good}\n"), 0, "valid"),
        (&keys, foo, 0, "valid"),
        (&keys, forged, 1, "401 bad_signature"),
        (&keys, mint.with_header(now, json!({ "alg": "none" })), 1, "401 algorithm_not_allowed"),
        (&keys, mint.with_header(now, json!({ "crit": ["exp"] })), 1, "401 forbidden_header"),
        (&keys, mint.with_header(now, json!({ "kid": "x" })), 1, "401 unknown_key"),
        (&keys, String::new(), 1, "401 malformed_token"),
        // The token expired long ago, but its signature is valid.
        (&keys, mint.with_claims(now, json!({ "exp": 1 })), 0, "valid"),
        (&at, good.clone(), 0, "claims "),
        (&at, mint.with_claims(now, json!({ "exp": 1 })), 1, "401 expired"),
        (&at, mint.with_claims(now, json!({ "aud": "x" })), 1, "401 wrong_audience"),
        (&at, mint.with_header(now, json!({ "typ": "JWT" })), 1, "401 wrong_type"),
        (&at, mint.with_claims(now, json!({ "iss": "https://localhost:8443", "sid": "x" })), 1, "401 "),
        (&["--jwks", "keys.json", "--claims"], good.clone(), 1, "401 "),
        (&["--jwks", "nameless.json", "--algorithm", "RS256"], good.clone(), 0, "valid"),
        (&["--jwks", "nameless.json"], good.clone(), 2, "the key has no alg"),
        (&["--jwks", "keys.json", "--algorithm", "ES256"], good.clone(), 2, "keys.json"),
        (&["--jwks", "empty.json"], good.clone(), 2, "empty.json"),
        (&["--jwks", "missing.json"], good.clone(), 2, "missing.json"),
        (&["--jwks", "gateway.toml"], good.clone(), 2, "JSON"),
        (&["--jwks", "keys.json", "--algorithm", "none"], good.clone(), 2, "expected one of ES256"),
        (&[], good.clone(), 2, "--jwks"),
    ];
    for (arguments, token, status, expected_text) in rows {
        let output = bearward_with_stdin(folder.path(), &[&["verify"], arguments].concat(), &token);
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert_eq!(output.status.code(), Some(status), "{arguments:?} {token}: {text}");
        assert!(text.contains(expected_text), "{arguments:?} {token}: {text}");
        assert!(token.len() < 40 || !text.contains(&token.trim()[..40]), "a token was printed: {text}");
    }
    let output = bearward_with_stdin(folder.path(), &["verify", "--jwks", "keys.json", "--json"], "x");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["decision"], &report["reason"]), (&json!("rejected"), &json!("malformed_token")));
}
