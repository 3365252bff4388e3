//! Invalid signatures that some verifier has accepted.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bearward::tokens::jwt::Algorithm;
use bearward::types::reject::Reason::BadSignature;
use serde_json::json;

use super::{Row, World, row};
use crate::support::tokens::{Mint, segment};

/// The order of P-256 (FIPS 186-5 D.1.2.3).
const N: [u8; 32] = *b"\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\
    \xbc\xe6\xfa\xad\xa7\x17\x9e\x84\xf3\xb9\xca\xc2\xfc\x63\x25\x51";
/// The prime of its field.
const P: [u8; 32] =
    *b"\xff\xff\xff\xff\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
/// The order of Ed25519's base point, little-endian (RFC 8032 section 5.1).
const L: [u8; 32] =
    *b"\xed\xd3\xf5\x5c\x1a\x63\x12\x58\xd6\x9c\xf7\xa2\xde\xf9\xde\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10";

pub(super) fn rows(world: &World) -> Vec<Row> {
    [ecdsa(world), ecdsa_384(world), eddsa(world), rsa(world), elsewhere(world)].into_iter().flatten().collect()
}

fn split_signature(token: &str) -> (&str, Vec<u8>) {
    let (message, signature) = token.rsplit_once('.').expect("three segments");
    (message, URL_SAFE_NO_PAD.decode(signature).expect("base64url"))
}

/// A valid message with another signature.
fn signed(name: &str, message: &str, signature: impl AsRef<[u8]>) -> Row {
    row(name, format!("{message}.{}", segment(signature)), BadSignature)
}

fn ecdsa(world: &World) -> Vec<Row> {
    let good = world.good();
    let (message, bytes) = split_signature(&good);
    let (r, s) = bytes.split_at(32);
    let [zero, one] = [[0; 32], small(1)];
    let both = |r: &[u8], s: &[u8]| [r, s].concat();
    let flipped = |at: usize, bits: u8| {
        let mut bytes = bytes.clone();
        bytes[at] ^= bits;
        bytes
    };
    let as_text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let halves: [(&str, Vec<u8>); 27] = [
        ("r = s = 0, the psychic signature", both(&zero, &zero)),
        ("r = 0", both(&zero, s)),
        ("s = 0", both(r, &zero)),
        ("r = s = 1", both(&one, &one)),
        ("r = 1, s = 0", both(&one, &zero)),
        ("r = 0, s = 1", both(&zero, &one)),
        ("r = n", both(&N, s)),
        ("s = n", both(r, &N)),
        ("r = s = n", both(&N, &N)),
        ("r = 0, s = n", both(&zero, &N)),
        ("r = n, s = 1", both(&N, &one)),
        ("r = p", both(&P, s)),
        ("r = s = p", both(&P, &P)),
        ("r = s = 2^256 - 1", vec![0xff; 64]),
        ("r and s exchanged", both(s, r)),
        ("r twice", both(r, r)),
        ("s twice", both(s, s)),
        ("r alone", r.to_vec()),
        ("one byte less", bytes[..63].to_vec()),
        ("the first byte missing", bytes[1..].to_vec()),
        ("one byte more", both(&bytes, &[0])),
        ("a zero before it", both(&[0], &bytes)),
        ("the signature twice", both(&bytes, &bytes)),
        ("each half as long as one of P-521", [[0; 34].as_slice(), r, &[0; 34], s].concat()),
        ("in DER, as X.509 has it", der(r, s)),
        ("in hexadecimal", as_text.into_bytes()),
        ("one byte", vec![0]),
    ];
    let mut rows: Vec<Row> = halves.into_iter().map(|(name, bytes)| signed(name, message, bytes)).collect();
    for (name, at, bits) in [
        ("the first bit flipped", 0, 0x80),
        ("the last bit flipped", 63, 1),
        ("the last bit of r flipped", 31, 1),
        ("a byte of s inverted", 40, 0xff),
    ] {
        rows.push(signed(name, message, flipped(at, bits)));
    }
    rows
}

fn small(value: u8) -> [u8; 32] {
    let mut number = [0; 32];
    number[31] = value;
    number
}

/// SEQUENCE of two INTEGERs.
fn der(r: &[u8], s: &[u8]) -> Vec<u8> {
    let integer = |number: &[u8]| {
        let digits: Vec<u8> = [&[0], number].concat();
        let from = digits.windows(2).position(|pair| pair[0] != 0 || pair[1] >= 0x80).unwrap_or(0);
        [&[2, (digits.len() - from) as u8], &digits[from..]].concat()
    };
    let content = [integer(r), integer(s)].concat();
    [&[0x30, content.len() as u8], content.as_slice()].concat()
}

fn ecdsa_384(world: &World) -> Vec<Row> {
    let good = world.p384.valid_token(world.now);
    let (message, bytes) = split_signature(&good);
    let p256 = world.mint.sign_message(message);
    vec![
        signed("ES384, r = s = 0", message, [0; 96]),
        signed("ES384, a byte less", message, &bytes[..95]),
        signed("ES384, two thirds of it", message, &bytes[..64]),
        signed("ES384, halves exchanged", message, [&bytes[48..], &bytes[..48]].concat()),
        row("ES384, signed on P-256", p256, BadSignature),
    ]
}

