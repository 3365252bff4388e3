//! JSON Pointer (RFC 6901): the path of a value in the claims of a token. It is parsed when the configuration is read,
//! so that a request costs one look-up for each segment and no allocation.

use std::fmt;

use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    /// Unescaped; never empty.
    segments: Vec<String>,
}

impl Pointer {
    /// Parses text like `/realm_access/roles`. The empty pointer, which stands for all claims, is an error.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        let path = text.strip_prefix('/').ok_or(PointerError::NoSlash)?;
        let segments = path.split('/').map(unescape).collect::<Option<_>>();
        let segments = segments.ok_or(PointerError::BadEscape)?;
        Ok(Pointer { text: text.to_owned(), segments })
    }

    /// The value at this path.
    pub fn find<'c>(&self, claims: &'c Map<String, Value>) -> Option<&'c Value> {
        let (claim, path) = self.segments.split_first()?;
        path.iter().try_fold(claims.get(claim)?, |value, segment| match value {
            Value::Object(members) => members.get(segment),
            Value::Array(items) => items.get(index(segment)?),
            _ => None,
        })
    }
}

/// Why text is not a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    #[error("a pointer begins with `/`")]
    NoSlash,
    #[error("`~` is written `~0`, and `/` inside a name `~1`")]
    BadEscape,
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn unescape(segment: &str) -> Option<String> {
    let mut plain = String::with_capacity(segment.len());
    let mut characters = segment.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '~' => match characters.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            character => character,
        });
    }
    Some(plain)
}

/// Digits without a leading zero, so that each element has exactly one name.
fn index(segment: &str) -> Option<usize> {
    let canonical = segment == "0" || !segment.starts_with('0');
    let digits = segment.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && digits).then(|| segment.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document and most examples of RFC 6901 section 5.
    #[test]
    fn pointers_follow_rfc_6901() {
        let claims = serde_json::json!({
            "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "k\"l": 6, " ": 7, "m~n": 8,
            "realm": { "roles": ["a", "b"], "0": "zero" }
        });
        let claims = claims.as_object().expect("an object");
        for (pointer, found) in [
            ("/foo/0", Some("\"bar\"")),
            ("/foo", Some("[\"bar\",\"baz\"]")),
            ("/", Some("0")),
            ("/a~1b", Some("1")),
            ("/c%d", Some("2")),
            ("/k\"l", Some("6")),
            ("/ ", Some("7")),
            ("/m~0n", Some("8")),
            ("/realm/roles/1", Some("\"b\"")),
            ("/realm/0", Some("\"zero\"")),
            ("/foo/00", None),
            ("/foo/01", None),
            ("/foo/-", None),
            ("/foo/+1", None),
            ("/foo/", None),
            ("/foo/2", None),
            ("/foo/99999999999999999999", None),
            ("/foo/0/x", None),
            ("/realm/roles/", None),
            ("/Foo", None),
        ] {
            let parsed = Pointer::parse(pointer).expect("a pointer");
            assert_eq!(parsed.find(claims).map(Value::to_string).as_deref(), found, "{pointer}");
            assert_eq!(parsed.to_string(), pointer);
        }
        for text in ["", "foo", "#/foo", "/a~", "/a~2b", "/~"] {
            assert!(Pointer::parse(text).is_err(), "{text}");
        }
    }
}
