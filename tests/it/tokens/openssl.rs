//! OpenSSL creates keys and signs tokens in the forms of RFC 7520 section 4, RFC 7797 and RFC 8037, and the gateway
//! verifies them. OpenSSL also verifies the signatures of the gateway.

use std::fs;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bearward::tokens::jwt::jws::verify_signature;
use bearward::tokens::jwt::key_set::KeySet;
use bearward::tokens::jwt::sign::{SIGNING, SigningKey, generate_pem};
use bearward::tokens::jwt::{ALGORITHMS, Algorithm};
use bearward::types::step::StepReporter;
use serde_json::{Map, json};
use tempfile::TempDir;

use crate::support::tokens::{name, segment};

/// Like the payload of the RFC, it is not ASCII and has no claims.
const PAYLOAD: &str = "“Not all those who wander are lost.” Wer das sagt, hat eine Karte.";
const SECRET: &[u8] = b"a shared secret that is long enough for each of the three HMACs.";

struct Openssl {
    folder: TempDir,
}

impl Openssl {
    fn new() -> Self {
        Openssl { folder: tempfile::tempdir().expect("a folder") }
    }

    fn run(&self, arguments: &str) -> Vec<u8> {
        let output = Command::new("openssl").args(arguments.split(' ')).current_dir(self.folder.path()).output();
        let output = output.expect("openssl runs");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn write(&self, file: &str, content: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join(file), content).expect("written");
    }

    /// Creates `key.pem`, and returns the public key.
    fn make_key(&self, kind: &str) -> Vec<u8> {
        self.run(&format!("genpkey {kind} -out key.pem"));
        self.run("pkey -in key.pem -pubout")
    }

    /// Signs in the form of JWS: for ECDSA two numbers of fixed length (RFC 7518 section 3.4) instead of DER.
    fn signature(&self, algorithm: &str, message: &str) -> Vec<u8> {
        self.write("message", message);
        let bits = &algorithm[algorithm.len() - 3..];
        let dgst = format!("dgst -sha{bits} -binary");
        match &algorithm[..2] {
            "RS" => self.run(&format!("{dgst} -sign key.pem message")),
            "PS" => self.run(&format!(
                "{dgst} -sign key.pem -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:digest message"
            )),
            "ES" => {
                let number = match bits {
                    "256" => 32,
                    "384" => 48,
                    _ => 66,
                };
                as_two_numbers(&self.run(&format!("{dgst} -sign key.pem message")), number)
            }
            "HS" => {
                let hex: String = SECRET.iter().map(|byte| format!("{byte:02x}")).collect();
                self.run(&format!("{dgst} -mac HMAC -macopt hexkey:{hex} message"))
            }
            _ => self.run("pkeyutl -sign -rawin -inkey key.pem -in message"),
        }
    }

    fn sign(&self, algorithm: &str, header: &str, payload: &str) -> String {
        let message = format!("{}.{}", segment(header), segment(payload));
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(self.signature(algorithm, &message)))
    }
}

/// Reads SEQUENCE { INTEGER r, INTEGER s }. The lengths have one byte, or two if the curve is P-521.
fn as_two_numbers(der: &[u8], len: usize) -> Vec<u8> {
    let mut rest = if der[1] == 0x81 { &der[3..] } else { &der[2..] };
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let number = &rest[2..2 + usize::from(rest[1])];
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let digits = &number[zeros..];
        numbers.extend(vec![0; len - digits.len()]);
        numbers.extend(digits);
        rest = &rest[2 + number.len()..];
    }
    numbers
}

/// Returns two numbers as DER, the inverse of [`as_two_numbers`].
fn as_der(signature: &[u8]) -> Vec<u8> {
    let (r, s) = signature.split_at(signature.len() / 2);
    let integer = |number: &[u8]| {
        let digits = &number[number.iter().take_while(|byte| **byte == 0).count()..];
        let sign = if digits.first().is_some_and(|byte| *byte > 0x7f) { vec![0] } else { Vec::new() };
        let content = [sign, digits.to_vec()].concat();
        [vec![2, content.len() as u8], content].concat()
    };
    let content = [integer(r), integer(s)].concat();
    [vec![0x30, content.len() as u8], content].concat()
}

fn kind(algorithm: Algorithm) -> &'static str {
    match &name(algorithm)[..4] {
        "ES25" => "-algorithm EC -pkeyopt ec_paramgen_curve:P-256",
        "ES38" => "-algorithm EC -pkeyopt ec_paramgen_curve:P-384",
        "EdDS" => "-algorithm ed25519",
        _ => "-algorithm RSA -pkeyopt rsa_keygen_bits:2048",
    }
}

