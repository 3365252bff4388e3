//! The response of a provider's token endpoint (RFC 6749 section 5.1).

use std::time::Duration;

use serde_json::{Map, Value};

use super::broken_json;

const MAX_LIFETIME: Duration = Duration::from_hours(24 * 365);

/// The tokens are not checked yet. No `Debug`: they must not reach a log.
pub struct TokenResponse {
    pub access_token: String,
    pub id_token: Option<String>,
    /// `None`: the provider issues none, or the old one stays.
    pub refresh_token: Option<String>,
    /// `None`: as requested. After a refresh: as before.
    pub scope: Option<String>,
    /// Of the access token. `None`: the provider does not say.
    pub lifetime: Option<Duration>,
}

/// What is wrong with it otherwise, for the log.
pub fn read(object: &Map<String, Value>) -> Result<TokenResponse, &'static str> {
    let token_type = text(object, "token_type", "token_type is not text")?.ok_or("token_type is missing")?;
    if !token_type.eq_ignore_ascii_case("bearer") {
        return Err("token_type is not Bearer");
    }
    Ok(TokenResponse {
        access_token: text(object, "access_token", "access_token is not text")?.ok_or("access_token is missing")?,
        id_token: text(object, "id_token", "id_token is not text")?,
        refresh_token: text(object, "refresh_token", "refresh_token is not text")?,
        scope: scope(object)?,
        lifetime: expires_in(object)?.map(|lifetime| lifetime.min(MAX_LIFETIME)),
    })
}

/// Returns the refresh token of any JSON object, whatever is wrong with the rest, or follows it: it may be the only one
/// that works from now on.
pub fn refresh_token(body: &[u8]) -> Option<String> {
    broken_json::last_text(body, "refresh_token").filter(|token| !token.is_empty())
}

/// How long an access token lives (RFC 6749 section 5.1). `None`: the server does not say.
pub fn expires_in(object: &Map<String, Value>) -> Result<Option<Duration>, &'static str> {
    match object.get("expires_in") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => seconds(value).map(Some).ok_or("expires_in is not a number of seconds"),
    }
}

/// Some servers write a number as text, or with a decimal point.
fn seconds(value: &Value) -> Option<Duration> {
    let whole = |number: f64| (number >= 0.0 && number.fract() == 0.0).then_some(number as u64);
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok()).or_else(|| whole(value.as_f64()?));
    number.map(Duration::from_secs)
}

/// Some providers send a list. Anything else is an error: what cannot be read must not count as everything that was
/// asked for.
fn scope(object: &Map<String, Value>) -> Result<Option<String>, &'static str> {
    const WRONG: &str = "scope is neither text nor a list of texts";
    match object.get("scope") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(several)) => {
            let texts: Option<Vec<&str>> = several.iter().map(Value::as_str).collect();
            Ok(Some(texts.ok_or(WRONG)?.join(" ")))
        }
        Some(_) => Err(WRONG),
    }
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
        assert_eq!((&*read.access_token, read.id_token.as_deref()), ("a", Some("i")));
        assert_eq!(read.lifetime, Some(Duration::from_secs(5)));
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
                json!({ "access_token": "a", "token_type": "Bearer", "scope": ["a", 1] }),
                "scope is neither text nor a list of texts",
            ),
            (
                json!({ "access_token": "a", "token_type": "Bearer", "scope": 5 }),
                "scope is neither text nor a list of texts",
            ),
        ] {
            assert_eq!(read_json(value.clone()).err(), Some(wrong), "{value}");
        }
    }

    #[test]
    fn a_lifetime_can_be_missing_or_text() {
        let read = |expires_in: Value| {
            let value = json!({ "access_token": "a", "token_type": "Bearer", "expires_in": expires_in });
            read_json(value).map(|read| read.lifetime)
        };
        for (expires_in, expected) in [
            (json!(null), None),
            (json!("60"), Some(Duration::from_mins(1))),
            (json!(3600.0), Some(Duration::from_hours(1))),
            (json!(0), Some(Duration::ZERO)),
            (json!(u64::MAX), Some(MAX_LIFETIME)),
            (json!(1e300), Some(MAX_LIFETIME)),
        ] {
            assert_eq!(read(expires_in.clone()), Ok(expected), "{expires_in}");
        }
        for expires_in in [json!(-1), json!(-1.0), json!(3599.5), json!("soon"), json!("-1"), json!(true), json!([1])] {
            assert_eq!(read(expires_in.clone()), Err("expires_in is not a number of seconds"), "{expires_in}");
        }
    }

    #[test]
    fn a_scope_can_be_missing_or_a_list() {
        for (scope, expected) in [
            (json!(null), None),
            (json!("openid email"), Some("openid email")),
            (json!(""), Some("")),
            (json!(["openid", "email"]), Some("openid email")),
            (json!([]), Some("")),
        ] {
            let value = json!({ "access_token": "a", "token_type": "Bearer", "scope": scope });
            let read = read_json(value).unwrap_or_else(|wrong| panic!("{wrong}"));
            assert_eq!(read.scope.as_deref(), expected, "{scope}");
        }
    }

    #[test]
    fn a_refresh_token_is_found_beside_anything() {
        for (body, expected) in [
            (r#"{"refresh_token":"r"}"#, Some("r")),
            (r#"{"id_token":"","expires_in":-1,"refresh_token":"r","scope":{}}"#, Some("r")),
            (r#"{"scope":"a","scope":"b","refresh_token":"r"}"#, Some("r")),
            ("{\"refresh_token\":\"r\"}\n<!-- page -->", Some("r")),
            (r#"{"refresh_token":""}"#, None),
            (r#"{"refresh_token":null}"#, None),
            (r#"{"refresh_token":["r"]}"#, None),
            (r#"{"refresh_token":"r","refresh_token":"s"}"#, Some("s")),
            (r#"{"refresh_token":"r","expires_in":NaN}"#, Some("r")),
            (r#"{"refresh_token":"r""#, Some("r")),
            (r#"{"refresh_token":"r"#, None),
            (r#"{"scope":{"refresh_token":"r"}}"#, None),
            ("refresh_token=r", None),
        ] {
            assert_eq!(refresh_token(body.as_bytes()).as_deref(), expected, "{body}");
        }
    }
}
