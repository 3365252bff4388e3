//! Paths that programs read in several ways: all readings of one path. Pure.
//!
//! [`CanonicalPath`](crate::protocols::http::path::CanonicalPath) rejects these paths. A route can allow three forms of
//! them, because some APIs need them. The gateway then forwards the path only if every reading here leads to that
//! route, so that it does not matter which of them the backend uses.

use std::collections::BTreeSet;

use crate::protocols::http::path::{decode, segment_ambiguity};

/// Maximum number of spellings of one path. Real paths have fewer than ten; each costs up to six more copies.
const MAX_SPELLINGS: usize = 64;

/// Maximum bytes of all spellings of one path. A client without a token makes the gateway copy and match them.
const MAX_BYTES: usize = 32 * 1024;

/// The forms of a path that strict routes reject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathForms {
    /// `%2F`: a letter or a separator
    pub encoded_slash: bool,
    /// `;` and what follows it in a segment
    pub semicolon: bool,
    /// Empty segments
    pub double_slash: bool,
}

impl PathForms {
    pub const STRICT: Self = PathForms { encoded_slash: false, semicolon: false, double_slash: false };

    /// Returns true if these forms include all of `needed`.
    pub fn include(self, needed: Self) -> bool {
        (self.encoded_slash || !needed.encoded_slash)
            && (self.semicolon || !needed.semicolon)
            && (self.double_slash || !needed.double_slash)
    }
}

/// One path and its readings, each decoded. `%2F` stays as it is where a reading takes it for a letter. No route has a
/// `%` in its path, so such a segment is never one of a route.
#[derive(Debug, PartialEq, Eq)]
pub struct Readings<'r> {
    raw: &'r [u8],
    /// The forms that the path has.
    pub forms: PathForms,
    /// The reading that selects the route: `%2F` is a letter, parameters are removed, empty segments stay.
    pub primary: Vec<u8>,
}

impl<'r> Readings<'r> {
    /// `None` if the path has ambiguities of other kinds, which no route can allow: dot segments in any reading, other
    /// encoded separators, double encodings, parameters without a name before them.
    pub fn of(path: &'r [u8]) -> Option<Self> {
        let segments = path.strip_prefix(b"/")?;
        let mut forms = PathForms::STRICT;
        let mut segments = segments.split(|byte| *byte == b'/').peekable();
        while let Some(segment) = segments.next() {
            forms.double_slash |= segment.is_empty() && segments.peek().is_some();
            let pieces = split_encoded_slashes(segment);
            forms.encoded_slash |= pieces.len() > 1;
            forms.semicolon |= segment.contains(&b';');
            if !pieces.into_iter().all(is_unambiguous_piece) {
                return None;
            }
        }
        let primary = decode_around_slashes(&without_parameters(path));
        Some(Readings { raw: path, forms, primary })
    }

    /// All readings but the primary one. `None` if there are too many.
    pub fn others(&self) -> Option<BTreeSet<Vec<u8>>> {
        let has_parameters = |path: &&Vec<u8>| path.contains(&b';');
        let spellings = spellings(self.raw)?;
        // A route's path has no parameters, so a reading that keeps them is the one that removes them.
        let without = spellings.iter().filter(|path| !has_parameters(path));
        let mut others: BTreeSet<_> = without.map(|path| decode_around_slashes(path)).collect();
        others.remove(&self.primary);
        Some(others)
    }
}

/// A name with its parameters. None of these parts may be a dot segment: a backend may cut anywhere.
fn is_unambiguous_piece(piece: &[u8]) -> bool {
    let nameless = piece.first() == Some(&b';');
    !nameless && piece.split(|byte| *byte == b';').all(|part| segment_ambiguity(part).is_none())
}

/// The path as backends may read it before they decode the other characters: each step may be made or not, in any order
/// and several times. `None` if that gives more than [`MAX_SPELLINGS`] or [`MAX_BYTES`].
fn spellings(path: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    let mut spellings = BTreeSet::from([path.to_vec()]);
    let mut unread = vec![path.to_vec()];
    let mut bytes = path.len();
    while let Some(path) = unread.pop() {
        let steps = [slashes_decoded, without_parameters, before_parameters, merged, merged_in_pairs, below_authority];
        for spelling in steps.map(|step| step(&path)) {
            if spellings.contains(&spelling) {
                continue;
            }
            bytes += spelling.len();
            if spellings.len() == MAX_SPELLINGS || bytes > MAX_BYTES {
                return None;
            }
            spellings.insert(spelling.clone());
            unread.push(spelling);
        }
    }
    Some(spellings)
}

fn slashes_decoded(path: &[u8]) -> Vec<u8> {
    split_encoded_slashes(path).join(&b'/')
}

/// Parameters end with their segment.
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let mut in_parameter = false;
    let mut without = path.to_vec();
    without.retain(|byte| {
        in_parameter = *byte == b';' || in_parameter && *byte != b'/';
        !in_parameter
    });
    without
}

/// Everything from the first `;` is a parameter.
fn before_parameters(path: &[u8]) -> Vec<u8> {
    path.split(|byte| *byte == b';').next().unwrap_or_default().to_vec()
}

fn merged(path: &[u8]) -> Vec<u8> {
    let mut merged = path.to_vec();
    merged.dedup_by(|one, other| *one == b'/' && *other == b'/');
    merged
}

/// Replaces `//` once, as programs do with one call: `///` becomes `//`, which may then be read as an authority.
fn merged_in_pairs(path: &[u8]) -> Vec<u8> {
    let mut merged = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, others @ ..] = rest {
        merged.push(*first);
        rest = if rest.starts_with(b"//") { &rest[2..] } else { others };
    }
    merged
}

