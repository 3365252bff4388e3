//! `htu`: the URL that a proof is for, compared with the one that the request has reached (RFC 9449 section 4.3).
//!
//! The gateway builds its own side from the listener, the host and the path as received. Both are normalised as RFC
//! 3986 sections 6.2.2 and 6.2.3 have it, and no further: with `//` read as `/`, or `/a/` as `/a`, a proof for one
//! resource would open another.

use std::borrow::Cow;

/// The URL of a request as its client sees it, without the query.
#[derive(Clone, Copy, Debug)]
pub struct TargetUri<'r> {
    pub is_https: bool,
    /// The host with an optional port.
    pub authority: &'r str,
    /// What a proxy in front of the gateway has removed from the beginning of the path. Empty without one.
    pub prefix: &'r str,
    /// As received, before a route changes it.
    pub path: &'r str,
    /// If true, the request opens a WebSocket, so that `wss` and `ws` name the same URL.
    pub is_websocket: bool,
}

impl TargetUri<'_> {
    /// # Errors
    /// Why the proof is for another URL, for the log. It quotes nothing that the client sent.
    pub fn check(&self, htu: &str) -> Result<(), &'static str> {
        let (scheme, rest) = htu.split_once("://").ok_or("htu is not an absolute URL")?;
        if !self.is_scheme(scheme) {
            return Err("htu has another scheme");
        }
        // RFC 9449 section 4.3 ignores both.
        let rest = &rest[..rest.find(['?', '#']).unwrap_or(rest.len())];
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if without_default_port(authority, self.is_https).ok_or("the host of htu is not valid")?
            != without_default_port(self.authority, self.is_https).ok_or("the host of the request has no URL")?
        {
            return Err("htu has another host or port");
        }
        let received = match (self.prefix, self.path) {
            ("", "") => Cow::Borrowed("/"),
            ("", path) => Cow::Borrowed(path),
            (prefix, path) => Cow::Owned(format!("{prefix}{path}")),
        };
        let path = if path.is_empty() { "/" } else { path };
        // The usual case.
        if path == received && path.is_ascii() && !path.contains(['%', '\\']) && !has_dot_segment(path) {
            return Ok(());
        }
        if normalised(path).ok_or("the path of htu is not valid")? == normalised(&received).unwrap_or_default() {
            Ok(())
        } else {
            Err("htu has another path")
        }
    }

    fn is_scheme(&self, scheme: &str) -> bool {
        let (own, websocket) = if self.is_https { ("https", "wss") } else { ("http", "ws") };
        scheme.eq_ignore_ascii_case(own) || self.is_websocket && scheme.eq_ignore_ascii_case(websocket)
    }
}

/// The host in lower case and the port, unless it is that of the scheme. `None` for user information, a final dot, and
/// everything that is not a host.
fn without_default_port(authority: &str, is_https: bool) -> Option<(Cow<'_, str>, Option<u16>)> {
    let (host, port) = match authority.rfind(':') {
        Some(colon) if !authority[colon..].contains(']') => (&authority[..colon], Some(&authority[colon + 1..])),
        _ => (authority, None),
    };
    let in_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    if host.is_empty() || host.ends_with('.') || !host.bytes().all(in_host) {
        return None;
    }
    let port = match port {
        // RFC 3986 section 6.2.3: an empty port is the default one.
        None | Some("") => None,
        Some(digits) if digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(digits.parse::<u16>().ok()?)
        }
        Some(_) => return None,
    };
    let default = if is_https { 443 } else { 80 };
    let host = if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    };
    Some((host, port.filter(|port| *port != default)))
}

/// Decodes escaped unreserved characters, and writes all other escapes in upper case. `None` for an escape that is not
/// one, for an escaped NUL, and for characters and segments that servers read in different ways.
fn normalised(path: &str) -> Option<String> {
    let mut normal = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let (digits, after) = after.split_at_checked(2)?;
                rest = after;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                let value = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
                match value {
                    0 => return None,
                    // RFC 3986 section 2.3.
                    _ if value.is_ascii_alphanumeric() || b"-._~".contains(&value) => normal.push(char::from(value)),
                    _ => normal.push_str(&format!("%{value:02X}")),
                }
            }
            b'!'..=b'~' if *byte != b'\\' => normal.push(char::from(*byte)),
            _ => return None,
        }
    }
    (!has_dot_segment(&normal)).then_some(normal)
}

