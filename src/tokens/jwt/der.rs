//! The few DER structures (X.690) that surround a key.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const SEQUENCE: u8 = 0x30;

/// The content of the element that `der` begins with, if it has this tag, and the bytes after the element.
pub(super) fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, len], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    if len < 0x80 {
        return rest.split_at_checked(usize::from(len));
    }
    let (len_bytes, rest) = rest.split_at_checked(usize::from(len & 0x7f)).filter(|(len, _)| !len.is_empty())?;
    let len = len_bytes.iter().try_fold(0usize, |len, byte| len.checked_mul(256)?.checked_add(usize::from(*byte)))?;
    rest.split_at_checked(len)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_has_one_byte_below_128_and_more_from_there_on() {
        let of = |head: &[u8], len: usize| [&[SEQUENCE], head, &vec![7; len]].concat();
        for (der, expected) in [
            (of(&[0], 0), Some(0)),
            (of(&[0x7f], 127), Some(127)),
            (of(&[0x81, 0x80], 128), Some(128)),
            (of(&[0x82, 1, 0], 256), Some(256)),
            // The indefinite form of BER, which DER does not have.
            (of(&[0x80], 128), None),
            (of(&[0x7f], 126), None),
            (of(&[0x81], 0), None),
        ] {
            let found = element(&der, SEQUENCE).map(|(content, rest)| (content.len(), rest.len()));
            assert_eq!(found, expected.map(|len| (len, 0)), "{:02x?}", &der[..2]);
        }
        assert_eq!(element(&of(&[0], 0), INTEGER), None);
    }
}
