//! One public key from PEM: `PUBLIC KEY`, `RSA PUBLIC KEY`, or the key of a certificate.

use jsonwebtoken::DecodingKey;

use super::admission::Material;

/// Of a certificate only the key counts: who signed it and until when are not asked, as nobody presents it here. Of
/// several, it is the first, the leaf of a chain.
pub(super) fn read(pem: &[u8]) -> Result<Material, String> {
    let labels = labels(pem);
    if labels.iter().any(|label| label.ends_with("PRIVATE KEY")) {
        return Err("this is a private key, which has no business here; expected its public key".into());
    }
    if labels.len() > 1 && !labels.iter().all(|label| label == "CERTIFICATE") {
        return Err("there are several keys in one PEM file; a JWKS can hold several, each with its kid".into());
    }
    if let Some(key) = key_bytes(DecodingKey::from_ed_pem(pem)) {
        return Ok(Material::Ed25519(key));
    }
    if let Some(point) = key_bytes(DecodingKey::from_ec_pem(pem)) {
        // An uncompressed point: 04 and two coordinates.
        return match point.len() {
            65 => Ok(Material::P256(point)),
            97 => Ok(Material::P384(point)),
            _ => Err("the curve is neither P-256 nor P-384".into()),
        };
    }
    let rsa = key_bytes(DecodingKey::from_rsa_pem(pem)).ok_or("this is not a PEM public key (BEGIN PUBLIC KEY)")?;
    let (modulus, exponent) = rsa_numbers(&rsa).ok_or("the RSA key in this PEM cannot be read")?;
    Ok(Material::rsa(modulus, exponent))
}

fn key_bytes(key: jsonwebtoken::errors::Result<DecodingKey>) -> Option<Vec<u8>> {
    Some(key.ok()?.try_get_as_bytes().ok()?.to_vec())
}

/// What stands between `-----BEGIN ` and `-----`.
fn labels(pem: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(pem);
    let begun = text.split("-----BEGIN ").skip(1);
    begun.filter_map(|rest| Some(rest.split_once("-----")?.0.to_owned())).collect()
}

/// Modulus and exponent of a PKCS#1 `RSAPublicKey`: a SEQUENCE of two INTEGERs.
fn rsa_numbers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (sequence, _) = der_element(der, 0x30)?;
    let (modulus, rest) = der_element(sequence, 0x02)?;
    let (exponent, _) = der_element(rest, 0x02)?;
    Some((modulus, exponent))
}

/// The content of the DER element that `der` begins with, if it has this tag, and what comes after it.
fn der_element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, len], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    if len < 0x80 {
        return rest.split_at_checked(usize::from(len));
    }
    let (len_bytes, rest) = rest.split_at_checked(usize::from(len & 0x7f))?;
    let len = len_bytes.iter().try_fold(0usize, |len, byte| len.checked_mul(256)?.checked_add(usize::from(*byte)))?;
    rest.split_at_checked(len)
}
