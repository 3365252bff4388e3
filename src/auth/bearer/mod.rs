//! Finds the one Bearer token of a request: in the Authorization header, and where else a route says ([`Places`]). Pure.
//!
//! Presence is not validity: what comes out of here is only something that `token::verify` may look at.

mod cookie;
mod places;
mod query;
mod subprotocol;

use http::{HeaderMap, HeaderValue, header};

use crate::tokens::jwt::decode_segment;
use crate::types::reject::{Reason, Reject};

pub use places::{Found, Place, Places};
pub use subprotocol::MARKER;

const SCHEME: &[u8] = b"Bearer ";

/// A token as the client sent it. It has no `Display` and no `Debug`: it must not reach a log.
#[derive(Clone, Copy)]
pub struct BearerToken<'r>(&'r [u8]);

impl<'r> BearerToken<'r> {
    /// One that is not sent as a credential, but asked about.
    pub fn in_text(text: &'r str, max_size: usize) -> Result<Self, Reject> {
        admitted(text.as_bytes(), max_size).map(BearerToken)
    }

    /// Whatever they are: good for comparing with known tokens.
    pub fn as_bytes(self) -> &'r [u8] {
        self.0
    }

    /// Its text, if this can be a token at all. Asked before it is taken apart. A token that is known by its bytes needs not be
    /// asked: looking at each of 700 characters would double what recognising it costs.
    pub fn text(self) -> Result<&'r str, Reject> {
        // Anything else cannot be a JWT, and must not get further.
        let malformed = || Reject::new(Reason::MalformedToken, "characters that no token has");
        let text = std::str::from_utf8(self.0).map_err(|_| malformed())?;
        if text.contains(',') {
            return Err(Reject::new(Reason::SeveralTokens, "a comma inside Authorization"));
        }
        if is_sendable(text) { Ok(text) } else { Err(malformed()) }
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
    let token = bearer(value).ok_or_else(|| Reject::new(Reason::NoToken, "the Authorization scheme is not Bearer"))?;
    admitted(token, max_size).map(BearerToken)
}

/// Is this value of `Authorization` of the Bearer scheme, whatever it holds?
pub fn is_bearer(value: &HeaderValue) -> bool {
    bearer(value).is_some()
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
}

/// What is too large does not get further. The rest is looked at when it is not known: [`BearerToken::text`].
fn admitted(token: &[u8], max_size: usize) -> Result<&[u8], Reject> {
    if token.len() > max_size {
        return Err(Reject::new(Reason::TokenTooLarge, format!("{} bytes, at most {max_size}", token.len())));
    }
    Ok(token)
}

/// A token that comes in base64url once more.
fn decoded(token: &[u8], max_size: usize) -> Result<Vec<u8>, Reject> {
    let bytes = std::str::from_utf8(token).ok().and_then(decode_segment);
    let bytes = bytes.ok_or_else(|| Reject::new(Reason::MalformedToken, "not base64url without padding"))?;
    admitted(&bytes, max_size)?;
    Ok(bytes)
}

/// Can this be sent as a Bearer token? (`b64token` of RFC 6750)
pub fn is_sendable(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| SENDABLE[usize::from(byte)])
}

/// By table: a token has 700 of them.
const SENDABLE: [bool; 256] = {
    let mut sendable = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let one = byte as u8;
        sendable[byte] = one.is_ascii_alphanumeric() || matches!(one, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=');
        byte += 1;
    }
    sendable
};

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[&[u8]]) -> Result<String, Reason> {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = http::HeaderValue::from_bytes(value).expect("a header value");
            headers.append(header::AUTHORIZATION, value);
        }
        let found = find(&headers, 16).and_then(|token| token.text().map(str::to_owned));
        found.map_err(|reject| reject.reason)
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
            (&[b"Bearer a,\xff"], Reason::MalformedToken),
            (&[b"Bearer \"a\""], Reason::MalformedToken),
            (&[b"Bearer 0123456789abcdefg"], Reason::TokenTooLarge),
        ] {
            assert_eq!(found(values), Err(reason), "{values:?}");
        }
    }
}
