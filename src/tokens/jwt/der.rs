//! The few DER structures (X.690) that surround a key.

use crate::types::der::{BIT_STRING, INTEGER, OCTET_STRING, SEQUENCE, element};

/// Modulus and exponent of a PKCS#1 `RSAPublicKey` (RFC 8017 appendix A.1.1).
pub(super) fn rsa_public_key(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (sequence, _) = element(der, SEQUENCE)?;
    let (modulus, rest) = element(sequence, INTEGER)?;
    let (exponent, _) = element(rest, INTEGER)?;
    Some((modulus, exponent))
}

/// Algorithm and key of the content of a `SubjectPublicKeyInfo` (RFC 5280 section 4.1). Both are returned without their
/// own tag and length.
pub(super) fn public_key_info(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let (algorithm, rest) = element(content, SEQUENCE)?;
    let (bits, _) = element(rest, BIT_STRING)?;
    // The first byte counts the unused bits at the end; a key has none.
    let key = bits.strip_prefix(&[0])?;
    Some((algorithm, key))
}

/// The key inside a PKCS#8 `PrivateKeyInfo` (RFC 5208 section 5).
pub(super) fn pkcs8_key(der: &[u8]) -> Option<&[u8]> {
    let (info, _) = element(der, SEQUENCE)?;
    let (_version, rest) = element(info, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    element(rest, OCTET_STRING).map(|(key, _)| key)
}
