//! The description of a certificate for operators: its names, who issued it, and when it expires.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::types::der::{OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, element, elements};

/// An active certificate of a listener. Of a chain, the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// `acme:` and its name for a certificate of an ACME server.
    pub file: PathBuf,
    /// DNS names, IP addresses and URIs in `subjectAltName`.
    pub names: Vec<String>,
    /// Such as `O=Example, CN=Example CA 1`.
    pub issuer: String,
    /// When it begins, in Unix seconds.
    pub not_before: u64,
    /// When it expires, in Unix seconds.
    pub not_after: u64,
}

/// 2.5.29.17 (RFC 5280 section 4.2.1.6).
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// The tags of the fields of a certificate that are optional (RFC 5280 section 4.1).
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// The tags of `GeneralName`.
pub(super) const EMAIL: u8 = 0x81;
pub(super) const DNS_NAME: u8 = 0x82;
pub(super) const URI: u8 = 0x86;
pub(super) const IP_ADDRESS: u8 = 0x87;
const BMP_STRING: u8 = 0x1e;

/// The types of names that issuers have (RFC 4514 section 3); 2.5.4.x.
const ATTRIBUTES: [(u8, &str); 6] = [(3, "CN"), (6, "C"), (7, "L"), (8, "ST"), (10, "O"), (11, "OU")];

/// The names in a certificate in DER. Empty if it has none.
pub(super) fn names(certificate: &[u8]) -> Vec<String> {
    alternative_names(certificate).filter_map(|(tag, name)| general_name(tag, name)).collect()
}

/// The tags and contents of `subjectAltName`.
pub(super) fn alternative_names(certificate: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let value = extension(certificate, SUBJECT_ALT_NAME);
    elements(value.and_then(|value| element(value, SEQUENCE)).map_or(&[][..], |(names, _)| names))
}

/// The content of an extension.
pub(super) fn extension<'c>(certificate: &'c [u8], id: &[u8]) -> Option<&'c [u8]> {
    let (_, extensions) = signed_fields(certificate).find(|(tag, _)| *tag == EXTENSIONS)?;
    let (extensions, _) = element(extensions, SEQUENCE)?;
    let has_id = |extension: &&[u8]| element(extension, OBJECT_IDENTIFIER).is_some_and(|(found, _)| found == id);
    let found = elements(extensions).map(|(_, extension)| extension).find(has_id)?;
    elements(found).find(|(tag, _)| *tag == OCTET_STRING).map(|(_, value)| value)
}

/// The content of the serial number, with its leading zero if it has one.
pub(super) fn serial(certificate: &[u8]) -> Option<&[u8]> {
    Some(signed_field(certificate, 0)).filter(|serial| !serial.is_empty())
}

fn general_name(tag: u8, name: &[u8]) -> Option<String> {
    match tag {
        DNS_NAME | URI => Some(String::from_utf8_lossy(name).into_owned()),
        IP_ADDRESS => ip_address(name).map(|address| address.to_string()),
        _ => None,
    }
}

pub(super) fn ip_address(name: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(name).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(name).ok().map(IpAddr::from))
}

/// Who issued a certificate in DER, in the order of the certificate.
pub(super) fn issuer(certificate: &[u8]) -> String {
    // After the serial number and the algorithm.
    let name = signed_field(certificate, 2);
    let attributes = elements(name).flat_map(|(_, set)| elements(set)).filter_map(|(_, attribute)| {
        let mut parts = elements(attribute);
        let ((_, kind), (tag, value)) = (parts.next()?, parts.next()?);
        Some(format!("{}={}", attribute_name(kind), text(tag, value)))
    });
    attributes.collect::<Vec<_>>().join(", ")
}

fn attribute_name(kind: &[u8]) -> &'static str {
    let [0x55, 0x04, number] = kind else { return "other" };
    ATTRIBUTES.iter().find(|(known, _)| known == number).map_or("other", |(_, name)| name)
}

pub(super) fn text(tag: u8, value: &[u8]) -> String {
    match tag {
        BMP_STRING => {
            let units: Vec<u16> = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16_lossy(&units)
        }
        _ => String::from_utf8_lossy(value).into_owned(),
    }
}

/// `notBefore` and `notAfter` (RFC 5280 section 4.1.2.5), with their tags.
pub(super) fn validity(certificate: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    elements(signed_field(certificate, 3))
}

/// The attributes of the subject: sets of them.
pub(super) fn subject(certificate: &[u8]) -> impl Iterator<Item = &[u8]> {
    elements(signed_field(certificate, 4)).map(|(_, set)| set)
}

/// A field after the version, which is optional. The serial number is the first.
fn signed_field(certificate: &[u8], place: usize) -> &[u8] {
    let mut fields = signed_fields(certificate).filter(|(tag, _)| *tag != VERSION);
    fields.nth(place).map_or(&[][..], |(_, content)| content)
}

/// Certificate ::= SEQUENCE { tbsCertificate SEQUENCE { … }, … }
fn signed_fields(certificate: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let certificate = element(certificate, SEQUENCE).map_or(&[][..], |(fields, _)| fields);
    elements(element(certificate, SEQUENCE).map_or(&[][..], |(signed, _)| signed))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, DnValue, IsCa, Issuer, KeyPair, SanType};

    use super::*;

    fn key() -> KeyPair {
        KeyPair::generate().expect("a key")
    }

    /// A certificate for these names, signed by an authority with this name.
    fn signed_by(names: Vec<SanType>, authority: &[(DnType, DnValue)]) -> Vec<u8> {
        let mut of_authority = CertificateParams::default();
        of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        of_authority.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in authority {
            of_authority.distinguished_name.push(kind.clone(), value.clone());
        }
        let issuer = Issuer::new(of_authority, key());
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.signed_by(&key(), &issuer).expect("a certificate").der().to_vec()
    }

    #[test]
    fn names_and_issuer_are_those_of_the_certificate() {
        let dns = |name: &str| SanType::DnsName(name.try_into().expect("a name"));
        let ip = |text: &str| SanType::IpAddress(text.parse().expect("an address"));
        let uri = SanType::URI("spiffe://a/b".try_into().expect("a URI"));
        let names_of = vec![dns("*.example.com"), ip("192.0.2.7"), dns("example.com"), ip("2001:db8::1"), uri];
        let authority = [
            (DnType::CountryName, "DE".into()),
            (DnType::OrganizationName, "Müller & Söhne".into()),
            (DnType::CommonName, DnValue::BmpString("Straße".try_into().expect("characters"))),
        ];
        let certificate = signed_by(names_of, &authority);
        assert_eq!(names(&certificate), ["*.example.com", "192.0.2.7", "example.com", "2001:db8::1", "spiffe://a/b"]);
        assert_eq!(issuer(&certificate), "C=DE, O=Müller & Söhne, CN=Straße");
    }

    #[test]
    fn a_certificate_without_names_has_none() {
        let certificate = signed_by(Vec::new(), &[(DnType::CustomDnType(vec![1, 2, 3]), "x".into())]);
        assert_eq!((names(&certificate), issuer(&certificate).as_str()), (Vec::new(), "other=x"));
    }

    #[test]
    fn a_broken_certificate_does_not_panic() {
        let mut certificate = signed_by(vec![SanType::IpAddress([127, 0, 0, 1].into())], &[]);
        for at in 0..certificate.len() {
            let _ = (names(&certificate[..at]), issuer(&certificate[..at]));
            certificate[at] ^= 0xff;
            let _ = (names(&certificate), issuer(&certificate));
            certificate[at] ^= 0xff;
        }
    }
}
