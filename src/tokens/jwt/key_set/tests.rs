//! Keys that are accepted, and the errors of others.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{CertificateParams, PKCS_RSA_SHA256};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_ED25519};
use serde_json::json;

use super::*;
use crate::tokens::jwt::algorithm::algorithm_name;
use crate::tokens::jwt::key_error::KeyError;
use crate::tokens::jwt::sign::{SigningKey, generate_pem};
use Algorithm::*;

fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An RSA key of this size. The checks do not need a modulus that is the product of two primes.
fn rsa(bits: usize, exponent: &[u8]) -> Value {
    let mut modulus = vec![0xff; bits / 8];
    modulus[0] = 0x80;
    json!({ "kty": "RSA", "alg": "RS256", "kid": "r", "n": b64(&modulus), "e": b64(exponent) })
}

fn good_rsa() -> Value {
    rsa(2048, &[1, 0, 1])
}

fn secret(len: usize) -> Value {
    json!({ "kty": "oct", "alg": "HS256", "kid": "s", "k": b64(&vec![7; len]) })
}

fn public(algorithm: Algorithm) -> Value {
    let pem = generate_pem(algorithm).expect("a key");
    SigningKey::from_pem(pem.expose(), algorithm).expect("its own key").public_jwk()
}

/// `null` removes a member.
fn with(mut jwk: Value, changes: Value) -> Value {
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => drop(jwk.as_object_mut().expect("an object").remove(name)),
            value => jwk[name] = value.clone(),
        }
    }
    jwk
}

