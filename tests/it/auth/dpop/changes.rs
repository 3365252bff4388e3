//! The changes in the rows of the table of hostile proofs.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bearward::tokens::jwt::Algorithm;
use serde_json::json;

use super::hostile::{Case, Parties, Signer};
use crate::support::prover::{Prover, hash_of};
use crate::support::tokens::{Mint, segment};

pub fn htu(case: &mut Case, url: &str) {
    case.claim("htu", json!(url));
}

/// Signs these texts: the header of the draft, and its claims.
pub fn texts(case: &mut Case, change: impl FnOnce(String, String) -> (String, String)) {
    let (header, claims) = change(case.draft.header.to_string(), case.draft.claims.to_string());
    case.signer = Signer::Texts(header, claims);
}

pub fn twice(object: &str, member: &str) -> String {
    object.replacen('{', &format!("{{{member},"), 1)
}

pub fn rsa_jwk(bytes: usize, exponent: &[u8]) -> serde_json::Value {
    let mut modulus = vec![0xC5; bytes];
    modulus[bytes - 1] = 0xC5;
    json!({ "kty": "RSA", "n": URL_SAFE_NO_PAD.encode(modulus), "e": URL_SAFE_NO_PAD.encode(exponent) })
}

pub fn weak_rsa(case: &mut Case, bytes: usize, exponent: &[u8]) {
    case.header("alg", json!("RS256"));
    case.header("jwk", rsa_jwk(bytes, exponent));
}

pub fn hmac(parties: &Parties, case: &mut Case, secret: &[u8]) {
    case.header("alg", json!("HS256"));
    let _ = parties;
    case.signer = Signer::Key(Box::new(Mint::hmac(Algorithm::HS256, secret)));
}

pub fn dated(parties: &Parties, case: &mut Case, ahead: i64) {
    case.claim("iat", json!(parties.now.saturating_add_signed(ahead)));
}

pub fn stray_bits(proof: &str) -> String {
    let (message, signature) = proof.rsplit_once('.').expect("dots");
    let (header, _) = message.split_once('.').expect("dots");
    // `{}` is `e30`: the last character has two bits that must be zero.
    format!("{header}.e31.{signature}")
}

pub fn padded_payload(proof: &str) -> String {
    let (message, signature) = proof.rsplit_once('.').expect("dots");
    format!("{message}=.{signature}")
}

pub fn x_twice(header: &str) -> String {
    header.replacen("\"jwk\":{", "\"jwk\":{\"x\":\"AA\",", 1)
}

pub fn with_null_key(header: &str) -> String {
    let (before, _) = header.split_once("\"jwk\":").expect("jwk");
    format!("{before}\"jwk\":null,\"typ\":\"dpop+jwt\"}}")
}

pub fn deep(levels: usize) -> String {
    format!("\"x\":{}1{}", "[".repeat(levels), "]".repeat(levels))
}

pub fn not_utf8(proof: &str) -> String {
    let mut segments = proof.split('.').map(str::to_owned).collect::<Vec<_>>();
    segments[1] = segment([b'{', b'"', 0xff, b'"', b':', b'1', b'}']);
    segments.join(".")
}

pub fn unsigned(case: &mut Case, algorithm: &str) {
    case.header("alg", json!(algorithm));
    case.signer = Signer::Text("");
}

pub fn x_of(parties: &Parties) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(parties.own.jwk()["x"].as_str().expect("x")).expect("base64url")
}

pub fn hmac_with_key(parties: &Parties, case: &mut Case) {
    let point = ["x", "y"].map(|name| parties.own.jwk()[name].as_str().expect("text").to_owned());
    hmac(parties, case, point.concat().as_bytes());
}

/// With the public key, by another hash.
pub fn hmac_named(parties: &Parties, case: &mut Case, name: &str) {
    hmac_with_key(parties, case);
    case.header("alg", json!(name));
}

pub fn private_rsa(case: &mut Case) {
    weak_rsa(case, 256, &[1, 0, 1]);
    for name in ["d", "p", "q", "dp", "dq", "qi"] {
        case.jwk(name, json!("AQAB"));
    }
}

/// A reader that drops null would not see it.
pub fn private_null(header: &str) -> String {
    header.replacen("\"jwk\":{", "\"jwk\":{\"d\":null,", 1)
}

pub fn hmac_with_k(parties: &Parties, case: &mut Case) {
    case.header("jwk", json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode([7; 32]) }));
    hmac(parties, case, &[7; 32]);
}

/// RFC 9864.
pub fn newer_name(parties: &Parties, case: &mut Case) {
    case.key(parties, Prover::with(Algorithm::EdDSA));
    case.header("alg", json!("Ed25519"));
}

pub fn private_okp(parties: &Parties, case: &mut Case) {
    case.key(parties, Prover::with(Algorithm::EdDSA));
    case.jwk("d", json!("AQAB"));
}

pub fn infinity(case: &mut Case) {
    let zero = URL_SAFE_NO_PAD.encode([0; 32]);
    case.jwk("x", json!(zero));
    case.jwk("y", json!(zero));
}

pub fn pad_x(case: &mut Case) {
    let x = case.draft.header["jwk"]["x"].as_str().expect("x").to_owned();
    case.jwk("x", json!(format!("{x}=")));
}

pub fn key_elsewhere(case: &mut Case, name: &str, value: serde_json::Value) {
    case.header("jwk", json!(null));
    case.header(name, value);
}

pub fn with_names(case: &mut Case) {
    case.jwk("kid", json!("x"));
    case.jwk("use", json!("sig"));
    case.jwk("alg", json!("ES256"));
}

pub fn flip(mut signature: Vec<u8>) -> Vec<u8> {
    signature[40] ^= 1;
    signature
}

/// ASN.1 instead of the two numbers, as TLS has it.
pub fn der(signature: Vec<u8>) -> Vec<u8> {
    let number = |bytes: &[u8]| [&[2, 33, 0], bytes].concat();
    let both = [number(&signature[..32]), number(&signature[32..])].concat();
    [vec![0x30, u8::try_from(both.len()).expect("short")], both].concat()
}

pub fn other_payload(proof: &str) -> String {
    let mut segments = proof.split('.').map(str::to_owned).collect::<Vec<_>>();
    let claims = URL_SAFE_NO_PAD.decode(&segments[1]).expect("base64url");
    let claims = String::from_utf8(claims).expect("text");
    segments[1] = segment(claims.replacen("proof-", "proof_", 1));
    segments.join(".")
}

pub fn other_key(parties: &Parties, case: &mut Case) {
    case.header("jwk", parties.other.jwk());
    case.fields = |proof| vec![proof];
}

pub fn as_bearer(case: &mut Case) {
    case.scheme = "Bearer";
    case.fields = |_| vec![];
}

pub fn ath_in_hex(case: &mut Case) {
    let bytes = bearward::types::secret::digest(&[case.token.as_bytes()]);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    case.claim("ath", json!(hex));
}

pub fn ath_padded(case: &mut Case) {
    let ath = case.draft.claims["ath"].as_str().expect("ath").to_owned();
    case.claim("ath", json!(format!("{ath}=")));
}

pub fn ath_of_field(case: &mut Case) {
    let field = format!("DPoP {}", case.token);
    case.claim("ath", json!(hash_of(&field)));
}
