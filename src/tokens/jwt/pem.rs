//! PEM (RFC 7468): a public key, or the public key of a certificate.

use rustls_pki_types::pem::{PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, alg_id};

use super::der;
use super::key_error::KeyError;
use super::key_material::KeyMaterial;
use crate::types::der::{SEQUENCE, element};
use crate::types::pem::check_count;

type Section = (SectionKind, Vec<u8>);

/// The key of `BEGIN PUBLIC KEY`, `BEGIN RSA PUBLIC KEY` or the first `BEGIN CERTIFICATE`, the leaf of a chain.
///
/// Only the key of a certificate is used. Its signature and its dates are not checked, because no client presents it.
pub(super) fn read(pem: &[u8]) -> Result<KeyMaterial, KeyError> {
    let text = String::from_utf8_lossy(pem);
    // Also an encrypted private key, which the parser would skip.
    if text.contains("PRIVATE KEY-----") {
        return Err(KeyError::PrivateKey);
    }
    // The parser does not know the label of PKCS#1. `public_key` tells the two formats apart by their content.
    let text = text.replace("RSA PUBLIC KEY-----", "PUBLIC KEY-----");
    let sections = Section::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let sections = sections.map_err(|_| KeyError::NotPem)?;
    for (label, kind) in [("PUBLIC KEY", SectionKind::PublicKey), ("CERTIFICATE", SectionKind::Certificate)] {
        let read = sections.iter().filter(|(read, _)| *read == kind).count();
        check_count(text.as_bytes(), label, read).map_err(KeyError::LostPemSections)?;
    }
    if sections.len() > 1 && sections.iter().any(|(kind, _)| *kind != SectionKind::Certificate) {
        return Err(KeyError::SeveralPemKeys);
    }
    match sections.into_iter().next() {
        Some((SectionKind::PublicKey, der)) => public_key(&der),
        Some((SectionKind::Certificate, der)) => certificate_key(&CertificateDer::from(der)),
        _ => Err(KeyError::NotPem),
    }
}

fn certificate_key(certificate: &CertificateDer<'_>) -> Result<KeyMaterial, KeyError> {
    let anchor = webpki::anchor_from_trusted_cert(certificate).map_err(|_| KeyError::NotPem)?;
    public_key_info(&anchor.subject_public_key_info)
}

fn public_key(der: &[u8]) -> Result<KeyMaterial, KeyError> {
    if der::rsa_public_key(der).is_some() {
        return rsa(der);
    }
    let (info, _) = element(der, SEQUENCE).ok_or(KeyError::NotPem)?;
    public_key_info(info)
}

fn public_key_info(content: &[u8]) -> Result<KeyMaterial, KeyError> {
    const P256_POINT: usize = 65;
    const P384_POINT: usize = 97;
    let (algorithm, key) = der::public_key_info(content).ok_or(KeyError::NotPem)?;
    if algorithm == &*alg_id::RSA_ENCRYPTION {
        return rsa(key);
    }
    if algorithm == &*alg_id::ED25519 {
        return Ok(KeyMaterial::Ed25519(key.to_vec()));
    }
    // Only uncompressed points: the same key in two forms would have two fingerprints.
    if algorithm == &*alg_id::ECDSA_P256 && key.len() == P256_POINT {
        return Ok(KeyMaterial::P256(key.to_vec()));
    }
    if algorithm == &*alg_id::ECDSA_P384 && key.len() == P384_POINT {
        return Ok(KeyMaterial::P384(key.to_vec()));
    }
    Err(KeyError::UnsupportedPemKey)
}

fn rsa(der: &[u8]) -> Result<KeyMaterial, KeyError> {
    let (modulus, exponent) = der::rsa_public_key(der).ok_or(KeyError::NotPem)?;
    Ok(KeyMaterial::rsa(modulus, exponent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::der::BIT_STRING;

    /// The content of a `SubjectPublicKeyInfo`. Everything in it is shorter than 128 bytes.
    fn info(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
        let len = |part: &[u8]| u8::try_from(part.len()).expect("short");
        [&[SEQUENCE, len(algorithm)], algorithm, &[BIT_STRING, len(key) + 1, 0], key].concat()
    }

    #[test]
    fn a_key_of_a_curve_is_an_uncompressed_point_of_it() {
        let p256 = &*alg_id::ECDSA_P256;
        let p384 = &*alg_id::ECDSA_P384;
        for (algorithm, len, expected) in [
            (p256, 65, Some("P-256")),
            (p384, 97, Some("P-384")),
            (&*alg_id::ED25519, 32, Some("Ed25519")),
            (p256, 33, None),
            (p256, 97, None),
            (p384, 49, None),
            (p384, 65, None),
            (&*alg_id::ECDSA_P521, 65, None),
            (&*alg_id::ECDSA_P521, 97, None),
        ] {
            let found = match public_key_info(&info(algorithm, &vec![4; len])) {
                Ok(KeyMaterial::P256(_)) => Some("P-256"),
                Ok(KeyMaterial::P384(_)) => Some("P-384"),
                Ok(KeyMaterial::Ed25519(_)) => Some("Ed25519"),
                Ok(_) => Some("another"),
                Err(_) => None,
            };
            assert_eq!(found, expected, "{algorithm:02x?} {len}");
        }
    }
}