fn jwks(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

const PUBLIC: &[Algorithm] = &[ES256, ES384, EdDSA, RS256];

#[test]
fn good_keys_are_accepted_and_unusable_ones_skipped() {
    let ec = public(ES256);
    let rows: Vec<(&str, Vec<Value>, &[Algorithm], usize)> = vec![
        ("one of each kind", [ES256, ES384, EdDSA, RS256].map(public).to_vec(), PUBLIC, 4),
        ("the smallest RSA key", vec![good_rsa()], PUBLIC, 1),
        ("the largest RSA key", vec![rsa(8192, &[1, 0, 1])], PUBLIC, 1),
        ("the exponent 3", vec![rsa(2048, &[3])], PUBLIC, 1),
        ("an exponent of 32 bits", vec![rsa(2048, &[0xff, 0xff, 0xff, 0xff])], PUBLIC, 1),
        ("numbers with leading zeros", vec![rsa(2048, &[0, 1, 0, 1])], PUBLIC, 1),
        ("RSA without alg, where only one fits", vec![with(good_rsa(), json!({ "alg": null }))], PUBLIC, 1),
        ("RSA for PS256", vec![with(good_rsa(), json!({ "alg": "PS256" }))], &[PS256], 1),
        ("a secret as long as the hash", vec![secret(32)], &[HS256], 1),
        ("one key without kid", vec![with(ec.clone(), json!({ "kid": null }))], PUBLIC, 1),
        ("without use", vec![with(ec.clone(), json!({ "use": null }))], PUBLIC, 1),
        ("key_ops", vec![with(ec.clone(), json!({ "use": null, "key_ops": ["verify"] }))], PUBLIC, 1),
        (
            "with an encryption key",
            vec![ec.clone(), with(good_rsa(), json!({ "use": "enc", "kid": ec["kid"] }))],
            PUBLIC,
            1,
        ),
        ("with a weak encryption key", vec![ec.clone(), with(rsa(512, &[1]), json!({ "use": "enc" }))], PUBLIC, 1),
        ("with a key for wrapping", vec![ec.clone(), with(good_rsa(), json!({ "key_ops": ["wrapKey"] }))], PUBLIC, 1),
        ("with RSA-OAEP", vec![ec.clone(), with(good_rsa(), json!({ "alg": "RSA-OAEP" }))], PUBLIC, 1),
        ("with P-521", vec![ec.clone(), json!({ "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" })], PUBLIC, 1),
        (
            "with secp256k1",
            vec![ec.clone(), json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA" })],
            PUBLIC,
            1,
        ),
        ("with Ed448", vec![ec.clone(), json!({ "kty": "OKP", "crv": "Ed448", "x": "AA" })], PUBLIC, 1),
        ("with X25519", vec![ec.clone(), json!({ "kty": "OKP", "crv": "X25519", "x": "AA" })], PUBLIC, 1),
        ("with an unknown type", vec![ec.clone(), json!({ "kty": "AKP", "alg": "ML-DSA-65", "pub": "AA" })], PUBLIC, 1),
        ("with an algorithm that is not allowed", vec![ec.clone(), good_rsa()], &[ES256], 1),
        ("unknown members", vec![with(ec.clone(), json!({ "x5c": ["MII"], "ext": true }))], PUBLIC, 1),
    ];
    for (name, keys, allowed, count) in rows {
        let set = KeySet::from_jwks(&jwks(&keys), allowed).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(set.keys().len(), count, "{name}");
        if allowed != [HS256] {
            let (remote, warnings) = KeySet::from_remote_jwks(&jwks(&keys), allowed).expect(name);
            assert!(remote.has_all(&set) && set.has_all(&remote) && warnings.is_empty(), "{name}: {warnings:?}");
        }
    }
}

/// Each key is an error in a file, and is skipped in a remote set with another good key.
#[test]
fn a_dangerous_key_is_an_error_in_a_file_and_skipped_if_fetched() {
    let ec = public(ES256);
    let ed = public(EdDSA);
    let even = |mut key: Value| {
        let mut modulus = vec![0xff; 256];
        modulus[255] = 0xfe;
        key["n"] = json!(b64(&modulus));
        key
    };
    let rows: Vec<(Value, &str)> = vec![
        (rsa(1024, &[1, 0, 1]), "1024 bits is too weak"),
        (rsa(2040, &[1, 0, 1]), "2040 bits is too weak"),
        (rsa(8200, &[1, 0, 1]), "8200 bits is too slow"),
        (with(good_rsa(), json!({ "n": "" })), "0 bits is too weak"),
        (even(good_rsa()), "modulus is even"),
        (rsa(2048, &[1]), "below 3"),
        (rsa(2048, &[0]), "below 3"),
        (rsa(2048, &[]), "below 3"),
        (rsa(2048, &[2]), "exponent is even"),
        (rsa(2048, &[1, 0, 0]), "exponent is even"),
        (rsa(2048, &[1, 0, 0, 0, 1]), "33 bits is too slow"),
        (with(good_rsa(), json!({ "d": "AQAB" })), "private key"),
        (with(ec.clone(), json!({ "d": "AQAB", "kid": "p" })), "private key"),
        (with(good_rsa(), json!({ "alg": "ES256" })), "does not fit"),
        (with(good_rsa(), json!({ "alg": "HS256" })), "does not fit"),
        (with(ec.clone(), json!({ "alg": "ES384", "kid": "p" })), "does not fit"),
        (with(ec.clone(), json!({ "alg": 5, "kid": "p" })), "alg is not a string"),
        (with(ec.clone(), json!({ "kid": 5 })), "kid is not a string"),
        (with(ec.clone(), json!({ "use": 5, "kid": "p" })), "use is not a string"),
        (with(ec.clone(), json!({ "key_ops": "verify", "kid": "p" })), "key_ops is not an array"),
        (with(ec.clone(), json!({ "kty": null, "kid": "p" })), "kty is missing"),
        (with(ec.clone(), json!({ "y": null, "kid": "p" })), "y is missing"),
        (with(ec.clone(), json!({ "y": "AA", "kid": "p" })), "y has 1 bytes instead of 32"),
        (with(ec.clone(), json!({ "y": "=", "kid": "p" })), "not base64url"),
        (with(ec.clone(), json!({ "y": ec["x"], "kid": "p" })), "not a point on the curve"),
        (with(ed.clone(), json!({ "x": "AA", "kid": "p" })), "32 bytes"),
        (json!(5), "not a JSON object"),
    ];
    let good = public(ES384);
    for (key, says) in rows {
        let error = KeySet::from_jwks(&jwks(std::slice::from_ref(&key)), PUBLIC).expect_err(says).to_string();
        assert!(error.contains(says) && error.starts_with("key 0"), "{says:?} is missing: {error}");
        let (set, warnings) = KeySet::from_remote_jwks(&jwks(&[key, good.clone()]), PUBLIC).expect(says);
        assert_eq!((set.keys().len(), warnings.len()), (1, 1), "{says}: {warnings:?}");
        assert!(warnings[0].contains(says), "{warnings:?}");
    }
}

#[test]
fn a_secret_is_long_enough_and_never_among_public_keys() {
    for (len, algorithm, good) in [
        (0, HS256, false),
        (31, HS256, false),
        (32, HS256, true),
        (47, HS384, false),
        (48, HS384, true),
        (63, HS512, false),
        (64, HS512, true),
    ] {
        assert_eq!(KeySet::from_secret(&vec![7; len], &[algorithm]).is_ok(), good, "{algorithm:?}, {len} bytes");
        let jwk = with(secret(len), json!({ "alg": algorithm_name(algorithm) }));
        assert_eq!(KeySet::from_jwks(&jwks(&[jwk]), &[algorithm]).is_ok(), good, "{algorithm:?}, {len} bytes");
    }
    // A file that mixes them is an error even if the configuration would use only some.
    for (keys, allowed) in [([secret(32), public(ES256)], PUBLIC), ([public(ES256), secret(32)], &[HS256])] {
        assert!(
            KeySet::from_jwks(&jwks(&keys), allowed).is_err_and(|error| matches!(error, KeySetError::MixedSecrets))
        );
    }
    // A fetched set never has a secret, whatever algorithms are allowed.
    let (set, warnings) = KeySet::from_remote_jwks(&jwks(&[secret(64), public(ES256)]), &[ES256, HS256]).expect("one");
    assert_eq!((set.keys().len(), set.keys()[0].algorithm, warnings.len()), (1, ES256, 1));
    let none = KeySet::from_remote_jwks(&jwks(&[secret(64)]), &[HS256]).expect_err("no key").to_string();
    assert!(none.contains("a published secret protects nothing"), "{none}");
}

#[test]
fn a_kid_or_the_algorithm_selects_exactly_one_key() {
    let [a, b] = [public(ES256), public(ES256)];
    let twins = [with(a.clone(), json!({ "kid": "x" })), with(b.clone(), json!({ "kid": "x" })), public(EdDSA)];
    assert!(
        KeySet::from_jwks(&jwks(&twins), PUBLIC).is_err_and(|error| error.to_string() == "two keys have the kid \"x\"")
    );
    let (set, warnings) = KeySet::from_remote_jwks(&jwks(&twins), PUBLIC).expect("the third");
    assert_eq!((set.keys().len(), set.keys()[0].algorithm, warnings.len()), (1, EdDSA, 1));

    let nameless = [with(a.clone(), json!({ "kid": null })), public(EdDSA)];
    assert!(KeySet::from_jwks(&jwks(&nameless), PUBLIC).is_err_and(|error| matches!(error, KeySetError::MissingKid)));
    let (set, warnings) = KeySet::from_remote_jwks(&jwks(&nameless), PUBLIC).expect("the second");
    assert_eq!((set.keys().len(), set.keys()[0].algorithm, warnings.len()), (1, EdDSA, 1));

    // The same key twice is not ambiguous.
    let (set, warnings) = KeySet::from_remote_jwks(&jwks(&[a.clone(), a.clone()]), PUBLIC).expect("one");
    assert_eq!((set.keys().len(), warnings.len()), (1, 0));
    // The token never chooses between algorithms.
    let ambiguous = jwks(&[with(good_rsa(), json!({ "alg": null }))]);
    assert!(
        KeySet::from_jwks(&ambiguous, &[RS256, PS256]).is_err_and(|error| error.to_string().contains("give it an alg"))
    );
}

#[test]
fn a_set_without_a_usable_key_is_an_error_with_details() {
    let rows: Vec<(String, &str)> = vec![
        (jwks(&[]), "no key can be used with ES256, ES384, EdDSA, RS256"),
        (jwks(&[with(good_rsa(), json!({ "use": "enc" }))]), "key 0 (kid \"r\"): it is for encryption"),
        (jwks(&[with(good_rsa(), json!({ "use": "tls" }))]), "it is for \"tls\""),
        (jwks(&[with(good_rsa(), json!({ "alg": "PS512" }))]), "it is for PS512"),
        (jwks(&[json!({ "kty": "EC", "crv": "P-521" })]), "it has the unsupported type \"EC P-521\""),
        (jwks(&[json!({ "kty": "AKP" })]), "it has the unsupported type \"AKP\""),
        (r#"{"keys":{}}"#.into(), "the array \"keys\""),
        (r#"{"keys":[],"keys":[]}"#.into(), "duplicate member"),
        ("[]".into(), "not an object"),
        ("<html>".into(), "not JSON"),
        (String::new(), "not JSON"),
        (format!("{}x", jwks(&[public(ES256)])), "not JSON"),
    ];
    for (text, says) in rows {
        for error in [
            KeySet::from_jwks(&text, PUBLIC).expect_err(says),
            KeySet::from_remote_jwks(&text, PUBLIC).map(drop).expect_err(says),
        ] {
            assert!(error.to_string().contains(says), "{says:?} is missing: {error}");
        }
    }
    let many = jwks(&vec![json!({ "kty": "AKP" }); 700]);
    let error = KeySet::from_remote_jwks(&many, PUBLIC).map(drop).expect_err("no key").to_string();
    assert!(error.len() < 1000 && error.contains("and 695 more"), "{error}");
}

#[test]
fn public_keys_and_certificates_are_read_from_pem() {
    for (kind, algorithm) in [
        (&PKCS_ECDSA_P256_SHA256, ES256),
        (&PKCS_ECDSA_P384_SHA384, ES384),
        (&PKCS_ED25519, EdDSA),
        (&PKCS_RSA_SHA256, RS256),
    ] {
        let pair = KeyPair::generate_for(kind).expect("a key");
        let certificate = CertificateParams::new(["a.example".to_owned()]).expect("a name").self_signed(&pair);
        let certificate = certificate.expect("a certificate").pem();
        let public = pair.public_key_pem();
        let [by_key, by_certificate] = [&public, &certificate].map(|pem| {
            KeySet::from_pem(pem.as_bytes(), &[algorithm]).unwrap_or_else(|error| panic!("{algorithm:?}: {error}"))
        });
        assert!(by_key.has_all(&by_certificate), "{algorithm:?}: the same key");
        assert!(by_key.find(Some("any"), algorithm).is_some());
        // Of a chain, the leaf is used. Several public keys are an error.
        assert!(KeySet::from_pem(format!("{certificate}{certificate}").as_bytes(), &[algorithm]).is_ok());
        let two = KeySet::from_pem(format!("{public}{public}").as_bytes(), &[algorithm]).expect_err("two keys");
        assert!(matches!(two, KeySetError::Key(KeyError::SeveralPemKeys)), "{two}");
        let private = KeySet::from_pem(format!("{public}{}", pair.serialize_pem()).as_bytes(), &[algorithm]);
        assert!(private.is_err_and(|error| matches!(error, KeySetError::Key(KeyError::PrivateKey))));
        let other = KeySet::from_pem(public.as_bytes(), &[HS256]);
        assert!(other.is_err_and(|error| matches!(error, KeySetError::Key(KeyError::NoAlgorithm))));
        // A private key is found also if it is encrypted, or if its end is missing.
        for label in ["ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] {
            let section = format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
            for private in [section.clone(), format!("{public}{section}"), format!("{public}-----BEGIN {label}-----\n")]
            {
                let error = KeySet::from_pem(private.as_bytes(), &[algorithm]).expect_err(label);
                assert!(matches!(error, KeySetError::Key(KeyError::PrivateKey)), "{error}");
            }
        }
    }
    let p521 = KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512).expect("a key").public_key_pem();
    assert!(KeySet::from_pem(p521.as_bytes(), &[ES256]).is_err_and(|error| error.to_string().contains("P-256, P-384")));
    for (pem, says) in [
        (rsa_pem(1024, &[1, 0, 1]), "too weak"),
        (rsa_pem(2048, &[1]), "below 3"),
        (rsa_pem(2048, &[2]), "even"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n".into(), "not a PEM public key"),
        ("-----BEGIN PUBLIC KEY-----\n".into(), "not a PEM public key"),
        (String::new(), "not a PEM public key"),
    ] {
        let error = KeySet::from_pem(pem.as_bytes(), &[RS256]).expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
    KeySet::from_pem(rsa_pem(2048, &[3]).as_bytes(), &[RS256]).expect("the exponent 3 is accepted");
}

/// PKCS#1: a SEQUENCE of two INTEGERs.
fn rsa_pem(bits: usize, exponent: &[u8]) -> String {
    let element = |tag: u8, content: &[u8]| {
        let len = u16::try_from(content.len()).expect("short").to_be_bytes();
        [&[tag, 0x82, len[0], len[1]], content].concat()
    };
    // With a leading zero, because an INTEGER with its top bit set is negative.
    let numbers = [element(2, &[&[0][..], &vec![0xff; bits / 8]].concat()), element(2, exponent)].concat();
    let body = STANDARD.encode(element(0x30, &numbers));
    format!("-----BEGIN RSA PUBLIC KEY-----\n{body}\n-----END RSA PUBLIC KEY-----\n")
}

#[test]
fn sets_are_compared_by_the_fingerprints_of_their_keys() {
    let [a, b] = [public(ES256), public(ES256)];
    let set = |keys: &[Value]| KeySet::from_jwks(&jwks(keys), PUBLIC).expect("good keys");
    let one = set(std::slice::from_ref(&a));
    let both = set(&[a.clone(), b.clone()]);
    assert!(both.has_all(&one) && !one.has_all(&both));
    let turned = set(&[b, with(a.clone(), json!({ "x5t": "another description of the same key" }))]);
    assert!(both.has_all(&turned) && turned.has_all(&both), "order and unknown members do not matter");
    let renamed = set(&[with(a.clone(), json!({ "kid": "z" }))]);
    assert!(!renamed.has_all(&one), "another kid is another key");
    let rs = good_rsa();
    let ps = with(good_rsa(), json!({ "alg": "PS256" }));
    let allowed = &[RS256, PS256];
    let [rs, ps] = [rs, ps].map(|key| KeySet::from_jwks(&jwks(&[key]), allowed).expect("good"));
    assert!(!rs.has_all(&ps), "another algorithm is another key");
}

#[test]
fn debug_output_has_no_key_material() {
    let printed = format!("{:?}", KeySet::from_secret(&[0x41; 32], &[HS256]).expect("good"));
    assert_eq!(printed, "KeySet { keys: [Key(None, HS256)], revoked: [] }");
}
