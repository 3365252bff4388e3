//! The count of the sections of PEM (RFC 7468) that begin in a text, so that a reader notices that it has lost one.
//!
//! Parsers find a section only at the start of a line, and skip all other text. After `cat a.pem b.pem`, the second
//! section begins in the last line of the first if that has no line break. A byte order mark hides a first section.

use std::error::Error;
use std::fmt;

const BEGIN: &[u8] = b"-----BEGIN ";
const DASHES: &[u8] = b"-----";

/// The labels that are read, by the end that they share with labels of other programs.
const READ: [(&str, &[&str]); 4] = [
    ("CERTIFICATE", &["CERTIFICATE"]),
    ("CRL", &["X509 CRL"]),
    ("PRIVATE KEY", &["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"]),
    ("PUBLIC KEY", &["PUBLIC KEY", "RSA PUBLIC KEY"]),
];

/// Longer labels are not named in a message. The longest one that OpenSSL knows has 21 bytes.
const MAX_LABEL: usize = 32;

/// Sections that begin in a text and were not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSections {
    label: &'static str,
    begun: usize,
    read: usize,
    /// The first label that is not read.
    other: Option<String>,
}

impl fmt::Display for LostSections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(other) = &self.other {
            let expected = labels_read(self.label).join(", ");
            return write!(f, "a section in this file has the label {other}; expected {expected}");
        }
        write!(
            f,
            "{} sections with the label {} begin in this file, and {} can be read; put each BEGIN and END line on a line \
             of its own, and remove a byte order mark (BOM)",
            self.begun, self.label, self.read
        )
    }
}

impl Error for LostSections {}

/// Fails if fewer than all sections with a label that ends with `label` were read.
pub fn check_count(text: &[u8], label: &'static str, read: usize) -> Result<(), LostSections> {
    let labels: Vec<_> = begun(text, label).collect();
    if labels.len() <= read {
        return Ok(());
    }
    let names = labels.iter().filter_map(|found| std::str::from_utf8(found).ok());
    let other = names.filter(|found| is_nameable(found)).find(|found| !labels_read(label).contains(found));
    Err(LostSections { label, begun: labels.len(), read, other: other.map(str::to_owned) })
}

/// Returns true if a private key begins in this text, whatever its type is.
pub fn has_private_key(text: &[u8]) -> bool {
    begun(text, "PRIVATE KEY").next().is_some()
}

/// All labels with this end that are read.
fn labels_read(end: &str) -> &'static [&'static str] {
    READ.iter().find(|(known, _)| *known == end).map_or(&[], |(_, labels)| *labels)
}

/// Returns true for the label of some program. A message does not quote other text: it may be a secret.
fn is_nameable(label: &str) -> bool {
    label.len() <= MAX_LABEL
        && label.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ')
}

/// The labels that end with `label`, wherever in a line their sections begin. Comments have none.
fn begun<'t>(text: &'t [u8], label: &'static str) -> impl Iterator<Item = &'t [u8]> {
    let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
    let lines = lines.filter(|line| !line.trim_ascii_start().starts_with(b"#"));
    lines.flat_map(labels_in).filter(move |found| found.ends_with(label.as_bytes()))
}

fn labels_in(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let begins = (0..line.len()).filter_map(move |at| line[at..].strip_prefix(BEGIN));
    begins.filter_map(|rest| rest.windows(DASHES.len()).position(|part| part == DASHES).map(|end| &rest[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_counted_wherever_in_a_line_it_begins() {
        let section = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----";
        for (text, expected) in [
            (String::new(), 0),
            (section.to_owned(), 1),
            (format!("{section}\n{section}\n"), 2),
            (format!("{section}{section}"), 2),
            (format!("\u{feff}{section}\r\n{section}"), 2),
            (format!("  {section}\n\t{section}"), 2),
            (section.replace('\n', "\r"), 1),
            (section.replace("CERT", "TRUSTED CERT"), 1),
            (section.replace("CERTIFICATE", "CERTIFICATE REQUEST"), 0),
            (section.replace("CERTIFICATE", "PRIVATE KEY"), 0),
            (format!("# {section}"), 0),
            ("-----BEGIN CERTIFICATE".to_owned(), 0),
        ] {
            assert_eq!(begun(text.as_bytes(), "CERTIFICATE").count(), expected, "{text}");
        }
        assert!(has_private_key(b"x-----BEGIN RSA PRIVATE KEY-----"));
        let lost = check_count(format!("{section}{section}").as_bytes(), "CERTIFICATE", 1).expect_err("one is lost");
        assert!(lost.to_string().starts_with("2 sections with the label CERTIFICATE"), "{lost}");
    }

    #[test]
    fn a_label_that_is_not_read_is_named() {
        for (found, label, named) in [
            ("X509 CERTIFICATE", "CERTIFICATE", "X509 CERTIFICATE; expected CERTIFICATE"),
            ("TRUSTED CERTIFICATE", "CERTIFICATE", "TRUSTED CERTIFICATE; expected CERTIFICATE"),
            ("CRL", "CRL", "CRL; expected X509 CRL"),
            (
                "ANY PRIVATE KEY",
                "PRIVATE KEY",
                "ANY PRIVATE KEY; expected PRIVATE KEY, RSA PRIVATE KEY, EC PRIVATE KEY",
            ),
            ("hunter2 CERTIFICATE", "CERTIFICATE", "1 sections with the label CERTIFICATE begin"),
        ] {
            let lost = check_count(format!("-----BEGIN {found}-----").as_bytes(), label, 0).expect_err("none is read");
            assert!(lost.to_string().contains(named), "{lost}");
        }
    }
}
