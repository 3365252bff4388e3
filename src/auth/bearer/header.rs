//! A bearer token in the Authorization header (RFC 6750 section 2.1).

use http::{HeaderMap, HeaderValue, header};

use super::token::BearerToken;
use crate::types::reject::{Reason, Reject};

const SCHEME: &[u8] = b"Bearer ";

/// The token of `Authorization: Bearer …`. Two headers are rejected, also if they are equal: the backend might read the
/// other one (as Kong 3.2.1 did).
pub fn find(headers: &HeaderMap, max_size: usize) -> Result<BearerToken<'_>, Reject> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or(Reason::NoToken)?;
    if values.next().is_some() {
        return Err(Reject::new(Reason::SeveralTokens, "several Authorization headers"));
    }
    let token =
        credentials(value).ok_or_else(|| Reject::new(Reason::NoToken, "the Authorization scheme is not Bearer"))?;
    BearerToken::new(token, max_size)
}

/// Returns true if this value of `Authorization` has the scheme Bearer, with or without a valid token.
pub fn is_bearer(value: &HeaderValue) -> bool {
    credentials(value).is_some()
}

pub(super) fn credentials(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[&[u8]]) -> Result<String, Reason> {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = HeaderValue::from_bytes(value).expect("a header value");
            headers.append(header::AUTHORIZATION, value);
        }
        let found = find(&headers, 16).and_then(|token| token.text().map(str::to_owned));
        found.map_err(|reject| reject.reason)
    }

    #[test]
    fn accepts_exactly_one_bearer_token() {
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
