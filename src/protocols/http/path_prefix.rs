//! A prefix that the gateway removes from paths on their way to a backend, and adds to those in its responses. Pure.

use http::header::{self, Entry, HeaderMap, HeaderValue};
use http::uri::{PathAndQuery, Uri};

use crate::types::reject::{Reason, Reject};

/// `route.strip_prefix`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPrefix {
    /// Begins with a slash and does not end with one.
    text: String,
    segments: usize,
    field: HeaderValue,
}

impl PathPrefix {
    /// `text` begins with a slash and does not end with one. `None` if it does not fit into a header.
    pub fn new(text: &str) -> Option<Self> {
        let field = HeaderValue::from_str(text).ok()?;
        let segments = text.bytes().filter(|byte| *byte == b'/').count();
        let is_valid = text.starts_with('/') && !text.ends_with('/');
        is_valid.then(|| PathPrefix { text: text.to_owned(), segments, field })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The value of `X-Forwarded-Prefix`.
    pub fn field(&self) -> &HeaderValue {
        &self.field
    }

    /// The target without the prefix. The path is canonical and belongs to a route below the prefix, so its first
    /// segments are the prefix, in whatever encoding and case, and none of the others is empty: the rest never begins
    /// with `//`.
    pub fn strip(&self, uri: &Uri) -> Result<Uri, Reject> {
        let lacks_prefix = || Reject::new(Reason::BadPath, "the path does not begin with `strip_prefix`");
        let mut parts = uri.clone().into_parts();
        let target = parts.path_and_query.as_ref().ok_or_else(lacks_prefix)?;
        let rest = self.rest(target.path()).ok_or_else(lacks_prefix)?;
        let path = if rest.is_empty() { "/" } else { rest };
        let stripped = match target.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        parts.path_and_query = Some(PathAndQuery::try_from(stripped).map_err(|_| lacks_prefix())?);
        Uri::from_parts(parts).map_err(|_| lacks_prefix())
    }

    fn rest<'p>(&self, path: &'p str) -> Option<&'p str> {
        let mut slashes = path.match_indices('/').map(|(at, _)| at).skip(self.segments);
        match slashes.next() {
            Some(end) => Some(&path[end..]),
            None => (path.bytes().filter(|byte| *byte == b'/').count() == self.segments).then_some(""),
        }
    }

    /// The prefix and a path of the backend, with what follows the path in a URL. A path below the prefix stays as it
    /// is: the backend knows the prefix.
    pub fn prepend(&self, path: &[u8]) -> Vec<u8> {
        if self.has(path) {
            return path.to_vec();
        }
        let slash: &[u8] = if path.first() == Some(&b'/') { b"" } else { b"/" };
        [self.text.as_bytes(), slash, path].concat()
    }

    fn has(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.text.as_bytes());
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'?' | b'#' | b'"' | b'\'' | b' ')))
    }

    /// Adds the prefix to the paths of cookies: a browser would not send a cookie for `/app` to `/prefix/app`. The path
    /// `/` stays: cookies that begin with `__Host-` need it, and it includes every path.
    pub fn add_to_cookies(&self, headers: &mut HeaderMap) {
        if !headers.contains_key(header::SET_COOKIE) {
            return;
        }
        let Entry::Occupied(mut cookies) = headers.entry(header::SET_COOKIE) else { return };
        for cookie in cookies.iter_mut() {
            if let Some(changed) = self.add_to_cookie(cookie.as_bytes()) {
                *cookie = changed;
            }
        }
    }

    /// `None` if the cookie stays as it is.
    fn add_to_cookie(&self, cookie: &[u8]) -> Option<HeaderValue> {
        let with_prefix = |attribute: &[u8]| -> Option<Vec<u8>> {
            let equals = attribute.iter().position(|byte| *byte == b'=')?;
            let name = attribute[..equals].trim_ascii();
            let value = attribute[equals + 1..].trim_ascii();
            let is_inside = value.len() > 1 && value.starts_with(b"/") && !self.has(value);
            let changes = name.eq_ignore_ascii_case(b"path") && is_inside;
            changes.then(|| [b" Path=", &*self.prepend(value)].concat())
        };
        // The first part is the cookie itself: it may be called `path`.
        let parts = cookie.split(|byte| *byte == b';').enumerate();
        let changed: Vec<Option<Vec<u8>>> =
            parts.clone().map(|(at, part)| if at == 0 { None } else { with_prefix(part) }).collect();
        if changed.iter().all(Option::is_none) {
            return None;
        }
        let parts: Vec<Vec<u8>> =
            parts.zip(changed).map(|((_, part), changed)| changed.unwrap_or_else(|| part.to_vec())).collect();
        HeaderValue::from_bytes(&parts.join(&b';')).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> PathPrefix {
        PathPrefix::new(text).expect("a prefix")
    }

    #[test]
    fn whole_segments_are_removed_in_every_encoding() {
        for (text, target, expected) in [
            ("/api", "/api/orders?a=/api/b", "/orders?a=/api/b"),
            ("/api", "/api", "/"),
            ("/api", "/api?a", "/?a"),
            ("/api", "/api/", "/"),
            ("/api", "/%61p%69/%61", "/%61"),
            ("/api", "/API/api/x", "/api/x"),
            ("/a/b", "/a/b/c/", "/c/"),
            ("/a/b", "/a/b", "/"),
            ("/api", "https://gateway.example/api/a", "https://gateway.example/a"),
            ("/api", "https://gateway.example/api", "https://gateway.example/"),
        ] {
            let stripped = prefix(text).strip(&target.parse().expect("a URI")).expect("stripped");
            assert_eq!(stripped.to_string(), expected, "{text} {target}");
        }
        for target in ["/a", "/", "*"] {
            assert!(prefix("/a/b").strip(&target.parse().expect("a URI")).is_err(), "{target}");
        }
    }

    #[test]
    fn a_path_of_the_backend_gets_the_prefix_once() {
        for (path, expected) in [
            ("/login", "/api/login"),
            ("/", "/api/"),
            ("/api", "/api"),
            ("/api/login", "/api/login"),
            ("/api?a", "/api?a"),
            ("/apis", "/api/apis"),
            ("?a", "/api/?a"),
            ("", "/api/"),
        ] {
            assert_eq!(prefix("/api").prepend(path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }

    #[test]
    fn only_the_path_of_a_cookie_changes() {
        for (cookie, expected) in [
            ("a=1; Path=/app; Secure", "a=1; Path=/api/app; Secure"),
            ("a=1;path = /app", "a=1; Path=/api/app"),
            ("a=1; PATH=/app; Path=/b", "a=1; Path=/api/app; Path=/api/b"),
            ("a=1; Path=/", "a=1; Path=/"),
            ("__Host-a=1; Path=/; Secure", "__Host-a=1; Path=/; Secure"),
            ("a=1; Path=/api", "a=1; Path=/api"),
            ("a=1; Path=/api/x", "a=1; Path=/api/x"),
            ("a=1; Path=/apis", "a=1; Path=/api/apis"),
            ("a=1; Path=app", "a=1; Path=app"),
            ("a=1; Path", "a=1; Path"),
            ("path=/app; Secure", "path=/app; Secure"),
            ("a=\"; Path=/app", "a=\"; Path=/api/app"),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(header::SET_COOKIE, HeaderValue::from_str(cookie).expect("a cookie"));
            prefix("/api").add_to_cookies(&mut headers);
            assert_eq!(headers[header::SET_COOKIE], expected);
        }
    }
}
