//! The response of the other server (RFC 8693 section 2.2). Pure.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use serde_json::Value;

use super::failure::Failure;
use crate::auth::oauth_client::{OAuthResponse, read_bearer};

pub(super) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// The `Authorization` header for the backend, and how long its token is valid.
pub(super) fn read(response: &OAuthResponse, token_size: usize) -> Result<(HeaderValue, Duration), Failure> {
    let status = response.status;
    if status != StatusCode::OK {
        let error = response.error().unwrap_or_else(|| "no error code".to_owned());
        let why = format!("the server responded {status}: {error}");
        let is_temporary = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        return Err(if is_temporary { Failure::Unavailable(why) } else { Failure::Failed(why) });
    }
    let object = response.object().ok_or_else(|| failed("the response is no JSON object"))?;
    let kind = object.get("issued_token_type").and_then(Value::as_str);
    if !matches!(kind, Some(ACCESS_TOKEN | JWT)) {
        return Err(failed("issued_token_type is missing, or is not an access token"));
    }
    read_bearer(&object, token_size).map_err(failed)
}

/// How servers reject a token that does not exist (RFC 8693 section 2.2.2, RFC 6749 section 5.2), and not the client.
const REJECTIONS: [&str; 4] = ["invalid_request", "invalid_grant", "invalid_token", "access_denied"];

/// Fails if the server would respond to a good token as it has to an invented one.
pub(super) fn check_probe(response: &OAuthResponse) -> Result<(), String> {
    let error = response.error().unwrap_or_else(|| "no error code".to_owned());
    if response.status == StatusCode::OK || REJECTIONS.contains(&&*error) {
        Ok(())
    } else {
        Err(format!("the server responded {}: {error}", response.status))
    }
}

fn failed(why: &str) -> Failure {
    Failure::Failed(why.to_owned())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    fn read_json(status: StatusCode, body: &Value) -> Result<(HeaderValue, Duration), Failure> {
        let body = Bytes::from(body.to_string());
        read(&OAuthResponse { status, media_type: "application/json".into(), body }, 100)
    }

    fn good(changes: Value) -> Value {
        let mut body = json!({
            "access_token": "a.b-c", "issued_token_type": ACCESS_TOKEN, "token_type": "bearer", "expires_in": 300,
        });
        let members = body.as_object_mut().expect("an object");
        members.extend(changes.as_object().expect("an object").clone());
        members.retain(|_, value| !value.is_null());
        body
    }

    #[test]
    fn only_a_bearer_access_token_is_passed_on() {
        let ok = |changes| read_json(StatusCode::OK, &good(changes)).map(|(value, life)| (value, life.as_secs()));
        let expected = HeaderValue::from_static("Bearer a.b-c");
        for (changes, seconds) in [
            (json!({}), 300),
            (json!({ "issued_token_type": JWT, "token_type": "Bearer" }), 300),
            (json!({ "expires_in": null }), 60),
            (json!({ "expires_in": "300" }), 300),
            (json!({ "expires_in": 300.0 }), 300),
            (json!({ "expires_in": u64::MAX }), 86_400),
        ] {
            assert_eq!(ok(changes), Ok((expected.clone(), seconds)));
        }
        let long = "x".repeat(101);
        let most = "x".repeat(100);
        assert!(ok(json!({ "access_token": most })).is_ok());
        for changes in [
            json!({ "issued_token_type": null }),
            json!({ "issued_token_type": "urn:ietf:params:oauth:token-type:refresh_token" }),
            json!({ "issued_token_type": "urn:ietf:params:oauth:token-type:id_token" }),
            json!({ "token_type": null }),
            json!({ "token_type": "N_A" }),
            json!({ "token_type": "DPoP" }),
            json!({ "access_token": null }),
            json!({ "access_token": "" }),
            json!({ "access_token": "a b" }),
            json!({ "access_token": "a\r\nx: y" }),
            json!({ "access_token": "ä" }),
            json!({ "access_token": ["a"] }),
            json!({ "access_token": long }),
            json!({ "expires_in": 0 }),
            json!({ "expires_in": -1 }),
            json!({ "expires_in": "soon" }),
            json!({ "expires_in": 299.5 }),
        ] {
            assert!(matches!(ok(changes.clone()), Err(Failure::Failed(_))), "{changes}");
        }
    }

    #[test]
    fn a_failure_of_the_server_is_temporary_and_a_rejection_is_not() {
        let failure = |status| read_json(status, &json!({ "error": "invalid_target" })).expect_err("no token");
        for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY, StatusCode::TOO_MANY_REQUESTS] {
            assert!(matches!(failure(status), Failure::Unavailable(_)), "{status}");
        }
        for status in [StatusCode::BAD_REQUEST, StatusCode::UNAUTHORIZED, StatusCode::FOUND, StatusCode::CREATED] {
            assert!(matches!(failure(status), Failure::Failed(_)), "{status}");
        }
        let Failure::Failed(why) = failure(StatusCode::BAD_REQUEST) else { panic!("a rejection") };
        assert!(why.contains("invalid_target"), "{why}");
        assert!(read_json(StatusCode::OK, &json!([])).is_err());
    }
}
