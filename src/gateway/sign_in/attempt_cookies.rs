//! The cookies of one attempt. Browsers keep at most 4,096 bytes in one (RFC 6265 section 6.1), so that an attempt with
//! a long return path has two.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue};

use crate::auth::bearer::session_cookie;
use crate::tokens::sign_in::attempt::LIFETIME;

/// Maximum length of the value of one cookie. Its name has 22 bytes at most.
pub(super) const MAX_VALUE: usize = 3_800;

/// What the name of the second cookie ends with. No state has a dot.
const SECOND: &str = ".2";

/// Maximum length of a sealed attempt.
pub(super) const MAX_SEALED: usize = 2 * MAX_VALUE;

/// An attempt as the browser keeps it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AttemptCookies<'h> {
    /// Of its first cookie.
    pub(super) name: &'h str,
    pub(super) sealed: Cow<'h, str>,
}

/// `Set-Cookie` for a new attempt, of at most [`MAX_SEALED`]. `None` if no cookie can have it.
pub(super) fn set(name: &str, sealed: &str) -> Option<Vec<HeaderValue>> {
    let (first, second) = sealed.split_at_checked(MAX_VALUE).unwrap_or((sealed, ""));
    let first = session_cookie::set(name, first, LIFETIME)?;
    if second.is_empty() {
        return Some(vec![first]);
    }
    Some(vec![first, session_cookie::set(&second_name(name), second, LIFETIME)?])
}

/// The sealed attempt of this name, if there is exactly one.
pub(super) fn find<'h>(headers: &'h HeaderMap, name: &str) -> Option<Cow<'h, str>> {
    let first = session_cookie::only(headers, name)?;
    Some(match session_cookie::only(headers, &second_name(name)) {
        None => Cow::Borrowed(first),
        Some(second) => Cow::Owned(format!("{first}{second}")),
    })
}

/// The attempts of this browser, and second cookies without a first one.
pub(super) fn all(headers: &HeaderMap) -> impl Iterator<Item = AttemptCookies<'_>> {
    session_cookie::attempts(headers).filter_map(|(name, value)| match name.strip_suffix(SECOND) {
        None => Some(AttemptCookies { name, sealed: find(headers, name).unwrap_or(Cow::Borrowed(value)) }),
        Some(first) if session_cookie::only(headers, first).is_some() => None,
        Some(first) => Some(AttemptCookies { name: first, sealed: Cow::Borrowed("") }),
    })
}

/// `Set-Cookie` that deletes an attempt. `headers`: of a request that may have both cookies.
pub(super) fn clear(headers: &HeaderMap, name: &str) -> impl Iterator<Item = HeaderValue> {
    let second = second_name(name);
    let has_second = session_cookie::attempts(headers).any(|(name, _)| name == second);
    let cleared_second = if has_second { session_cookie::clear(&second) } else { None };
    [session_cookie::clear(name), cleared_second].into_iter().flatten()
}

fn second_name(name: &str) -> String {
    format!("{name}{SECOND}")
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;

    use super::*;

    const NAME: &str = "__Host-bw-try-abcdef";

    /// What a browser sends that has kept these cookies.
    fn kept(fields: &[HeaderValue]) -> HeaderMap {
        let pairs = fields.iter().map(|field| field.to_str().expect("text").split(';').next().expect("a pair"));
        let cookie = pairs.collect::<Vec<_>>().join("; ");
        [(COOKIE, HeaderValue::from_str(&cookie).expect("a value"))].into_iter().collect()
    }

    #[test]
    fn a_long_attempt_has_two_cookies() {
        for (length, number) in [(10, 1), (MAX_VALUE, 1), (MAX_VALUE + 1, 2), (MAX_SEALED, 2)] {
            let sealed = "x".repeat(length);
            let fields = set(NAME, &sealed).expect("fields");
            assert_eq!(fields.len(), number, "{length}");
            assert!(fields.iter().all(|field| field.len() <= 4_096 + 80), "{length}");
            let headers = kept(&fields);
            assert_eq!(find(&headers, NAME).as_deref(), Some(&*sealed));
            assert_eq!(all(&headers).collect::<Vec<_>>(), [AttemptCookies { name: NAME, sealed: (&*sealed).into() }]);
            assert_eq!(clear(&headers, NAME).count(), number, "{length}");
        }
    }

    #[test]
    fn a_second_cookie_alone_is_no_attempt() {
        let fields = set(NAME, &"x".repeat(MAX_SEALED)).expect("fields");
        let headers = kept(&fields[1..]);
        assert_eq!(find(&headers, NAME), None);
        assert_eq!(all(&headers).collect::<Vec<_>>(), [AttemptCookies { name: NAME, sealed: "".into() }]);
        assert_eq!(clear(&headers, NAME).count(), 2);
    }
}
