//! URLs of redirects in which a backend names itself, replaced by what the client used. Pure.
//!
//! A backend knows its own address, or the host that it was asked for with its own port and scheme. Its absolute
//! redirects would lead the client past the gateway, or nowhere, and reveal the address. nginx replaces them by default
//! (`proxy_redirect default`).

use http::header::{self, Entry, HeaderName};
use http::{HeaderMap, HeaderValue};

use crate::protocols::http::path_prefix::PathPrefix;

const REFRESH: HeaderName = HeaderName::from_static("refresh");

/// The beginning of an absolute URL.
#[derive(Debug, PartialEq)]
pub struct NamedOrigin<'u> {
    /// Whether the scheme is `https`. `None` for a URL that begins with `//`.
    pub tls: Option<bool>,
    /// With its port, as it is written.
    pub authority: &'u str,
    /// In lower or upper case. An IPv6 address has no brackets here.
    pub host: &'u str,
    pub port: Option<u16>,
}

/// What the client used.
#[derive(Clone, Copy)]
pub struct ClientUrl<'u> {
    pub scheme: &'u str,
    pub authority: &'u str,
    /// Removed from the path that the backend got.
    pub prefix: Option<&'u PathPrefix>,
}

/// Replaces scheme and authority in `Location`, `Content-Location` and `Refresh` by these, if `is_backend` says so of
/// what is there. Path, query and fragment stay as they are, and so do relative URLs, but a path gets the prefix.
pub fn rewrite(headers: &mut HeaderMap, client: ClientUrl<'_>, is_backend: impl Fn(&NamedOrigin<'_>) -> bool) {
    const NAMES: [HeaderName; 3] = [header::LOCATION, header::CONTENT_LOCATION, REFRESH];
    // Few responses have one of them: one pass over the names costs less than three searches.
    if !headers.keys().any(|name| NAMES.contains(name)) {
        return;
    }
    for name in NAMES {
        let finds_url = if name == REFRESH { url_of_refresh } else { |_: &[u8]| Some(0) };
        let Entry::Occupied(mut values) = headers.entry(name) else { continue };
        for value in values.iter_mut() {
            let Some(at) = finds_url(value.as_bytes()) else { continue };
            if let Some(replaced) = replaced(value.as_bytes(), at, client, &is_backend) {
                *value = replaced;
            }
        }
    }
}

fn replaced(
    value: &[u8],
    at: usize,
    client: ClientUrl<'_>,
    is_backend: impl Fn(&NamedOrigin<'_>) -> bool,
) -> Option<HeaderValue> {
    let (before, url) = value.split_at(at);
    let with_prefix = |path: &[u8]| client.prefix.map_or_else(|| path.to_vec(), |prefix| prefix.prepend(path));
    let Some((origin, rest)) = origin(url) else {
        // Browsers take `\` for a slash, so `/\host` names a host as `//host` does.
        let is_path = url.starts_with(b"/") && !matches!(url.get(1), Some(b'/' | b'\\'));
        if !is_path || client.prefix.is_none() {
            return None;
        }
        return HeaderValue::from_bytes(&[before, &*with_prefix(url)].concat()).ok();
    };
    if !is_backend(&origin) {
        // The backend knows the host that the client used, but not the prefix.
        let is_client_host = origin.authority.eq_ignore_ascii_case(client.authority);
        if !is_client_host || client.prefix.is_none() {
            return None;
        }
        let named = &url[..url.len() - rest.len()];
        return HeaderValue::from_bytes(&[before, named, &*with_prefix(rest)].concat()).ok();
    }
    let scheme = origin.tls.map(|_| [client.scheme, ":"].concat()).unwrap_or_default();
    let authority = client.authority.as_bytes();
    HeaderValue::from_bytes(&[before, scheme.as_bytes(), b"//", authority, &*with_prefix(rest)].concat()).ok()
}

/// The origin of a URL, and what follows it. `None` for a relative URL, another scheme, and an authority that is more
/// than a host and a port.
fn origin(url: &[u8]) -> Option<(NamedOrigin<'_>, &[u8])> {
    let after = |scheme: &str| match url.split_at_checked(scheme.len()) {
        Some((beginning, rest)) if beginning.eq_ignore_ascii_case(scheme.as_bytes()) => Some(rest),
        _ => None,
    };
    let (tls, rest) = if let Some(rest) = after("http://") {
        (Some(false), rest)
    } else if let Some(rest) = after("https://") {
        (Some(true), rest)
    } else {
        (None, after("//")?)
    };
    let in_authority = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(byte);
    let end = rest.iter().position(|byte| !in_authority(byte)).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    // After `user@` or `%`, a host would be something else than it seems.
    if !matches!(rest.first(), None | Some(b'/' | b'?' | b'#' | b'"' | b'\'' | b' ' | b';' | b',')) {
        return None;
    }
    let authority = std::str::from_utf8(authority).ok()?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        Some("") => None,
        Some(digits) => Some(digits.parse().ok()?),
        None => return None,
    };
    (!host.is_empty()).then_some((NamedOrigin { tls, authority, host, port }, rest))
}

