//! The response of a provider's token endpoint (RFC 6749 section 5.1).

use std::time::Duration;

use serde_json::{Map, Value};

/// How long an access token lives if the provider does not say.
const DEFAULT_LIFETIME: Duration = Duration::from_hours(1);
const MAX_LIFETIME: Duration = Duration::from_hours(24 * 365);

/// The tokens are not checked yet. No `Debug`: they must not reach a log.
pub struct TokenResponse {
    pub access_token: String,
    pub id_token: Option<String>,
    /// `None`: the provider issues none, or the old one stays.
    pub refresh_token: Option<String>,
    /// `None`: as requested.
    pub scope: Option<String>,
    pub lifetime: Duration,
}

/// What is wrong with it otherwise, for the log.
pub fn read(object: &Map<String, Value>) -> Result<TokenResponse, &'static str> {
    let token_type = text(object, "token_type", "token_type is not text")?.ok_or("token_type is missing")?;
    if !token_type.eq_ignore_ascii_case("bearer") {
        return Err("token_type is not Bearer");
    }
    let lifetime = match object.get("expires_in") {
        None | Some(Value::Null) => DEFAULT_LIFETIME,
        Some(value) => seconds(value).ok_or("expires_in is not a number of seconds")?.min(MAX_LIFETIME),
    };
    Ok(TokenResponse {
        access_token: text(object, "access_token", "access_token is not text")?.ok_or("access_token is missing")?,
        id_token: text(object, "id_token", "id_token is not text")?,
        refresh_token: text(object, "refresh_token", "refresh_token is not text")?,
        scope: object.get("scope").and_then(Value::as_str).map(str::to_owned),
        lifetime,
    })
}

/// Some providers write a number as text.
fn seconds(value: &Value) -> Option<Duration> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.map(Duration::from_secs)
}

fn text(object: &Map<String, Value>, name: &str, wrong: &'static str) -> Result<Option<String>, &'static str> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_json(value: Value) -> Result<TokenResponse, &'static str> {
        read(value.as_object().expect("an object"))
    }

    #[test]
    fn a_response_needs_a_bearer_token() {
        let good = json!({ "access_token": "a", "token_type": "bEARER", "id_token": "i", "expires_in": 5 });
        let read = read_json(good).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!((&*read.access_token, read.id_token.as_deref(), read.lifetime.as_secs()), ("a", Some("i"), 5));
        assert!(read.refresh_token.is_none());
        for (value, wrong) in [
            (json!({ "access_token": "a" }), "token_type is missing"),
            (json!({ "access_token": "a", "token_type": "DPoP" }), "token_type is not Bearer"),
            (json!({ "token_type": "Bearer" }), "access_token is missing"),
            (json!({ "access_token": "", "token_type": "Bearer" }), "access_token is not text"),
            (json!({ "access_token": ["a"], "token_type": "Bearer" }), "access_token is not text"),
            (json!({ "access_token": "a", "token_type": "Bearer", "id_token": 1 }), "id_token is not text"),
            (json!({ "access_token": "a", "token_type": "Bearer", "refresh_token": {} }), "refresh_token is not text"),
            (
                json!({ "access_token": "a", "token_type": "Bearer", "expires_in": -1 }),
                "expires_in is not a number of seconds",
            ),
        ] {
            assert_eq!(read_json(value.clone()).err(), Some(wrong), "{value}");
        }
    }

    #[test]
    fn a_lifetime_can_be_missing_or_text() {
        for (expires_in, expected) in [
            (json!(null), DEFAULT_LIFETIME),
            (json!("60"), Duration::from_mins(1)),
            (json!(0), Duration::ZERO),
            (json!(u64::MAX), MAX_LIFETIME),
        ] {
            let value = json!({ "access_token": "a", "token_type": "Bearer", "expires_in": expires_in });
            assert_eq!(read_json(value).unwrap_or_else(|wrong| panic!("{wrong}")).lifetime, expected);
        }
    }
}
