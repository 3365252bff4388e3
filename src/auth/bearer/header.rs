//! A token in the Authorization header: a bearer token (RFC 6750 section 2.1) or one with a proof (RFC 9449 section
//! 7.1).

use http::{HeaderMap, HeaderValue, header};

use super::token::{BearerToken, TokenScheme};
use crate::types::reject::{Reason, Reject};

const BEARER: &[u8] = b"Bearer ";
const DPOP: &[u8] = b"DPoP ";

/// The token of `Authorization: Bearer …`. Two headers are rejected, also if they are equal: the backend might read the
/// other one (as Kong 3.2.1 did).
pub fn find(headers: &HeaderMap, max_size: usize) -> Result<BearerToken<'_>, Reject> {
    let value = only(headers)?;
    let token = with_scheme(value, BEARER)
        .ok_or_else(|| Reject::new(Reason::NoToken, "the Authorization scheme is not Bearer"))?;
    BearerToken::new(token, TokenScheme::Bearer, max_size)
}

/// As [`find`], also for the scheme DPoP.
pub fn find_with_scheme(headers: &HeaderMap, max_size: usize) -> Result<BearerToken<'_>, Reject> {
    let value = only(headers)?;
    let (token, scheme) = credentials(value)
        .ok_or_else(|| Reject::new(Reason::NoToken, "the Authorization scheme is neither Bearer nor DPoP"))?;
    BearerToken::new(token, scheme, max_size)
}

/// Returns true if this value of `Authorization` has the scheme Bearer, with or without a valid token.
pub fn is_bearer(value: &HeaderValue) -> bool {
    with_scheme(value, BEARER).is_some()
}

/// As [`is_bearer`], for the scheme DPoP.
pub fn is_dpop(value: &HeaderValue) -> bool {
    with_scheme(value, DPOP).is_some()
}

/// The token of either scheme.
pub(super) fn credentials(value: &HeaderValue) -> Option<(&[u8], TokenScheme)> {
    let bearer = with_scheme(value, BEARER).map(|token| (token, TokenScheme::Bearer));
    bearer.or_else(|| with_scheme(value, DPOP).map(|token| (token, TokenScheme::Dpop)))
}

fn only(headers: &HeaderMap) -> Result<&HeaderValue, Reject> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or(Reason::NoToken)?;
    match values.next() {
        Some(_) => Err(Reject::new(Reason::SeveralTokens, "several Authorization headers")),
        None => Ok(value),
    }
}

/// Schemes have no case (RFC 9110 section 11.1).
fn with_scheme<'v>(value: &'v HeaderValue, expected: &[u8]) -> Option<&'v [u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(expected.len())?;
    scheme.eq_ignore_ascii_case(expected).then_some(token)
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
    fn only_one_of_both_finds_the_scheme_dpop() {
        let found = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))]);
            let scheme = find_with_scheme(&headers, 16).map(BearerToken::scheme).map_err(|reject| reject.reason);
            (scheme, find(&headers, 16).is_ok())
        };
        assert_eq!(found("Bearer a.b.c"), (Ok(TokenScheme::Bearer), true));
        assert_eq!(found("DPoP a.b.c"), (Ok(TokenScheme::Dpop), false));
        assert_eq!(found("dpop a.b.c"), (Ok(TokenScheme::Dpop), false));
        assert_eq!(found("DPoP"), (Err(Reason::NoToken), false));
        assert_eq!(found("Basic YTpi"), (Err(Reason::NoToken), false));
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
