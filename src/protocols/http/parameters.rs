//! Reads the parameters of a query or a form strictly: text that can be read in two ways is rejected. Writes them for
//! the servers of others. Pure.

use std::collections::BTreeMap;

use crate::protocols::http::path;

/// The parameters by name, or what is wrong with them. RFC 6749 section 3.2: no parameter more than once.
pub fn read(text: &str) -> Result<BTreeMap<String, String>, &'static str> {
    // Nothing has an empty name, so that no parameter is a list.
    read_with_list(text, "").map(|(parameters, _)| parameters)
}

/// As [`read`], and the values of the one parameter that may be repeated, in order.
pub fn read_with_list(text: &str, repeatable: &str) -> Result<(BTreeMap<String, String>, Vec<String>), &'static str> {
    let mut parameters = BTreeMap::new();
    let mut list = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decode(name), decode(value)) else {
            return Err("an invalid percent-encoding");
        };
        if !repeatable.is_empty() && name == repeatable {
            list.push(value);
        } else if parameters.insert(name, value).is_some() {
            return Err("a parameter is repeated");
        }
    }
    Ok((parameters, list))
}

/// Decodes one name or value of `application/x-www-form-urlencoded`.
pub fn decode(text: &str) -> Option<String> {
    let is_encoding = |rest: &str| rest.get(..2).is_some_and(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
    if !text.split('%').skip(1).all(is_encoding) {
        return None;
    }
    let spaced = text.replace('+', " ");
    String::from_utf8(path::decode(spaced.as_bytes()).into_owned()).ok()
}

/// The text of a query or a form with these parameters.
pub fn write<'p>(parameters: impl IntoIterator<Item = (&'p str, &'p str)>) -> String {
    let pairs = parameters.into_iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Encodes one name or value as [`decode`] reads it. Every reader agrees about the characters that it leaves as they
/// are.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' => encoded.push(char::from(byte)),
            _ => encoded.extend(['%', hex_digit(byte >> 4), hex_digit(byte & 0xf)]),
        }
    }
    encoded
}

fn hex_digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap_or_default().to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let pairs = [("a b", "1&2=3"), ("ä", "%2b+/:~*"), ("scope", "openid profile")];
        let text = write(pairs);
        assert_eq!(text, "a%20b=1%262%3D3&%C3%A4=%252b%2B%2F%3A%7E%2A&scope=openid%20profile");
        let read = read(&text).expect("readable");
        let read: Vec<_> = read.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(read, [("a b", "1&2=3"), ("scope", "openid profile"), ("ä", "%2b+/:~*")]);
    }

    #[test]
    fn parameters_have_exactly_one_reading() {
        let pairs = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>())
        };
        for (text, expected) in [
            ("", pairs(&[])),
            ("a=1&b=%41+%2B%3d&&c", pairs(&[("a", "1"), ("b", "A +="), ("c", "")])),
            ("a=b=c", pairs(&[("a", "b=c")])),
            ("%61=1", pairs(&[("a", "1")])),
            ("a=1&a=1", None),
            ("a=1&%61=2", None),
            ("a=%", None),
            ("a=%4", None),
            ("a=%4g", None),
            ("a=%+1", None),
            ("a=%ff", None),
            ("a=%é", None),
        ] {
            assert_eq!(read(text).ok().map(|found| found.into_iter().collect()), expected, "{text}");
        }
    }
}
