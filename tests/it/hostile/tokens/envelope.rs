//! Tokens that are not a compact JWS of three segments, and segments with another encoding.

use bearward::types::reject::Reason::*;

use super::{Row, World, row};
use crate::support::tokens::segment;

pub(super) fn rows(world: &World) -> Vec<Row> {
    let good = world.good();
    let [header, payload, signature]: [&str; 3] =
        good.split('.').collect::<Vec<_>>().try_into().expect("three segments");
    let jwe = |header: &str| format!("{}.{payload}.{payload}.{payload}.{payload}", segment(header));
    let mut rows = vec![
        row("a word", "x", MalformedToken),
        row("a dot", ".", MalformedToken),
        row("two dots", "..", MalformedToken),
        row("a thousand dots", ".".repeat(1000), MalformedToken),
        row("one segment", header, MalformedToken),
        row("two segments", format!("{header}.{payload}"), MalformedToken),
        row("four segments", format!("{good}.{signature}"), MalformedToken),
        row("a dot before it", format!(".{good}"), MalformedToken),
        row("a dot after it", format!("{good}."), MalformedToken),
        row("the token twice", format!("{good}.{good}"), MalformedToken),
        row("no header", format!(".{payload}.{signature}"), MalformedToken),
        row("no payload: a detached one", format!("{header}..{signature}"), MalformedToken),
        row("no signature", format!("{header}.{payload}."), BadSignature),
        row("nothing but a header", format!("{header}.."), BadSignature),
        row("nothing but a payload", format!(".{payload}."), MalformedToken),
        row("nothing but a signature", format!("..{signature}"), MalformedToken),
        row("header and payload exchanged", format!("{payload}.{header}.{signature}"), UnknownIssuer),
        row("payload and signature exchanged", format!("{header}.{signature}.{payload}"), MalformedToken),
        row("another separator", good.replace('.', "_"), MalformedToken),
        row("JWE with a wrapped key", jwe(r#"{"alg":"RSA-OAEP","enc":"A256GCM"}"#), MalformedToken),
        row("JWE with a shared key", jwe(r#"{"alg":"dir","enc":"A128CBC-HS256"}"#), MalformedToken),
        row("JWE with a million PBES2 rounds", jwe(r#"{"alg":"PBES2-HS256+A128KW","p2c":1000000}"#), MalformedToken),
        row("JSON serialization in base64url", segment(format!(r#"{{"payload":"{payload}"}}"#)), MalformedToken),
        row("JSON serialization", format!(r#"{{"payload":"{payload}"}}"#), MalformedToken),
        row("JSON serialization with commas", format!(r#"{{"payload":"{payload}","signature":"x"}}"#), SeveralTokens),
        row("a refresh token of ours", format!("bwr1_{}_{}", "0".repeat(22), "0".repeat(62)), MalformedToken),
        row("PASETO", format!("v4.public.{payload}"), MalformedToken),
        row("an opaque token", "2YotnFZFEjr1zCsicMWpAA", MalformedToken),
        row("SD-JWT with a disclosure", format!("{good}~WyJhIiwiYiIsImMiXQ~"), BadSignature),
        row("one byte over the maximum size", "a".repeat(8193), TokenTooLarge),
        row("the maximum size of a token", "a".repeat(8192), MalformedToken),
        row("a good token with a long tail", format!("{good}{}", "A".repeat(8193 - good.len())), TokenTooLarge),
    ];
    rows.extend(encodings(world, [header, payload, signature]));
    rows
}

/// Each value has one encoding (RFC 7515 section 2). Otherwise caches and revocations would know a token under several
/// names.
fn encodings(world: &World, [header, payload, signature]: [&str; 3]) -> Vec<Row> {
    let sign = |header: &str, payload: &str| world.mint.sign_message(&format!("{header}.{payload}"));
    let (header_text, payload_text) = (world.mint.header().to_string(), world.mint.claims(world.now).to_string());
    let hexadecimal: String = header_text.bytes().map(|byte| format!("{byte:02x}")).collect();
    // Its encoding has both characters in which the alphabets differ.
    let special = segment(super::and(&world.mint.claims(world.now), ",\"x\":\"???>>>~~~\""));
    let standard = special.replace('-', "+").replace('_', "/");
    assert_ne!(standard, special);
    let (rest, last) = signature.split_at(signature.len() - 1);
    vec![
        row("a padded header", sign(&format!("{header}="), payload), MalformedToken),
        row("a padded payload", sign(header, &format!("{payload}==")), MalformedToken),
        row("a padded signature", format!("{header}.{payload}.{signature}=="), BadSignature),
        row("the standard alphabet", sign(header, &standard), MalformedToken),
        row("a plus in the signature", format!("{header}.{payload}.+{}", &signature[1..]), BadSignature),
        row("a header of one letter", sign("e", payload), MalformedToken),
        row("half a byte too many", sign(header, &format!("{}A", segment(" ".repeat(3)))), MalformedToken),
        row("a header in hexadecimal", sign(&hexadecimal, payload), MalformedToken),
        row("a payload in base64url twice", sign(header, &segment(payload)), MalformedToken),
        row("a tilde in the header", sign(&header.replacen('e', "~", 1), payload), MalformedToken),
        row("stray bits after the header", sign(&with_stray_bits(&header_text), payload), MalformedToken),
        row("stray bits after the payload", sign(header, &with_stray_bits(&payload_text)), MalformedToken),
        row("stray bits after the signature", format!("{header}.{payload}.{rest}{}", next(last)), BadSignature),
    ]
}

/// The last character has unused bits. With one of them set, it is a second encoding of the same bytes.
fn with_stray_bits(json: &str) -> String {
    let mut json = json.to_owned();
    while json.len() % 3 != 1 {
        json.push(' ');
    }
    let encoded = segment(json);
    let (rest, last) = encoded.split_at(encoded.len() - 1);
    format!("{rest}{}", next(last))
}

/// Returns the character with the next value. The value of `letter` is even.
fn next(letter: &str) -> char {
    char::from(letter.as_bytes()[0] + 1)
}
