//! Channel binding: ties the password exchange of a protocol above TLS to the certificate of the server, so that a
//! proxy with another certificate cannot relay it.

use aws_lc_rs::digest::{SHA256, SHA384, SHA512, digest};

use crate::types::der::{OBJECT_IDENTIFIER, SEQUENCE, element};

/// The `tls-server-end-point` value of a certificate in DER (RFC 5929 section 4.1): its hash by the algorithm of its
/// signature, and SHA-256 in place of MD5 and SHA-1. `None` for Ed25519, which has no separate hash, and for RSA-PSS,
/// which has it in a parameter.
pub fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match signature_algorithm(certificate)? {
        // md5WithRSAEncryption, sha1WithRSAEncryption, sha256WithRSAEncryption: 1.2.840.113549.1.1.x
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04 | 0x05 | 0x0b] => &SHA256,
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c] => &SHA384,
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d] => &SHA512,
        // ecdsa-with-SHA1: 1.2.840.10045.4.1; ecdsa-with-SHA256 and so on: 1.2.840.10045.4.3.x
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02] => &SHA256,
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03] => &SHA384,
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04] => &SHA512,
        _ => return None,
    };
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

/// Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { OBJECT IDENTIFIER, … }, … }
/// (RFC 5280 section 4.1).
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (fields, _) = element(certificate, SEQUENCE)?;
    let (_, after_signed) = element(fields, SEQUENCE)?;
    let (algorithm, _) = element(after_signed, SEQUENCE)?;
    element(algorithm, OBJECT_IDENTIFIER).map(|(identifier, _)| identifier)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    use super::*;

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (algorithm, hash) in
            [(&PKCS_ECDSA_P256_SHA256, Some(&SHA256)), (&PKCS_ECDSA_P384_SHA384, Some(&SHA384)), (&PKCS_ED25519, None)]
        {
            let key = KeyPair::generate_for(algorithm).expect("a key");
            let params = CertificateParams::new(["db.example".to_owned()]).expect("parameters");
            let certificate = params.self_signed(&key).expect("a certificate");
            let expected = hash.map(|hash| digest(hash, certificate.der()).as_ref().to_vec());
            assert_eq!(server_end_point(certificate.der()), expected);
            for end in 0..certificate.der().len() {
                // A part of a certificate must not panic.
                let _ = server_end_point(&certificate.der()[..end]);
            }
        }
        assert_eq!(server_end_point(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
