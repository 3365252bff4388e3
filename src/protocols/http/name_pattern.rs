//! A name of a header field, or the beginning of names, compared as CGI reads them. Pure.
//!
//! CGI and its successors (WSGI, Rack, PHP) turn dash, underscore and dot into `_`, so `X_Auth-Subject` would become
//! the same variable as `X-Auth-Subject` (Caddy GHSA-f59h-q822-g45g).

use http::header::HeaderName;

/// `X-Real-IP`, or `X-SSL-*` for all names that begin with `X-SSL-`, that beginning itself included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamePattern {
    /// In lower case, with `-` for each character that is neither a letter nor a digit.
    folded: Vec<u8>,
    is_prefix: bool,
}

impl NamePattern {
    /// `None` if this is neither a valid name nor one that ends with `-*`.
    pub fn parse(text: &str) -> Option<NamePattern> {
        let (name, is_prefix) = match text.strip_suffix('*') {
            Some(beginning) => (beginning, true),
            None => (text, false),
        };
        // Without the dash, `X-A*` would also match names of another meaning.
        let is_whole = !is_prefix || name.len() > 1 && name.ends_with('-');
        let is_valid = is_whole && !name.contains('*') && name.parse::<HeaderName>().is_ok();
        is_valid.then(|| NamePattern { is_prefix, ..NamePattern::exact(name) })
    }

    pub fn exact(name: &str) -> NamePattern {
        NamePattern { folded: name.bytes().map(folded).collect(), is_prefix: false }
    }

    /// Returns true if this name, in any spelling, matches.
    pub fn matches(&self, name: &[u8]) -> bool {
        let len = self.folded.len();
        let has_length = if self.is_prefix { name.len() >= len } else { name.len() == len };
        has_length && name.iter().zip(&self.folded).all(|(byte, expected)| folded(*byte) == *expected)
    }

    /// Returns true if this matches every name that `other` matches.
    pub fn covers(&self, other: &NamePattern) -> bool {
        match (self.is_prefix, other.is_prefix) {
            (false, true) => false,
            (true, true) => other.folded.starts_with(&self.folded),
            (_, false) => self.matches(&other.folded),
        }
    }

    pub(super) fn is_prefix(&self) -> bool {
        self.is_prefix
    }

    pub(super) fn folded(&self) -> &[u8] {
        &self.folded
    }
}

pub(super) fn folded(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamePattern {
        NamePattern::parse(text).unwrap_or_else(|| panic!("{text} is a pattern"))
    }

    #[test]
    fn a_pattern_is_a_name_or_ends_with_a_dash_and_a_star() {
        for text in ["", "*", "-*", "X*", "X-A*", "X-*-Y", "X Y", "X:", "é", "X-**"] {
            assert_eq!(NamePattern::parse(text), None, "{text}");
        }
        for (text, name, expected) in [
            ("X-Real-IP", "x-real-ip", true),
            ("X-Real-IP", "x_real.ip", true),
            ("X-Real-IP", "x-real-ips", false),
            ("x_ssl-*", "x-ssl-cert", true),
            ("X-SSL-*", "x_ssl_cert", true),
            ("X-SSL-*", "x-ssl-", true),
            ("X-SSL-*", "x_ssl.", true),
            ("X-SSL-*", "x-ssl", false),
            ("X-SSL-*", "x-sslcert", false),
        ] {
            assert_eq!(pattern(text).matches(name.as_bytes()), expected, "{text} {name}");
        }
    }

    #[test]
    fn a_prefix_covers_longer_prefixes_and_names() {
        for (one, other, expected) in [
            ("X-A-*", "X-A-B", true),
            ("X-A-*", "x_a_b-*", true),
            ("X-A-*", "X-A-*", true),
            ("X-A-B-*", "X-A-*", false),
            ("X-A", "x.a", true),
            ("X-A", "X-A-*", false),
        ] {
            assert_eq!(pattern(one).covers(&pattern(other)), expected, "{one} {other}");
        }
    }
}