/// A parser of URL references reads `//name/path` as the path of another host (RFC 3986 section 4.2).
fn below_authority(path: &[u8]) -> Vec<u8> {
    let Some(rest) = path.strip_prefix(b"//") else { return path.to_vec() };
    match rest.iter().position(|byte| *byte == b'/') {
        Some(slash) => rest[slash..].to_vec(),
        None => b"/".to_vec(),
    }
}

fn decode_around_slashes(path: &[u8]) -> Vec<u8> {
    let pieces: Vec<_> = split_encoded_slashes(path).into_iter().map(decode).collect();
    pieces.join(&b"%2F"[..])
}

fn split_encoded_slashes(text: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut rest = text;
    // `%` is no hexadecimal digit, so this never begins inside another encoding.
    let is_slash = |three: &[u8]| three[0] == b'%' && three.eq_ignore_ascii_case(b"%2f");
    while let Some(at) = rest.windows(3).position(is_slash) {
        pieces.push(&rest[..at]);
        rest = &rest[at + 3..];
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(path: &str) -> (String, Vec<String>) {
        let readings = Readings::of(path.as_bytes()).expect("readings");
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).expect("UTF-8");
        (text(&readings.primary), readings.others().expect("few readings").iter().map(text).collect())
    }

    #[test]
    fn every_reading_of_a_path_is_found() {
        for (path, primary, others) in [
            ("/p/group%2Fproject", "/p/group%2Fproject", &["/p/group/project"][..]),
            ("/@scope%2fname", "/@scope%2Fname", &["/@scope/name"]),
            ("/api/%2F/q", "/api/%2F/q", &["/api///q", "/api//q", "/api/q"]),
            ("/app;jsessionid=1", "/app", &[]),
            ("/app;a=1/%61;b", "/app/a", &["/app"]),
            ("//bucket", "//bucket", &["/", "/bucket"]),
            ("//x//admin", "//x//admin", &["/", "/admin", "//admin", "/x/admin"]),
            ("/%2Fx/admin", "/%2Fx/admin", &["//x/admin", "/admin", "/x/admin"]),
            ("///x/admin", "///x/admin", &["/admin", "//x/admin", "/x/admin"]),
            ("/b//c/", "/b//c/", &["/b/c/"]),
            ("/a;x%2Fb/c", "/a/c", &["/a", "/a/b/c"]),
            ("/a%2Fb;x/c", "/a%2Fb/c", &["/a%2Fb", "/a/b", "/a/b/c"]),
        ] {
            let mut expected: Vec<String> = others.iter().map(|&other| other.to_owned()).collect();
            expected.sort();
            assert_eq!(readings(path), (primary.to_owned(), expected), "{path}");
        }
    }

    #[test]
    fn a_path_with_too_many_readings_has_none() {
        let others = |path: &str| Readings::of(path.as_bytes()).expect("readings").others().map(|others| others.len());
        assert_eq!(others(&format!("/p/a%2Fb{}", "/c".repeat(3000))), Some(1), "the longest usual path");
        assert_eq!(others(&"//a".repeat(70)), None, "each // can begin a host name");
        assert_eq!(others(&format!("//a%2Fb;c//d{}", "/e".repeat(50))), Some(14));
        assert_eq!(others(&format!("//a%2Fb;c//d{}", "/e".repeat(4000))), None, "each costs 8 KiB");
    }

    #[test]
    fn other_ambiguities_have_no_readings() {
        for path in [
            "",
            "a",
            "/a/..",
            "/a/%2e%2e/b",
            "/a/..%2fb",
            "/a%2f..%2fb",
            "/a%2f.",
            "/a;/../b",
            "/a/..;/b",
            "/a/..;x/b",
            "/a;../b",
            "/a;x;..",
            "/a;%2e%2e",
            "/a;x=%2f..%2fb",
            "/;/b",
            "/;x",
            "/a%2f;x",
            "/a%5cb",
            "/a\\b",
            "/a%00",
            "/a%3bb",
            "/a%3f",
            "/a%23",
            "/a%252fb",
            "/a%2f%252e",
            "/a%2f%",
            "/%%2f",
            "/a%c0%afb",
            "/%c3%2f%a9",
            "//..",
            "//../a",
            "/a//./b",
            "/a?b",
            "/a;x?b",
            "/a b",
        ] {
            assert_eq!(Readings::of(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn forms_are_those_of_the_path() {
        for (path, encoded_slash, semicolon, double_slash) in [
            ("/a/", false, false, false),
            ("/a%2Fb", true, false, false),
            ("/a;b", false, true, false),
            ("//a", false, false, true),
            ("/a//", false, false, true),
            ("/%2F;x", true, false, false),
            ("//a%2fb;c", true, true, true),
        ] {
            let forms = PathForms { encoded_slash, semicolon, double_slash };
            let found = Readings::of(path.as_bytes()).map(|readings| readings.forms);
            assert_eq!(found, (path != "/%2F;x").then_some(forms), "{path}");
            assert!(forms.include(PathForms::STRICT) && PathForms::STRICT.include(forms) == (path == "/a/"), "{path}");
        }
    }

    #[test]
    fn all_spellings_together_may_be_as_large_as_the_limit() {
        let of_len = |len: usize| spellings(format!("/{};x", "a".repeat(len - 3)).as_bytes()).map(|all| all.len());
        // The path, and the path without its parameter.
        assert_eq!([16_385, 16_386, 32_768].map(of_len), [Some(2), None, None]);
    }
}
