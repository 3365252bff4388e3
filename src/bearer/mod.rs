//! Finds the one Bearer token of a request: in the Authorization header, and where else a route says ([`Places`]). Pure.
//!
//! Presence is not validity: what comes out of here is only something that `token::verify` may look at.

mod cookie;
mod places;
mod query;
mod subprotocol;

use http::{HeaderMap, header};

use crate::reject::{Reason, Reject};
use crate::token::decode_segment;

pub use places::{Found, Place, Places};
pub use subprotocol::MARKER;

/// A token as the client sent it. It has no `Display` and no `Debug`: it must not reach a log.
#[derive(Clone, Copy)]
pub struct BearerToken<'r>(&'r str);

impl<'r> BearerToken<'r> {
    pub fn as_str(self) -> &'r str {
        self.0
    }
}

/// From `Authorization: Bearer …` (RFC 6750 section 2.1). Two tokens are refused even if they are equal: a backend might
/// read the other one (Kong 3.2.1 did).
pub fn find(headers: &HeaderMap, max_size: usize) -> Result<BearerToken<'_>, Reject> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or(Reason::NoToken)?;
    if values.next().is_some() {
        return Err(Reject::new(Reason::SeveralTokens, "several Authorization headers"));
    }
    let value = value.as_bytes();
    let (scheme, token) = value.split_at_checked(7).ok_or(Reason::NoToken)?;
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return Err(Reject::new(Reason::NoToken, "the Authorization scheme is not Bearer"));
    }
    if token.len() <= max_size && token.contains(&b',') {
        return Err(Reject::new(Reason::SeveralTokens, "a comma inside Authorization"));
    }
    admitted(token, max_size).map(BearerToken)
}

/// What cannot be a JWT must not get further.
fn admitted(token: &[u8], max_size: usize) -> Result<&str, Reject> {
    if token.len() > max_size {
        return Err(Reject::new(Reason::TokenTooLarge, format!("{} bytes, at most {max_size}", token.len())));
    }
    match std::str::from_utf8(token) {
        Ok(text) if is_sendable(text) => Ok(text),
        _ => Err(Reject::new(Reason::MalformedToken, "characters that no token has")),
    }
}

/// A token that comes in base64url once more.
fn decoded(token: &[u8], max_size: usize) -> Result<String, Reject> {
    let bytes = std::str::from_utf8(token).ok().and_then(decode_segment);
    let bytes = bytes.ok_or_else(|| Reject::new(Reason::MalformedToken, "not base64url without padding"))?;
    admitted(&bytes, max_size).map(str::to_owned)
}

/// Can this be sent as a Bearer token? (`b64token` of RFC 6750)
pub fn is_sendable(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[&[u8]]) -> Result<String, Reason> {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = http::HeaderValue::from_bytes(value).expect("a header value");
            headers.append(header::AUTHORIZATION, value);
        }
        find(&headers, 16).map(|token| token.as_str().to_owned()).map_err(|reject| reject.reason)
    }

    #[test]
    fn exactly_one_bearer_token() {
        assert_eq!(found(&[b"Bearer a.b.c"]), Ok("a.b.c".into()));
        assert_eq!(found(&[b"bEaReR a.b-_~+/="]), Ok("a.b-_~+/=".into()));
        assert_eq!(found(&[b"Bearer 0123456789abcdef"]), Ok("0123456789abcdef".into()));
        for (values, reason) in [
            (&[][..], Reason::NoToken),
            (&[b"".as_slice()], Reason::NoToken),
            (&[b"Bearer"], Reason::NoToken),
            (&[b"Basic YTpi"], Reason::NoToken),
            (&[b"Bearer\ta"], Reason::NoToken),
            (&[b"Bearer a", b"Bearer a"], Reason::SeveralTokens),
            (&[b"Bearer a", b"Basic YTpi"], Reason::SeveralTokens),
            (&[b"Bearer a, Bearer b"], Reason::SeveralTokens),
            (&[b"Bearer a,b"], Reason::SeveralTokens),
            (&[b"Bearer "], Reason::MalformedToken),
            (&[b"Bearer  a"], Reason::MalformedToken),
            (&[b"Bearer a b"], Reason::MalformedToken),
            (&[b"Bearer a\xff"], Reason::MalformedToken),
            (&[b"Bearer \"a\""], Reason::MalformedToken),
            (&[b"Bearer 0123456789abcdefg"], Reason::TokenTooLarge),
        ] {
            assert_eq!(found(values), Err(reason), "{values:?}");
        }
    }
}
