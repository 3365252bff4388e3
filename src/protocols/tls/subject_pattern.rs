//! The subject that an operator expects, written as in RFC 4514. Pure.

use super::subject::{NAMED, escape};

/// The subject in the form of [`super::ClientCertificate::subject`], in which equal texts are equal subjects:
/// `cn=a, o=b` becomes `CN=a,O=b`. `None` if the text is no subject, or has an attribute that needs its number: such a
/// value is written as `2.5.4.5=#0c0137`.
pub fn canonical_subject(text: &str) -> Option<String> {
    let sets = split(text, ',').map(|set| {
        let attributes: Option<Vec<String>> = split(set, '+').map(attribute).collect();
        Some(attributes?.join("+"))
    });
    Some(sets.collect::<Option<Vec<_>>>()?.join(","))
}

/// The parts between separators that no backslash precedes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    text.split(move |character| {
        let splits = character == separator && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        splits
    })
}

fn attribute(text: &str) -> Option<String> {
    let (kind, value) = text.split_once('=')?;
    let kind = kind.trim();
    if let Some((_, name)) = NAMED.iter().find(|(_, name)| name.eq_ignore_ascii_case(kind)) {
        return Some(format!("{name}={}", escape(&unescape(value)?)));
    }
    let is_number = !kind.is_empty() && kind.split('.').all(|part| part.parse::<u64>().is_ok());
    let value = value.trim().strip_prefix('#')?.to_ascii_lowercase();
    let is_hex = value.len() >= 4 && value.len() % 2 == 0 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_number && is_hex).then(|| format!("{kind}=#{value}"))
}

/// A value without its escapes, and without spaces around it (RFC 4514 section 3).
fn unescape(text: &str) -> Option<String> {
    let text = text.trim_start_matches(' ');
    if text.starts_with('#') {
        return None;
    }
    let mut bytes = Vec::new();
    let mut rest = text.chars();
    // The length without spaces that no backslash precedes.
    let mut kept = 0;
    while let Some(character) = rest.next() {
        match character {
            '\\' => bytes.extend(escaped(&mut rest)?),
            // These stand only behind a backslash.
            '"' | ';' | '<' | '>' => return None,
            _ => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
        }
        kept = if character == ' ' { kept } else { bytes.len() };
    }
    bytes.truncate(kept);
    // What a certificate has instead of letters that cannot be read.
    String::from_utf8(bytes).ok().filter(|value| !value.is_empty() && !value.contains('\u{fffd}'))
}

/// One byte as two hexadecimal digits, or a character.
fn escaped(rest: &mut std::str::Chars<'_>) -> Option<Vec<u8>> {
    let first = rest.next()?;
    let Some(high) = first.to_digit(16) else {
        return matches!(first, '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' | '#' | ' ').then(|| vec![first as u8]);
    };
    let low = rest.next()?.to_digit(16)?;
    Some(vec![u8::try_from(high * 16 + low).ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_one_form() {
        for (text, expected) in [
            ("CN=orders,O=Example", Some("CN=orders,O=Example")),
            ("cn = orders , o= Example ", Some("CN=orders,O=Example")),
            ("CN=orders\\, inc\\2e,O=A\\+B", Some("CN=orders\\, inc.,O=A\\+B")),
            ("CN=Zo\\C3\\AB", Some("CN=Zoë")),
            ("CN=Zoë", Some("CN=Zoë")),
            ("CN=a+UID=b,DC=c", Some("CN=a+UID=b,DC=c")),
            ("CN=\\ a\\ ", Some("CN=\\ a\\ ")),
            ("CN=a  b", Some("CN=a  b")),
            ("CN=a\\00b", Some("CN=a\\00b")),
            ("CN=a=b", Some("CN=a\\=b")),
            ("2.5.4.5=#0C0137", Some("2.5.4.5=#0c0137")),
            ("CN=\\#a", Some("CN=\\#a")),
            ("", None),
            ("orders", None),
            ("CN=", None),
            ("CN=a,", None),
            ("CN=a,,O=b", None),
            ("CN=\"a,b\"", None),
            ("CN=a;O=b", None),
            ("CN=a\\", None),
            ("CN=a\\c", None),
            ("CN=a\\zb", None),
            ("CN=\\ff", None),
            ("CN=#0c0161", None),
            ("serialNumber=7", None),
            ("2.5.4.5=7", None),
            ("2.5.4.5=#0c0", None),
            ("2..5=#0c01", None),
        ] {
            assert_eq!(canonical_subject(text).as_deref(), expected, "{text}");
        }
    }
}
