//! The access token in the response of a token endpoint (RFC 6749 section 5.1).

use std::time::Duration;

use http::HeaderValue;
use serde_json::{Map, Value};

use crate::tokens::sign_in::token_response::expires_in;

/// The lifetime of a token if the server does not tell one: `expires_in` is optional.
const DEFAULT_LIFETIME: Duration = Duration::from_mins(1);
const MAX_LIFETIME: Duration = Duration::from_hours(24);

/// The `Authorization` header with the Bearer token, and how long it is valid. `max_size`: of the token, in bytes.
pub fn read_bearer(object: &Map<String, Value>, max_size: usize) -> Result<(HeaderValue, Duration), &'static str> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("Bearer")) {
        return Err("token_type is missing, or is not Bearer");
    }
    let token = text("access_token").filter(|token| is_bearer_token(token, max_size));
    let token = token.ok_or("access_token is missing, too long, or is no Bearer token")?;
    let authorization = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut authorization = authorization.map_err(|_| "access_token does not fit into a header")?;
    authorization.set_sensitive(true);
    Ok((authorization, lifetime(object)?))
}

/// `token68` of RFC 9110 section 11.2, as RFC 6750 section 2.1 has it.
fn is_bearer_token(token: &str, max_size: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    (1..=max_size).contains(&token.len()) && token.bytes().all(is_allowed)
}

fn lifetime(object: &Map<String, Value>) -> Result<Duration, &'static str> {
    match expires_in(object)? {
        None => Ok(DEFAULT_LIFETIME),
        Some(Duration::ZERO) => Err("expires_in is 0"),
        // A larger value would only overflow.
        Some(lifetime) => Ok(lifetime.min(MAX_LIFETIME)),
    }
}
