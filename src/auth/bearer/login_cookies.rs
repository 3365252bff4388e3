//! The two cookies of a login with `login = "cookie"`. The gateway sets, renews and removes them, and no backend sees
//! them.
//!
//! Browsers accept a name with `__Host-` only over TLS, without a domain and for the whole host, so that no other host
//! can set it (RFC 6265bis section 4.1.3.2). `HttpOnly` hides it from scripts.

use http::{HeaderMap, HeaderValue};

use super::cookie;

pub(super) const ACCESS: &str = "__Host-bearward-access";
const REFRESH: &str = "__Host-bearward-refresh";

/// Browsers drop a cookie with a longer name and value (RFC 6265bis section 5.6).
const MAX_SIZE: usize = 4096;

/// The only refresh token of the request. `None` if there is none, or more than one.
pub fn refresh_token(headers: &HeaderMap) -> Option<&str> {
    only(headers, REFRESH)
}

/// The only access token of the request, as [`refresh_token`].
pub fn access_token(headers: &HeaderMap) -> Option<&str> {
    only(headers, ACCESS)
}

fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = cookie::values(headers, name);
    let value = values.next().filter(|value| !value.is_empty())?;
    if values.next().is_some() { None } else { str::from_utf8(value).ok() }
}

/// The values of `Set-Cookie` for a pair. `None` if browsers would not keep the access token.
pub fn set(access_token: &str, refresh_token: &str) -> Option<[HeaderValue; 2]> {
    Some([set_cookie(ACCESS, access_token)?, set_cookie(REFRESH, refresh_token)?])
}

/// The values of `Set-Cookie` that remove both cookies.
pub fn clear() -> [HeaderValue; 2] {
    [
        HeaderValue::from_static("__Host-bearward-access=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax"),
        HeaderValue::from_static("__Host-bearward-refresh=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax"),
    ]
}

/// Removes both cookies from a request.
pub fn remove(headers: &mut HeaderMap) {
    cookie::remove(headers, &[ACCESS, REFRESH]);
}

/// Without `Max-Age`: the cookie ends with the browser, and the session by its own times.
fn set_cookie(name: &str, value: &str) -> Option<HeaderValue> {
    if name.len() + value.len() > MAX_SIZE {
        return None;
    }
    HeaderValue::from_str(&format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_that_browsers_drop_is_not_set() {
        let [access, refresh] = set("a.b.c", "r").expect("short enough");
        assert_eq!(access, "__Host-bearward-access=a.b.c; Path=/; Secure; HttpOnly; SameSite=Lax");
        assert_eq!(refresh, "__Host-bearward-refresh=r; Path=/; Secure; HttpOnly; SameSite=Lax");
        let longest = MAX_SIZE - ACCESS.len();
        assert!(set(&"a".repeat(longest), "r").is_some() && set(&"a".repeat(longest + 1), "r").is_none());
    }

    #[test]
    fn only_a_single_refresh_token_counts() {
        for (cookies, found) in [
            ("__Host-bearward-refresh=r", Some("r")),
            ("a=1; __Host-bearward-refresh=r; b=2", Some("r")),
            ("__Host-bearward-refresh=r; __Host-bearward-refresh=r", None),
            ("__Host-bearward-refresh=", None),
            ("bearward-refresh=r", None),
        ] {
            let headers = [(http::header::COOKIE, HeaderValue::from_static(cookies))].into_iter().collect();
            assert_eq!(refresh_token(&headers), found, "{cookies}");
        }
    }
}
