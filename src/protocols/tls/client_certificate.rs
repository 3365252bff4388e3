//! The names in a client certificate. Pure.

use std::fmt;
use std::net::IpAddr;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::CertificateDer;

use super::description::{DNS_NAME, EMAIL, IP_ADDRESS, URI, alternative_names, ip_address};
use super::subject::subject_text;
use super::validity::validity_of;
use crate::types::clock::UnixTime;

/// The certificate of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// SHA-256 of the certificate in DER (RFC 8705 section 3.1).
    pub thumbprint: [u8; 32],
    /// In the form of RFC 4514. Empty if the certificate has only other names.
    pub subject: String,
    pub names: Vec<Name>,
    /// `SubjectPublicKeyInfo` in DER.
    pub public_key: Vec<u8>,
    pub not_before: UnixTime,
    pub not_after: UnixTime,
    /// If true, an authority that the operator trusts has signed it. Otherwise it proves only that the client has the
    /// private key, and it can have any name.
    pub is_verified: bool,
}

/// A name in `subjectAltName`. Names of different types are never equal (CVE-2021-44532).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// In lower case.
    Dns(String),
    Uri(String),
    Ip(IpAddr),
    Email(String),
}

impl ClientCertificate {
    /// `None` if it is no certificate that TLS could use.
    pub fn parse(certificate: &CertificateDer<'_>, is_verified: bool) -> Option<Self> {
        let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
        let valid = validity_of(certificate)?;
        let mut thumbprint = [0; 32];
        thumbprint.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Some(ClientCertificate {
            thumbprint,
            subject: subject_text(certificate),
            names: alternative_names(certificate).filter_map(|(tag, name)| Name::read(tag, name)).collect(),
            public_key: parsed.subject_public_key_info().to_vec(),
            not_before: *valid.start(),
            not_after: *valid.end(),
            is_verified,
        })
    }

    /// Returns true from `notBefore` to `notAfter`, both included (RFC 5280 section 4.1.2.5).
    pub fn is_in_time(&self, now: UnixTime) -> bool {
        self.not_before <= now && now.as_secs() <= self.not_after.as_secs()
    }

    /// The thumbprint as `cnf` of a token has it.
    pub fn thumbprint_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.thumbprint)
    }
}

impl Name {
    /// `None` for other types, and for a name that programs could read in different ways: with a NUL, a space or
    /// letters that are not ASCII (CVE-2025-66220). A wildcard is the name of no client (CVE-2020-15104).
    fn read(tag: u8, name: &[u8]) -> Option<Self> {
        if tag == IP_ADDRESS {
            return ip_address(name).map(Name::Ip);
        }
        let text = std::str::from_utf8(name).ok()?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        match tag {
            DNS_NAME if !text.contains('*') => Some(Name::Dns(text.to_ascii_lowercase())),
            URI => Some(Name::Uri(text.to_owned())),
            EMAIL => Some(Name::Email(text.to_owned())),
            _ => None,
        }
    }

    pub fn dns(&self) -> Option<String> {
        if let Name::Dns(name) = self { Some(name.clone()) } else { None }
    }

    pub fn uri(&self) -> Option<String> {
        if let Name::Uri(name) = self { Some(name.clone()) } else { None }
    }

    pub fn ip(&self) -> Option<String> {
        if let Name::Ip(address) = self { Some(address.to_string()) } else { None }
    }

    pub fn email(&self) -> Option<String> {
        if let Name::Email(name) = self { Some(name.clone()) } else { None }
    }

    /// Parses `dns:`, `uri:`, `ip:` or `email:` and a name.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        match kind {
            "dns" => Name::read(DNS_NAME, name.as_bytes()),
            "uri" => Name::read(URI, name.as_bytes()),
            "email" => Name::read(EMAIL, name.as_bytes()),
            "ip" => name.parse().ok().map(Name::Ip),
            _ => None,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Dns(name) => write!(f, "dns:{name}"),
            Name::Uri(name) => write!(f, "uri:{name}"),
            Name::Ip(address) => write!(f, "ip:{address}"),
            Name::Email(name) => write!(f, "email:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(names: Vec<SanType>) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(9999, 12, 31);
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().clone()
    }

    #[test]
    fn names_keep_their_types() {
        let text = |text: &str| Ia5String::try_from(text).expect("text");
        let names = vec![
            SanType::DnsName(text("Orders.Example")),
            SanType::DnsName(text("*.example")),
            SanType::DnsName(text("a\0.example")),
            SanType::DnsName(text("a b")),
            SanType::URI(text("spiffe://example/orders")),
            SanType::URI(text("dns:other")),
            SanType::Rfc822Name(text("Orders@Example")),
            SanType::IpAddress([192, 0, 2, 1].into()),
        ];
        let der = certificate(names);
        let read = ClientCertificate::parse(&der, false).expect("a certificate");
        let shown: Vec<_> = read.names.iter().map(Name::to_string).collect();
        let expected = [
            "dns:orders.example",
            "uri:spiffe://example/orders",
            "uri:dns:other",
            "email:Orders@Example",
            "ip:192.0.2.1",
        ];
        assert_eq!(shown, expected);
        assert_eq!(shown.iter().filter_map(|name| Name::parse(name)).collect::<Vec<_>>(), read.names);
        for wrong in ["orders", "dns:", "dns:*.example", "DNS:orders", "ip:orders", "cn:orders", "dns:a b"] {
            assert_eq!(Name::parse(wrong), None, "{wrong}");
        }
        for end in 0..der.len() {
            assert_eq!(ClientCertificate::parse(&CertificateDer::from(&der[..end]), true), None);
        }
    }

    #[test]
    fn a_certificate_is_good_from_its_first_second_to_its_last() {
        let read = ClientCertificate::parse(&certificate(Vec::new()), true).expect("a certificate");
        let first = 1_577_836_800;
        let last = 253_402_214_400;
        for (now, expected) in [(first - 1, false), (first, true), (last, true), (last + 1, false)] {
            assert_eq!(read.is_in_time(UnixTime::from_secs(now)), expected, "{now}");
        }
        assert!(read.names.is_empty() && read.thumbprint_text().len() == 43);
    }
}
