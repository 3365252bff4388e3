//! Redirect URIs: where a code may go. Pure.
//!
//! A client registers the text, and a request must have the same one, byte for byte (RFC 9700 section 4.1.3). Only the
//! port of a loopback address may differ (RFC 8252 section 7.3), because a program takes any free one.

use serde::{Deserialize, Serialize};

/// Maximum length, in bytes.
pub const MAX_LEN: usize = 512;

const LOOPBACK: [&str; 3] = ["127.0.0.1", "[::1]", "localhost"];

/// Schemes that run code, read files, or send the code in clear text.
const FORBIDDEN: [&str; 15] = [
    "http",
    "javascript",
    "data",
    "file",
    "vbscript",
    "blob",
    "about",
    "mailto",
    "tel",
    "sms",
    "ftp",
    "ws",
    "wss",
    "view-source",
    "filesystem",
];

/// A redirect URI as a client registered it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RedirectUri {
    text: String,
    kind: RedirectKind,
}

/// Who gets the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedirectKind {
    /// A site.
    Https,
    /// A program of the same device, at any port.
    Loopback,
    /// A program of the same device that has claimed the scheme. `has_dot`: the scheme is a reversed domain name, which
    /// no other program has by accident (RFC 8252 section 7.1).
    PrivateScheme { has_dot: bool },
}

/// Why a text is no redirect URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRedirectUri {
    #[error("longer than 512 bytes")]
    TooLong,
    #[error("a character that no URI has, or that is read in two ways")]
    Character,
    #[error("no absolute URI")]
    NotAbsolute,
    #[error("a scheme that codes are not sent to")]
    Scheme,
    #[error("no host name, a user name, or a port that is no number")]
    Authority,
    #[error("a dot segment in the path")]
    DotSegment,
}

/// The parts of a URI with an authority.
struct UriParts<'u> {
    host: &'u str,
    /// Path and query.
    rest: &'u str,
}

impl RedirectUri {
    pub fn parse(text: &str) -> Result<Self, BadRedirectUri> {
        if text.len() > MAX_LEN {
            return Err(BadRedirectUri::TooLong);
        }
        if !text.bytes().all(is_uri_character) {
            return Err(BadRedirectUri::Character);
        }
        let (scheme, after_scheme) = text.split_once(':').ok_or(BadRedirectUri::NotAbsolute)?;
        if !is_scheme(scheme) {
            return Err(BadRedirectUri::NotAbsolute);
        }
        let kind = kind_of(scheme, after_scheme)?;
        if has_dot_segment(after_scheme) {
            return Err(BadRedirectUri::DotSegment);
        }
        Ok(RedirectUri { text: text.to_owned(), kind })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn kind(&self) -> RedirectKind {
        self.kind
    }

    /// Where the code goes if a client asks for `requested`: the registered text, with the port of the request if it is
    /// a loopback address. `None`: this is not the one that the client asks for.
    pub fn target(&self, requested: &str) -> Option<RedirectUri> {
        if *requested == self.text {
            return Some(self.clone());
        }
        if self.kind != RedirectKind::Loopback {
            return None;
        }
        let requested = RedirectUri::parse(requested).ok()?;
        let ours = loopback_parts(&self.text)?;
        let theirs = loopback_parts(&requested.text)?;
        let is_same = ours.host == theirs.host && ours.rest == theirs.rest;
        is_same.then_some(requested)
    }

    /// The host, for the user who decides. A private scheme has none.
    pub fn host(&self) -> Option<&str> {
        let (_, after_scheme) = self.text.split_once("://")?;
        match self.kind {
            RedirectKind::Https | RedirectKind::Loopback => Some(parts(after_scheme)?.host),
            RedirectKind::PrivateScheme { .. } => None,
        }
    }

    /// The origin of the pages that get codes there, as browsers write it. `None`: a program gets them.
    pub fn page_origin(&self) -> Option<String> {
        if self.kind != RedirectKind::Https {
            return None;
        }
        let (scheme, after_scheme) = self.text.split_once("://")?;
        let authority = after_scheme.split(['/', '?']).next()?;
        Some(format!("{scheme}://{}", authority.strip_suffix(":443").unwrap_or(authority)))
    }

    /// The scheme that a program has claimed.
    pub fn private_scheme(&self) -> Option<&str> {
        match self.kind {
            RedirectKind::PrivateScheme { .. } => self.text.split(':').next(),
            RedirectKind::Https | RedirectKind::Loopback => None,
        }
    }

    /// Where the code goes, for operators: the host, or the scheme of a program.
    pub fn goes_to(&self) -> &str {
        self.host().or(self.private_scheme()).unwrap_or_default()
    }

    /// The text with more parameters in its query.
    pub fn with_query(&self, parameters: &str) -> String {
        let separator = if self.text.contains('?') { '&' } else { '?' };
        format!("{}{separator}{parameters}", self.text)
    }
}

impl TryFrom<String> for RedirectUri {
    type Error = BadRedirectUri;

