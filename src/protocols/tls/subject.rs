//! The subject of a certificate as text (RFC 4514): an unambiguous form, in which equal texts are equal subjects.

use std::fmt::Write;

use super::description::{subject, text};
use crate::types::der::{OBJECT_IDENTIFIER, elements};

/// The attributes with a name of their own (RFC 4514 section 3).
pub(super) const NAMED: [(&[u8], &str); 9] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 9], "STREET"),
    // 0.9.2342.19200300.100.1.25 and .1
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
];

/// UTF8String, PrintableString, TeletexString, IA5String, UniversalString, BMPString. The value of another type is
/// written in hexadecimal.
const STRINGS: [u8; 6] = [0x0c, 0x13, 0x14, 0x16, 0x1c, 0x1e];

/// The subject of a certificate in DER, such as `CN=orders,O=Example`: the last attribute of the certificate first (RFC
/// 4514 section 2.1). Empty if there is none, as in a certificate that has only other names.
pub(super) fn subject_text(certificate: &[u8]) -> String {
    let mut sets: Vec<String> = subject(certificate).map(attributes).collect();
    sets.reverse();
    sets.join(",")
}

/// The attributes of one set. Nearly always there is one.
fn attributes(set: &[u8]) -> String {
    let attributes = elements(set).map(|(_, attribute)| {
        let mut parts = elements(attribute);
        let kind = parts.next().filter(|(tag, _)| *tag == OBJECT_IDENTIFIER).map_or(&[][..], |(_, kind)| kind);
        let (tag, value) = parts.next().unwrap_or((0, &[]));
        let named = NAMED.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name);
        match named {
            Some(name) if STRINGS.contains(&tag) => format!("{name}={}", escape(&text(tag, value))),
            _ => {
                let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{}=#{tag:02x}{digits}", dotted(kind))
            }
        }
    });
    attributes.collect::<Vec<_>>().join("+")
}

/// RFC 4514 section 2.4. Control characters are escaped too.
pub(super) fn escape(value: &str) -> String {
    let last = value.chars().count().saturating_sub(1);
    let mut escaped = String::with_capacity(value.len());
    for (place, character) in value.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => escaped.extend(['\\', character]),
            '#' if place == 0 => escaped.push_str("\\#"),
            ' ' if place == 0 || place == last => escaped.push_str("\\ "),
            _ if character.is_control() => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    // Writing to a string cannot fail.
                    let _ = write!(escaped, "\\{byte:02x}");
                }
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

/// An object identifier as numbers. Numbers that are too large become the largest one.
fn dotted(identifier: &[u8]) -> String {
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for byte in identifier {
        number = number.saturating_mul(128).saturating_add(u64::from(byte & 0x7f));
        if byte & 0x80 == 0 {
            // The first two numbers are one (X.690 section 8.19.4).
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= 40 * first;
            }
            numbers.push(number);
            number = 0;
        }
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn subject_of(attributes: &[(DnType, &str)]) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let certificate = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
        subject_text(certificate.der())
    }

    #[test]
    fn a_value_cannot_become_another_attribute() {
        let named = |name: &str| subject_of(&[(DnType::OrganizationName, "Example"), (DnType::CommonName, name)]);
        for (name, expected) in [
            ("orders", "CN=orders,O=Example"),
            ("orders,O=Other", "CN=orders\\,O\\=Other,O=Example"),
            ("a+b", "CN=a\\+b,O=Example"),
            (" #a ", "CN=\\ #a\\ ,O=Example"),
            ("#a", "CN=\\#a,O=Example"),
            ("a\\\"<>;", "CN=a\\\\\\\"\\<\\>\\;,O=Example"),
            ("a\0\r\nb", "CN=a\\00\\0d\\0ab,O=Example"),
            ("Zoë", "CN=Zoë,O=Example"),
        ] {
            assert_eq!(named(name), expected, "{name:?}");
        }
    }

    #[test]
    fn an_attribute_without_a_name_is_written_by_its_number() {
        // serialNumber, and an attribute of an enterprise.
        assert_eq!(subject_of(&[(DnType::CustomDnType(vec![2, 5, 4, 5]), "7")]), "2.5.4.5=#0c37");
        assert_eq!(
            subject_of(&[(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 311, 2]), "a")]),
            "1.3.6.1.4.1.311.2=#0c61"
        );
        assert_eq!(subject_of(&[]), "");
        assert_eq!(dotted(&[0x88, 0x37]), "2.999");
    }
}
