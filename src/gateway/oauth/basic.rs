//! Credentials of a client with the scheme Basic (RFC 7617). OAuth clients percent-encode them first (RFC 6749 section
//! 2.3.1), other programs do not. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, header};

use crate::gateway::endpoints::ResourceServer;
use crate::protocols::http::parameters::decode;
use crate::types::reject::{Reason, Reject};

const SCHEME: &[u8] = b"Basic ";

/// Returns true if this value of `Authorization` has the scheme Basic.
pub(super) fn is_basic(value: &HeaderValue) -> bool {
    value.as_bytes().get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// Returns true if the request uses the scheme Basic.
pub(super) fn is_used(headers: &HeaderMap) -> bool {
    headers.get_all(header::AUTHORIZATION).iter().any(is_basic)
}

/// The resource server with these credentials.
pub(super) fn authenticate<'s>(headers: &HeaderMap, known: &'s [ResourceServer]) -> Result<&'s ResourceServer, Reject> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(Reject::new(Reason::SeveralTokens, "several Authorization headers"));
    };
    let wrong = |detail: &'static str| Reject::new(Reason::WrongClientSecret, detail).of_basic();
    let text = value.as_bytes().get(SCHEME.len()..).and_then(|text| STANDARD.decode(text.trim_ascii()).ok());
    let text = text.and_then(|text| String::from_utf8(text).ok()).ok_or_else(|| wrong("not Base64 of UTF-8"))?;
    let (id, secret) = text.split_once(':').ok_or_else(|| wrong("no colon between id and secret"))?;
    let encoded = decode(id).zip(decode(secret));
    let is_right = |server: &&ResourceServer| {
        // Both forms are always compared, so that the time tells nothing about the secret.
        let plain = server.has_credentials(id, secret);
        encoded.as_ref().is_some_and(|(id, secret)| server.has_credentials(id, secret)) || plain
    };
    known.iter().find(is_right).ok_or_else(|| wrong("unknown client id, or wrong secret"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(authorization: &[&str]) -> Result<String, Reason> {
        let headers = authorization
            .iter()
            .map(|value| (header::AUTHORIZATION, HeaderValue::from_str(value).expect("a header value")));
        let servers = [ResourceServer::new("a b", b"x+%y:z"), ResourceServer::new("shop", b"secret")];
        let found = authenticate(&headers.collect(), &servers);
        found.map(|server| server.client_id.clone()).map_err(|reject| reject.reason)
    }

    fn basic(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[test]
    fn right_credentials_are_accepted_encoded_and_plain() {
        for (text, id) in [("shop:secret", "shop"), ("a b:x+%y:z", "a b"), ("a+b:x%2B%25y%3Az", "a b")] {
            assert_eq!(id_of(&[&basic(text)]), Ok(id.to_owned()), "{text}");
        }
        assert_eq!(id_of(&[&basic("shop:secret").replace("Basic", "bASIC")]), Ok("shop".to_owned()));
    }

    #[test]
    fn wrong_credentials_are_rejected() {
        for text in ["", ":", "shop", "shop:", "shop:Secret", "Shop:secret", "shop:secret ", "a b:secret", "shop:x%zz"]
        {
            assert_eq!(id_of(&[&basic(text)]), Err(Reason::WrongClientSecret), "{text}");
        }
        for value in ["Basic ", "Basic !", "Basic c2hvcA", "Basic /////w=="] {
            assert_eq!(id_of(&[value]), Err(Reason::WrongClientSecret), "{value}");
        }
        assert_eq!(id_of(&[&basic("shop:secret"), "Bearer x"]), Err(Reason::SeveralTokens));
    }
}