fn eddsa(world: &World) -> Vec<Row> {
    let good = world.ed.valid_token(world.now);
    let (message, bytes) = split_signature(&good);
    let (r, s) = bytes.split_at(32);
    // The neutral element, as a point.
    let neutral = {
        let mut point = [0; 32];
        point[0] = 1;
        point
    };
    let mut high = s.to_vec();
    high[31] |= 0x80;
    vec![
        signed("EdDSA, all zeros", message, [0; 64]),
        signed("EdDSA, S + L: another form of the same signature", message, [r, &plus_l(s)].concat()),
        signed("EdDSA, S + 2L", message, [r, &plus_l(&plus_l(s))].concat()),
        signed("EdDSA, the highest bit of S", message, [r, &high].concat()),
        signed("EdDSA, S = L", message, [r, &L].concat()),
        signed("EdDSA, S = 0", message, [r, &[0; 32]].concat()),
        signed("EdDSA, a point of small order and S = 0", message, [neutral, [0; 32]].concat()),
        signed("EdDSA, halves exchanged", message, [s, r].concat()),
        signed("EdDSA, a byte less", message, &bytes[..63]),
        signed("EdDSA, a byte more", message, [bytes.as_slice(), &[0]].concat()),
        row("EdDSA, a stranger's", stranger(Algorithm::EdDSA, &world.ed, world.now), BadSignature),
    ]
}

/// Adds L to a number in little-endian order, as Ed25519 writes numbers.
fn plus_l(number: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let digits = number.iter().zip(L).map(|(digit, more)| {
        carry += u16::from(*digit) + u16::from(more);
        let digit = carry as u8;
        carry >>= 8;
        digit
    });
    digits.collect()
}

/// A token of another key, with the header of the known key.
fn stranger(algorithm: Algorithm, known: &Mint, now: u64) -> String {
    Mint::new(algorithm).sign(&known.header(), &known.claims(now))
}

fn rsa(world: &World) -> Vec<Row> {
    let good = world.rsa.valid_token(world.now);
    let (message, bytes) = split_signature(&good);
    let mut padded = vec![0xff; 256];
    padded[..2].copy_from_slice(&[0, 1]);
    let mut one = vec![0; 256];
    one[255] = 1;
    vec![
        signed("RS256, zero", message, [0; 256]),
        signed("RS256, one", message, &one),
        signed("RS256, larger than the modulus", message, [0xff; 256]),
        signed("RS256, nothing but padding", message, &padded),
        signed("RS256, a byte less", message, &bytes[..255]),
        signed("RS256, a zero before it", message, [&[0], bytes.as_slice()].concat()),
        signed("RS256, a zero after it", message, [bytes.as_slice(), &[0]].concat()),
        signed("RS256, reversed", message, bytes.iter().rev().copied().collect::<Vec<u8>>()),
        row("RS256, another hash", world.rsa.sign_message_as(Algorithm::RS512, message), BadSignature),
        row("RS256, PSS instead of PKCS #1", world.rsa.sign_message_as(Algorithm::PS256, message), BadSignature),
        row("RS256, a stranger's", stranger(Algorithm::RS256, &world.rsa, world.now), BadSignature),
    ]
}

/// Valid signatures of other messages.
fn elsewhere(world: &World) -> Vec<Row> {
    let good = world.good();
    let [header, payload, signature]: [&str; 3] =
        good.split('.').collect::<Vec<_>>().try_into().expect("three segments");
    let root = segment(world.mint.claims(world.now).to_string().replace("bob", "root"));
    let signature_of = |message: &str| {
        let token = world.mint.sign_message(message);
        token.rsplit_once('.').expect("it has one").1.to_owned()
    };
    let with = |name: &str, signature: &str| row(name, format!("{header}.{payload}.{signature}"), BadSignature);
    let reordered = segment(format!(" {}", world.mint.header()));
    vec![
        row("another subject under a good signature", format!("{header}.{root}.{signature}"), BadSignature),
        row("another spelling of the header", format!("{reordered}.{payload}.{signature}"), BadSignature),
        with("of the header alone", &signature_of(header)),
        with("of the payload alone", &signature_of(payload)),
        with("of header and payload without a dot", &signature_of(&format!("{header}{payload}"))),
        with("of payload and header", &signature_of(&format!("{payload}.{header}"))),
        with("of a dot", &signature_of(".")),
        with("of nothing", &signature_of("")),
        with("of the claims as they are", &signature_of(&world.mint.claims(world.now).to_string())),
        with(
            "of a token without its kid",
            &signature_of(&format!("{}.{payload}", segment(json!({ "alg": "ES256" }).to_string()))),
        ),
        with(
            "another token's",
            split_signature(&world.claims(json!({ "jti": "2" }))).0.rsplit_once('.').expect("a dot").1,
        ),
        with("a word", "null"),
        with("a letter", "A"),
        with("a tilde", "~"),
    ]
}