/// Where the URL begins in `5; url=https://…`, also in quotes. Browsers also take a URL without `url=`, and spaces for
/// the semicolon (HTML, "shared declarative refresh steps").
fn url_of_refresh(value: &[u8]) -> Option<usize> {
    let skip = |from: usize, skipped: fn(&u8) -> bool| from + value[from..].iter().take_while(|b| skipped(b)).count();
    let time = skip(0, |byte| byte.is_ascii_digit() || *byte == b'.');
    let spaces = skip(time, u8::is_ascii_whitespace);
    let separator = skip(spaces, |byte| matches!(byte, b';' | b','));
    if time == 0 || separator == time {
        return None;
    }
    let name = skip(separator, u8::is_ascii_whitespace);
    let has_name = value.get(name..name + 3).is_some_and(|name| name.eq_ignore_ascii_case(b"url"));
    let equals = if has_name { skip(name + 3, u8::is_ascii_whitespace) } else { name };
    let is_named = has_name && value.get(equals) == Some(&b'=');
    let url = if is_named { skip(equals + 1, u8::is_ascii_whitespace) } else { name };
    Some(url + usize::from(matches!(value.get(url), Some(b'"' | b'\''))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten_below(prefix: Option<&PathPrefix>, name: &'static str, value: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("a value"));
        let client = ClientUrl { scheme: "https", authority: "gateway.example:8443", prefix };
        rewrite(&mut headers, client, |origin| {
            matches!((origin.host, origin.port), ("127.0.0.1" | "::1", Some(3000)) | ("backend", None))
        });
        headers[name].to_str().expect("text").to_owned()
    }

    fn rewritten(name: &'static str, value: &str) -> String {
        rewritten_below(None, name, value)
    }

    #[test]
    fn a_path_gets_the_prefix_that_the_client_used() {
        let prefix = PathPrefix::new("/api").expect("a prefix");
        let rewritten = |name, value| rewritten_below(Some(&prefix), name, value);
        for (value, expected) in [
            ("/login", "/api/login"),
            ("/", "/api/"),
            ("/api/login", "/api/login"),
            ("/apis?next=/a", "/api/apis?next=/a"),
            ("http://127.0.0.1:3000/a", "https://gateway.example:8443/api/a"),
            ("http://127.0.0.1:3000", "https://gateway.example:8443/api/"),
            ("http://127.0.0.1:3000?a", "https://gateway.example:8443/api/?a"),
            ("http://127.0.0.1:3000/api/a", "https://gateway.example:8443/api/a"),
            ("https://GATEWAY.example:8443/a", "https://GATEWAY.example:8443/api/a"),
            ("//gateway.example:8443/a", "//gateway.example:8443/api/a"),
        ] {
            assert_eq!(rewritten("location", value), expected);
        }
        for value in [
            "login",
            "?a",
            "",
            "//other.example/a",
            "/\\other.example",
            "https://other.example/a",
            "https://gateway.example/a",
        ] {
            assert_eq!(rewritten("location", value), value);
        }
        assert_eq!(rewritten("refresh", "5; url='/login'"), "5; url='/api/login'");
    }

    #[test]
    fn only_the_origin_of_the_backend_is_replaced() {
        for (value, expected) in [
            ("http://127.0.0.1:3000/a?b=c#d", "https://gateway.example:8443/a?b=c#d"),
            ("HTTP://127.0.0.1:3000", "https://gateway.example:8443"),
            ("https://[::1]:3000?a", "https://gateway.example:8443?a"),
            ("//127.0.0.1:3000/a", "//gateway.example:8443/a"),
            ("http://backend:/http://backend/", "https://gateway.example:8443/http://backend/"),
        ] {
            assert_eq!(rewritten("location", value), expected);
            assert_eq!(rewritten("content-location", value), expected);
        }
        for value in [
            "",
            "/",
            "/a//127.0.0.1:3000/",
            "a",
            "?http://127.0.0.1:3000/",
            "http://127.0.0.1:3001/",
            "http://127.0.0.1/",
            "http://127.0.0.1:3000@other.example/",
            "http://user@127.0.0.1:3000/",
            "http://127.0.0.1:3000%2fa",
            "http://127.0.0.1:3000\\a",
            "http://127.0.0.1:03000x/",
            "http://127.0.0.1:99999/",
            "http://[::1:3000/",
            "http://[::1]3000/",
            "http:///a",
            "http:/127.0.0.1:3000/",
            "ftp://127.0.0.1:3000/",
            "https://other.example/?back=http://127.0.0.1:3000/",
        ] {
            assert_eq!(rewritten("location", value), value);
        }
    }

    #[test]
    fn the_url_of_refresh_is_found() {
        for (value, expected) in [
            ("5; url=http://127.0.0.1:3000/a", "5; url=https://gateway.example:8443/a"),
            ("0;URL='http://127.0.0.1:3000/a'", "0;URL='https://gateway.example:8443/a'"),
            ("0, url = \"http://backend\"", "0, url = \"https://gateway.example:8443\""),
            ("5;http://127.0.0.1:3000/a", "5;https://gateway.example:8443/a"),
            ("5 , 'http://127.0.0.1:3000/a'", "5 , 'https://gateway.example:8443/a'"),
            ("0.5\thttp://127.0.0.1:3000/a", "0.5\thttps://gateway.example:8443/a"),
            ("5 url=http://127.0.0.1:3000/a", "5 url=https://gateway.example:8443/a"),
            ("5http://127.0.0.1:3000/a", "5http://127.0.0.1:3000/a"),
            ("http://127.0.0.1:3000/a", "http://127.0.0.1:3000/a"),
            ("", ""),
            ("5", "5"),
            ("5 ", "5 "),
            ("5;", "5;"),
            ("5; ur", "5; ur"),
            ("5; url", "5; url"),
            ("5; url=", "5; url="),
            ("5; url=/a", "5; url=/a"),
            ("5; uri=http://127.0.0.1:3000/a", "5; uri=http://127.0.0.1:3000/a"),
        ] {
            assert_eq!(rewritten("refresh", value), expected);
        }
    }

    #[test]
    fn a_port_begins_with_a_colon() {
        let port = |url: &'static [u8]| origin(url).map(|(origin, _)| (origin.host, origin.port));
        assert_eq!(port(b"http://[::1]:8080/"), Some(("::1", Some(8080))));
        assert_eq!(port(b"http://[::1]/"), Some(("::1", None)));
        assert_eq!(port(b"http://a:/"), Some(("a", None)));
        assert_eq!(port(b"http://[::1]8080/"), None);
    }

    #[test]
    fn the_url_of_a_refresh_is_found_as_browsers_find_it() {
        for value in [
            "5; url=https://a",
            "5;URL = 'https://a'",
            "5, url=\"https://a\"",
            "0.5 https://a",
            "5;https://a",
            "5  ;  url  =  https://a",
        ] {
            assert_eq!(url_of_refresh(value.as_bytes()), value.find("https"), "{value}");
        }
        for value in ["", "url=https://a", "; url=https://a", "5"] {
            assert_eq!(url_of_refresh(value.as_bytes()), None, "{value}");
        }
    }
}