fn has_dot_segment(path: &str) -> bool {
    path.split('/').any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "api.example";

    fn is_for(authority: &str, path: &str, htu: &str) -> bool {
        TargetUri { is_https: true, authority, prefix: "", path, is_websocket: false }.check(htu).is_ok()
    }

    #[test]
    fn a_proxy_may_have_removed_the_beginning_of_the_path() {
        for (path, htu, expected) in [
            ("/a", "https://api.example/v1/a", true),
            ("/a", "https://api.example/v%31/a", true),
            ("/", "https://api.example/v1/", true),
            ("/", "https://api.example/v1", false),
            ("/a", "https://api.example/a", false),
            ("/a", "https://api.example/v1/v1/a", false),
            ("/v1/a", "https://api.example/v1/a", false),
        ] {
            let target = TargetUri { is_https: true, authority: HOST, prefix: "/v1", path, is_websocket: false };
            assert_eq!(target.check(htu).is_ok(), expected, "{path} and {htu}");
        }
    }

    #[test]
    fn equal_urls_have_several_spellings() {
        for (authority, path, htu) in [
            (HOST, "/a", "https://api.example/a"),
            (HOST, "/a", "HTTPS://api.example/a"),
            (HOST, "/a", "https://API.Example/a"),
            ("API.example", "/a", "https://api.example/a"),
            (HOST, "/a", "https://api.example:443/a"),
            (HOST, "/a", "https://api.example:/a"),
            ("api.example:443", "/a", "https://api.example/a"),
            ("api.example:8443", "/a", "https://api.example:8443/a"),
            ("[::1]:8443", "/a", "https://[::1]:8443/a"),
            ("[::1]", "/a", "https://[::1]/a"),
            (HOST, "/", "https://api.example"),
            (HOST, "/", "https://api.example?q"),
            (HOST, "/a", "https://api.example/a?q=/b"),
            (HOST, "/a", "https://api.example/a#f"),
            (HOST, "/~a", "https://api.example/%7Ea"),
            (HOST, "/%7ea", "https://api.example/~a"),
            (HOST, "/A", "https://api.example/%41"),
            (HOST, "/%C3%BC", "https://api.example/%c3%bc"),
            (HOST, "/a%2Fb", "https://api.example/a%2fb"),
            (HOST, "//a", "https://api.example//a"),
        ] {
            assert!(is_for(authority, path, htu), "{authority}{path} and {htu}");
        }
    }

    #[test]
    fn another_url_is_another_url() {
        for (path, htu) in [
            ("/a", "http://api.example/a"),
            ("/a", "ftp://api.example/a"),
            ("/a", "wss://api.example/a"),
            ("/a", "https://other.example/a"),
            ("/a", "https://api.example.evil/a"),
            ("/a", "https://api.example:8443/a"),
            ("/a", "https://api.example:99999/a"),
            ("/a", "https://api.example./a"),
            ("/a", "https://me@api.example/a"),
            ("/a", "https://api.example\\@other/a"),
            ("/a", "https://\u{e4}pi.example/a"),
            ("/a", "https:///a"),
            ("/a", "https://api.example/a/"),
            ("/a/", "https://api.example/a"),
            ("/a", "https://api.example/A"),
            ("/a", "https://api.example//a"),
            ("/a/b", "https://api.example/a%2Fb"),
            ("/a", "https://api.example/b/../a"),
            ("/a", "https://api.example/./a"),
            ("/a", "https://api.example/%2e/a"),
            ("/a", "https://api.example\\a"),
            ("/a", "https://api.example/a%00"),
            ("/a", "https://api.example/a%"),
            ("/a", "https://api.example/%zz"),
            ("/a", "https://api.example/%+1"),
            ("/\u{e4}", "https://api.example/\u{e4}"),
            ("/a", "/a"),
            ("/a", "api.example/a"),
            ("/a", ""),
        ] {
            assert!(!is_for(HOST, path, htu), "{path} and {htu}");
        }
    }

    #[test]
    fn a_websocket_has_its_own_schemes() {
        let target =
            |is_https, is_websocket| TargetUri { is_https, authority: HOST, prefix: "", path: "/a", is_websocket };
        for (is_https, is_websocket, htu, expected) in [
            (true, true, "wss://api.example/a", true),
            (true, true, "https://api.example/a", true),
            (true, true, "ws://api.example/a", false),
            (false, true, "ws://api.example:80/a", true),
            (false, false, "ws://api.example/a", false),
        ] {
            assert_eq!(target(is_https, is_websocket).check(htu).is_ok(), expected, "{htu}");
        }
    }
}
