//! The cookies of a sign-in at a provider: the handle of the login, the attempts that are running, and a count of them.
//! No backend sees them.
//!
//! Browsers accept a name with `__Host-` only over TLS, without a domain and for the whole host, so that no other host
//! can set it (RFC 6265bis section 4.1.3.2). `Lax`, because the provider sends the browser back from another site, and
//! `Strict` would leave it without its cookies.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use super::cookie;
use super::token::{BearerToken, TokenScheme};
use crate::tokens::authorization::pending;
use crate::tokens::family::handle;
use crate::tokens::sign_in::attempt;
use crate::types::reject::Reject;

/// Its value is a [`handle`].
pub const SESSION: &str = "__Host-bearward";

/// When the last attempts began.
pub const STARTS: &str = "__Host-bw-starts";

/// Maximum cookies of one name that are tried. A browser has one; an older one may have one of a sister domain as well.
pub const MAX_TRIED: usize = 4;

const ATTRIBUTES: &str = "; Path=/; Secure; HttpOnly; SameSite=Lax";

/// The values of the session cookie, at most [`MAX_TRIED`]. An empty one is none: that is how applications delete one.
/// A longer one than a handle is none either, and must not hide one behind it.
pub fn handles(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let is_possible = |value: &&[u8]| (1..=handle::LEN).contains(&value.len());
    cookie::values(headers, SESSION).filter(is_possible).take(MAX_TRIED)
}

/// As [`handles`], as credentials.
pub fn tokens(headers: &HeaderMap, max_size: usize) -> impl Iterator<Item = Result<BearerToken<'_>, Reject>> {
    handles(headers).map(move |handle| BearerToken::new(handle, TokenScheme::Other, max_size))
}

/// The names and values of the attempt cookies.
pub fn attempts(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let named = cookie::all(headers).filter(|(name, _)| attempt::is_cookie_name(name));
    named.filter_map(|(name, value)| Some((str::from_utf8(name).ok()?, str::from_utf8(value).ok()?)))
}

/// The names and values of the cookies of authorization requests.
pub fn asks(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let named = cookie::all(headers).filter(|(name, _)| pending::is_cookie_name(name));
    named.filter_map(|(name, value)| Some((str::from_utf8(name).ok()?, str::from_utf8(value).ok()?)))
}

/// The value of one cookie, if there is exactly one of the name.
pub fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = cookie::values(headers, name);
    let value = values.next()?;
    if values.next().is_some() { None } else { str::from_utf8(value).ok() }
}

/// When the last attempts of this browser began, in seconds. `None` without the cookie: the browser may keep none.
pub fn starts(headers: &HeaderMap) -> Option<Vec<u64>> {
    let times = only(headers, STARTS)?.split('.').map(|time| time.parse().ok());
    times.collect()
}

/// `Set-Cookie` for [`starts`].
pub fn set_starts(times: &[u64]) -> Option<HeaderValue> {
    let times: Vec<_> = times.iter().map(u64::to_string).collect();
    set(STARTS, &times.join("."), attempt::LIFETIME)
}

/// `Set-Cookie`. `None` for a value that no cookie can have.
pub fn set(name: &str, value: &str, age: Duration) -> Option<HeaderValue> {
    let mut field = HeaderValue::from_str(&format!("{name}={value}; Max-Age={}{ATTRIBUTES}", age.as_secs())).ok()?;
    field.set_sensitive(true);
    Some(field)
}

/// `Set-Cookie` that deletes a cookie: browsers compare the attributes.
pub fn clear(name: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("{name}=; Max-Age=0{ATTRIBUTES}")).ok()
}

/// Removes the cookies of all sign-ins from a request.
pub fn remove(headers: &mut HeaderMap) {
    let is_ours = |name: &[u8]| {
        name == SESSION.as_bytes()
            || name == STARTS.as_bytes()
            || attempt::is_cookie_name(name)
            || pending::is_cookie_name(name)
    };
    cookie::remove_if(headers, is_ours);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookies: &'static str) -> HeaderMap {
        [(http::header::COOKIE, HeaderValue::from_static(cookies))].into_iter().collect()
    }

    #[test]
    fn only_the_exact_name_has_a_handle() {
        for (cookies, found) in [
            ("__Host-bearward=a", &["a"][..]),
            ("x=1; __Host-bearward=a; y=2", &["a"]),
            ("__Host-bearward=x; __Host-bearward=a", &["x", "a"]),
            ("__Host-bearward=", &[]),
            ("__Host-bearward", &[]),
            ("__host-bearward=a; __Host-Bearward=a; bearward=a; __Host-bearward2=a; x__Host-bearward=a", &[]),
            ("__Host%2Dbearward=a; \"__Host-bearward\"=a; $Version=1", &[]),
            (
                "__Host-bearward=1; __Host-bearward=2; __Host-bearward=3; __Host-bearward=4; __Host-bearward=5",
                &["1", "2", "3", "4"],
            ),
        ] {
            let headers = headers(cookies);
            let values: Vec<_> = handles(&headers).map(|value| str::from_utf8(value).expect("ASCII")).collect();
            assert_eq!(values, found, "{cookies}");
        }
        // U+2000 before the name: a reader that trims Unicode would take it for ours.
        let field = HeaderValue::from_bytes("\u{2000}__Host-bearward=a".as_bytes()).expect("bytes");
        assert_eq!(handles(&[(http::header::COOKIE, field)].into_iter().collect()).count(), 0);
    }

    #[test]
    fn the_starts_are_a_list_of_times() {
        assert_eq!(starts(&headers("__Host-bw-starts=1.20.300")), Some(vec![1, 20, 300]));
        assert_eq!(starts(&headers("__Host-bw-starts=x")), None);
        assert_eq!(starts(&headers("a=1")), None);
        assert_eq!(starts(&headers("__Host-bw-starts=1; __Host-bw-starts=2")), None);
        let field = set_starts(&[1, 20]).expect("a field");
        assert_eq!(field, "__Host-bw-starts=1.20; Max-Age=600; Path=/; Secure; HttpOnly; SameSite=Lax");
    }

    #[test]
    fn backends_see_none_of_the_cookies() {
        let mut headers = headers("a=1; __Host-bearward=x; __Host-bw-starts=1; __Host-bw-try-abcdef=y; b=2");
        assert_eq!(attempts(&headers).collect::<Vec<_>>(), [("__Host-bw-try-abcdef", "y")]);
        remove(&mut headers);
        assert_eq!(headers["cookie"], "a=1; b=2");
    }
}
