//! How many sections of PEM (RFC 7468) begin in a text, so that a reader notices that it has lost one.
//!
//! Parsers find a section only at the start of a line, and skip all other text. After `cat a.pem b.pem`, the second
//! section begins in the last line of the first if that has no line break. A byte order mark hides a first section.

use std::error::Error;
use std::fmt;

const BEGIN: &[u8] = b"-----BEGIN ";
const DASHES: &[u8] = b"-----";

/// Sections that begin in a text and were not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSections {
    label: &'static str,
    begun: usize,
    read: usize,
}

impl fmt::Display for LostSections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    let begun = begun(text, label);
    if begun > read { Err(LostSections { label, begun, read }) } else { Ok(()) }
}

/// Returns true if a private key begins in this text, whatever its type is.
pub fn has_private_key(text: &[u8]) -> bool {
    begun(text, "PRIVATE KEY") > 0
}

/// The sections with a label that ends with `label`, wherever in a line they begin. Comments have none.
fn begun(text: &[u8], label: &str) -> usize {
    let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.filter(|line| !line.trim_ascii_start().starts_with(b"#")).map(|line| begun_in(line, label.as_bytes())).sum()
}

fn begun_in(line: &[u8], label: &[u8]) -> usize {
    let begins = (0..line.len()).filter_map(|at| line[at..].strip_prefix(BEGIN));
    let labels = begins.map(|rest| rest.windows(DASHES.len()).position(|part| part == DASHES).map(|end| &rest[..end]));
    labels.flatten().filter(|found| found.ends_with(label)).count()
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
            assert_eq!(begun(text.as_bytes(), "CERTIFICATE"), expected, "{text}");
        }
        assert!(has_private_key(b"x-----BEGIN RSA PRIVATE KEY-----"));
        let lost = check_count(format!("{section}{section}").as_bytes(), "CERTIFICATE", 1).expect_err("one is lost");
        assert!(lost.to_string().starts_with("2 sections with the label CERTIFICATE"), "{lost}");
    }
}