/// Returns the payload, or the reason of the rejection.
fn verdict(token: &str, keys: &KeySet) -> Result<Vec<u8>, &'static str> {
    verify_signature(token, keys, StepReporter::OFF).map_err(|reject| reject.reason.code())
}

#[test]
fn openssl_signatures_verify_unless_the_token_is_changed() {
    for (name, algorithm) in ALGORITHMS {
        let openssl = Openssl::new();
        let keys = if name.starts_with("HS") {
            KeySet::from_secret(SECRET, &[*algorithm])
        } else {
            KeySet::from_pem(&openssl.make_key(kind(*algorithm)), &[*algorithm])
        };
        let keys = keys.expect("a key of OpenSSL");
        // RFC 7520 sections 4.1, 4.2 and 4.4; RFC 8037 appendix A.4.
        let token = openssl.sign(name, &json!({ "alg": name }).to_string(), PAYLOAD);
        assert_eq!(verdict(&token, &keys), Ok(PAYLOAD.as_bytes().to_vec()), "{name}");
        let (message, signature) = token.rsplit_once('.').expect("three segments");
        let (header, _) = message.split_once('.').expect("two segments");
        let another = format!("{header}.{}.{signature}", segment("another payload"));
        assert_eq!(verdict(&another, &keys), Err("bad_signature"), "{name}");
        // Section 4.5: detached content.
        assert_eq!(verdict(&format!("{header}..{signature}"), &keys), Err("bad_signature"), "{name}");
        // Sections 4.6 to 4.8: JSON serializations, flattened and general, with unsigned members.
        let payload = segment(PAYLOAD);
        let flat = json!({ "payload": payload, "protected": header, "header": { "kid": "x" }, "signature": signature });
        let general = json!({ "payload": payload, "signatures": [{ "protected": header, "signature": signature }] });
        for form in [flat, general] {
            assert_eq!(verdict(&form.to_string(), &keys), Err("malformed_token"), "{name}");
        }
        // RFC 7797 section 4: an unencoded payload with a valid signature.
        let header = segment(json!({ "alg": name, "b64": false, "crit": ["b64"] }).to_string());
        let message = format!("{header}.not encoded");
        let signature = URL_SAFE_NO_PAD.encode(openssl.signature(name, &message));
        assert_eq!(verdict(&format!("{message}.{signature}"), &keys), Err("forbidden_header"), "{name}");
    }
}

/// RFC 7520 section 4.3: ES512 over P-521, which the gateway does not support.
#[test]
fn an_unsupported_curve_and_its_algorithm_are_rejected() {
    let openssl = Openssl::new();
    let public = openssl.make_key("-algorithm EC -pkeyopt ec_paramgen_curve:P-521");
    let all: Vec<Algorithm> = ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).collect();
    for algorithm in all.iter().filter(|algorithm| name(**algorithm).starts_with("ES")) {
        assert!(KeySet::from_pem(&public, &[*algorithm]).is_err(), "{algorithm:?}");
    }
    let token = openssl.sign("ES512", r#"{"alg":"ES512"}"#, PAYLOAD);
    let keys = KeySet::from_secret(SECRET, &[Algorithm::HS256]).expect("a key set");
    assert_eq!(verdict(&token, &keys), Err("algorithm_not_allowed"));
}

#[test]
fn openssl_verifies_the_signatures_of_the_gateway() {
    for algorithm in SIGNING {
        let openssl = Openssl::new();
        let pem = generate_pem(*algorithm).expect("a key");
        openssl.write("key.pem", pem.expose());
        openssl.run("pkey -in key.pem -pubout -out public.pem");
        let key = SigningKey::from_pem(pem.expose(), *algorithm).expect("a key of the gateway");
        let token = key.sign(&Map::new()).expect("a token");
        let (message, signature) = token.rsplit_once('.').expect("three segments");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
        let is_ecdsa = name(*algorithm).starts_with("ES");
        openssl.write("message", message);
        openssl.write("signature", if is_ecdsa { as_der(&signature) } else { signature });
        match algorithm {
            Algorithm::EdDSA => {
                openssl.run("pkeyutl -verify -rawin -pubin -inkey public.pem -in message -sigfile signature")
            }
            _ => {
                let bits = &name(*algorithm)[2..];
                openssl.run(&format!("dgst -sha{bits} -verify public.pem -signature signature message"))
            }
        };
    }
}
