//! The kind of a key that the gateway cannot use.

use std::path::Path;

use rustls::pki_types::PrivateKeyDer;

use crate::config::document::error::ConfigError;
use crate::types::der::{INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, element};

/// rsaEncryption, 1.2.840.113549.1.1.1 (RFC 8017 appendix A.1).
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// Maximum and minimum size of an RSA key in bits, as aws-lc has them.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Returns true for an encrypted private key: PKCS#8 has a label of its own, and the older formats name the cipher in
/// a header (RFC 1421 section 4.6.1.1).
pub(super) fn is_encrypted(pem: &[u8]) -> bool {
    let contains = |text: &[u8]| pem.windows(text.len()).any(|window| window == text);
    contains(b"BEGIN ENCRYPTED P") || contains(b"Proc-Type: 4,ENCRYPTED")
}

/// Why TLS cannot use this key.
pub(super) fn unusable(key: &PrivateKeyDer<'_>, path: &Path) -> ConfigError {
    let shown = path.display();
    match rsa_bits(key).filter(|bits| !RSA_BITS.contains(bits)) {
        Some(bits) => {
            let (min, max) = RSA_BITS.into_inner();
            let message = format!("the RSA key in {shown} has {bits} bits");
            ConfigError::new(message, format!("expected {min} to {max} bits, ECDSA or Ed25519"))
                .help("create a key: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out new.key")
        }
        None => {
            let message = format!("the key in {shown} has an unsupported type");
            ConfigError::new(message, "expected RSA, ECDSA or Ed25519")
        }
    }
}

/// The size of the modulus. `None` if it is no RSA key.
fn rsa_bits(key: &PrivateKeyDer<'_>) -> Option<usize> {
    let modulus = match key {
        PrivateKeyDer::Pkcs1(key) => modulus(key.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(key) => modulus(rsa_in_pkcs8(key.secret_pkcs8_der())?),
        _ => None,
    }?;
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let number = &modulus[zeros..];
    number.first().map(|first| number.len() * 8 - first.leading_zeros() as usize)
}

/// The key inside a `PrivateKeyInfo` (RFC 5208 section 5), if it is an RSA key.
fn rsa_in_pkcs8(der: &[u8]) -> Option<&[u8]> {
    let (info, _) = element(der, SEQUENCE)?;
    let (_version, rest) = element(info, INTEGER)?;
    let (algorithm, rest) = element(rest, SEQUENCE)?;
    let (identifier, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    let (key, _) = element(rest, OCTET_STRING)?;
    (identifier == RSA).then_some(key)
}

/// The modulus of an `RSAPrivateKey` (RFC 8017 appendix A.1.2).
fn modulus(der: &[u8]) -> Option<&[u8]> {
    let (key, _) = element(der, SEQUENCE)?;
    let (_version, rest) = element(key, INTEGER)?;
    element(rest, INTEGER).map(|(modulus, _)| modulus)
}
