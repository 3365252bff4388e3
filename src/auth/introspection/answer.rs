//! From the response of an introspection endpoint to its answer, or to why there is none.

use http::StatusCode;
use serde_json::{Map, Value};

use crate::auth::oauth_client::{OAuthClientError, OAuthResponse};
use crate::types::reject::{Reject, with_causes};

/// Maximum size of an answer in bytes: about twice that of a token (`limits.token_size`), because a backend may get
/// its members in a JWT.
const MAX_SIZE: usize = 16 * 1024;

/// RFC 7662 section 2.2.
pub(super) enum Answer {
    Active(Map<String, Value>),
    Inactive,
}

/// Why there is no answer. It says nothing about the token.
#[derive(Clone, Debug)]
pub(super) enum Unanswered {
    /// There was no response in time.
    TimedOut(String),
    /// Anything else: for the log.
    Unusable(String),
}

impl Unanswered {
    pub(super) fn why(&self) -> &str {
        match self {
            Unanswered::TimedOut(why) | Unanswered::Unusable(why) => why,
        }
    }
}

impl From<Reject> for Unanswered {
    fn from(reject: Reject) -> Self {
        Unanswered::Unusable(format!("the signed answer is not valid: {reject:?}"))
    }
}

impl From<OAuthClientError> for Unanswered {
    fn from(error: OAuthClientError) -> Self {
        let why = with_causes(&error);
        if error.is_timeout() { Unanswered::TimedOut(why) } else { Unanswered::Unusable(why) }
    }
}

/// A response with another status says nothing about the token. 401 and 403 are about the gateway as a client: they
/// must not end the login of a user.
pub(super) fn check_status(response: &OAuthResponse) -> Result<(), Unanswered> {
    let status = response.status;
    let error = response.error().map_or_else(String::new, |error| format!(" ({error})"));
    match status {
        StatusCode::OK if response.body.len() > MAX_SIZE => {
            Err(Unanswered::Unusable(format!("the answer has {} bytes, at most {MAX_SIZE}", response.body.len())))
        }
        StatusCode::OK => Ok(()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Unanswered::Unusable(format!(
            "the endpoint rejects this gateway as a client: {status}{error}; check client_id and client_auth"
        ))),
        _ => Err(Unanswered::Unusable(format!("the endpoint responds with {status}{error}"))),
    }
}

/// Reads an unsigned answer. A page of HTML with status 200 is none.
pub(super) fn unsigned(response: &OAuthResponse) -> Result<Answer, Unanswered> {
    check_status(response)?;
    let kind = || if response.media_type.is_empty() { "no media type" } else { &*response.media_type };
    match response.object() {
        Some(object) => of_object(object),
        None => Err(Unanswered::Unusable(format!(
            "the answer is not a JSON object ({}, {} bytes)",
            kind(),
            response.body.len()
        ))),
    }
}

/// A server that writes `"true"` or `1` does not follow the RFC, and another one could mean no by it.
pub(super) fn of_object(object: Map<String, Value>) -> Result<Answer, Unanswered> {
    match object.get("active") {
        Some(Value::Bool(true)) => Ok(Answer::Active(object)),
        Some(Value::Bool(false)) => Ok(Answer::Inactive),
        Some(_) => Err(Unanswered::Unusable("`active` of the answer is not a boolean".into())),
        None => Err(Unanswered::Unusable("the answer has no `active`".into())),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn read(status: u16, media_type: &str, body: &'static str) -> Result<bool, String> {
        let status = StatusCode::from_u16(status).expect("a status");
        let response =
            OAuthResponse { status, media_type: media_type.into(), body: Bytes::from_static(body.as_bytes()) };
        unsigned(&response)
            .map(|answer| matches!(answer, Answer::Active(_)))
            .map_err(|unanswered| unanswered.why().to_owned())
    }

    #[test]
    fn only_an_object_with_a_boolean_is_an_answer() {
        const JSON: &str = "application/json";
        let large: &'static str = format!("{:16400}", r#"{"active":true}"#).leak();
        assert_eq!(read(200, JSON, r#"{"active":true}"#), Ok(true));
        assert_eq!(read(200, JSON, r#"{"active":false,"sub":"alice"}"#), Ok(false));
        for (status, media_type, body, part) in [
            (200, JSON, r#"{"active":"true"}"#, "not a boolean"),
            (200, JSON, r#"{"active":1}"#, "not a boolean"),
            (200, JSON, r#"{"active":null}"#, "not a boolean"),
            (200, JSON, r#"{"active":true,"active":false}"#, "not a JSON object"),
            (200, JSON, r#"{"sub":"alice"}"#, "no `active`"),
            (200, JSON, r#"[{"active":true}]"#, "not a JSON object"),
            (200, JSON, r#"{"active":true"#, "not a JSON object (application/json, 14 bytes)"),
            (200, JSON, "", "not a JSON object"),
            (200, "text/html", r#"{"active":true}"#, "not a JSON object (text/html"),
            (200, "", r#"{"active":true}"#, "no media type"),
            (201, JSON, r#"{"active":true}"#, "201 Created"),
            (400, JSON, r#"{"active":true,"error":"invalid_request"}"#, "400 Bad Request (invalid_request)"),
            (401, JSON, r#"{"error":"invalid_client"}"#, "rejects this gateway as a client: 401"),
            (403, JSON, r#"{"active":false}"#, "rejects this gateway as a client: 403"),
            (500, JSON, r#"{"active":false}"#, "500"),
            (200, JSON, large, "the answer has 16400 bytes"),
        ] {
            let why = read(status, media_type, body).expect_err(body);
            assert!(why.contains(part), "{status} {media_type} {body}: {why}");
        }
    }
}