    fn try_from(text: String) -> Result<Self, BadRedirectUri> {
        RedirectUri::parse(&text)
    }
}

impl From<RedirectUri> for String {
    fn from(uri: RedirectUri) -> String {
        uri.text
    }
}

/// What differs from the registered ones, for the operator: the part in which the most similar one is different.
pub fn difference(registered: &[RedirectUri], requested: &str) -> &'static str {
    let Ok(requested) = RedirectUri::parse(requested) else { return "it is not possible for any client" };
    let scheme = |uri: &RedirectUri| uri.text.split(':').next().unwrap_or_default().to_owned();
    let same_scheme: Vec<_> = registered.iter().filter(|uri| scheme(uri) == scheme(&requested)).collect();
    if same_scheme.is_empty() {
        return "no registered one has this scheme";
    }
    if same_scheme.iter().all(|uri| uri.host() != requested.host()) {
        return "no registered one has this host";
    }
    "the host is registered, and the port, the path or the query differs"
}

fn is_uri_character(byte: u8) -> bool {
    match byte {
        b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'#' | b'*' => false,
        byte => byte.is_ascii_graphic(),
    }
}

/// RFC 3986 section 3.1, in lower case: one text for each scheme.
fn is_scheme(scheme: &str) -> bool {
    let is_other = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.');
    scheme.bytes().next().is_some_and(|first| first.is_ascii_lowercase()) && scheme.bytes().all(is_other)
}

fn kind_of(scheme: &str, after_scheme: &str) -> Result<RedirectKind, BadRedirectUri> {
    if scheme == "https" {
        let authority = after_scheme.strip_prefix("//").and_then(parts).ok_or(BadRedirectUri::Authority)?;
        return if is_host(authority.host) { Ok(RedirectKind::Https) } else { Err(BadRedirectUri::Authority) };
    }
    if scheme == "http" {
        let authority = after_scheme.strip_prefix("//").and_then(parts).ok_or(BadRedirectUri::Authority)?;
        let is_loopback = LOOPBACK.contains(&authority.host);
        return if is_loopback { Ok(RedirectKind::Loopback) } else { Err(BadRedirectUri::Scheme) };
    }
    if FORBIDDEN.contains(&scheme) {
        return Err(BadRedirectUri::Scheme);
    }
    // RFC 8252 section 7.1: a path follows the scheme.
    if !after_scheme.starts_with('/') || after_scheme.contains('@') {
        return Err(BadRedirectUri::Authority);
    }
    Ok(RedirectKind::PrivateScheme { has_dot: scheme.contains('.') })
}

fn loopback_parts(text: &str) -> Option<UriParts<'_>> {
    parts(text.strip_prefix("http://")?)
}

/// `None` if there is a user name, or a port that is no number.
fn parts(after_slashes: &str) -> Option<UriParts<'_>> {
    let end = after_slashes.find(['/', '?']).unwrap_or(after_slashes.len());
    let (authority, rest) = after_slashes.split_at(end);
    if authority.contains('@') {
        return None;
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    // One text for each port: with a sign or zeros before it, browsers read another one or none.
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0 && port.to_string() == text);
    if port.is_some_and(|port| !is_port(port)) {
        return None;
    }
    Some(UriParts { host, rest })
}

/// A name in lower case, an IPv4 address, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let is_other = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    // With a dot at its end, it is the same host under another name.
    !host.is_empty()
        && !host.starts_with('.')
        && !host.ends_with('.')
        && !host.contains("..")
        && host.bytes().all(is_other)
}

/// Two programs can resolve such a path to two others.
fn has_dot_segment(after_scheme: &str) -> bool {
    let path = after_scheme.split('?').next().unwrap_or_default().to_ascii_lowercase();
    if path.contains("%00") || path.contains("%2f") || path.contains("%5c") {
        return true;
    }
    path.replace("%2e", ".").split('/').any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests;
