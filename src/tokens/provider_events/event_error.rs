//! Errors of a security event token, as its sender learns them (RFC 8935 section 2.4).

/// `err` in the response to a push, and in `setErrs` of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventErrorCode {
    InvalidRequest,
    InvalidKey,
    InvalidIssuer,
    InvalidAudience,
    AuthenticationFailed,
    /// SSF section 8.1.4.1: a verification event with a state that the receiver did not choose.
    InvalidState,
}

impl EventErrorCode {
    pub const fn as_str(self) -> &'static str {
        match self {
            EventErrorCode::InvalidRequest => "invalid_request",
            EventErrorCode::InvalidKey => "invalid_key",
            EventErrorCode::InvalidIssuer => "invalid_issuer",
            EventErrorCode::InvalidAudience => "invalid_audience",
            EventErrorCode::AuthenticationFailed => "authentication_failed",
            EventErrorCode::InvalidState => "invalid_state",
        }
    }

    /// The description for the sender. The detail is only logged.
    pub const fn description(self) -> &'static str {
        match self {
            EventErrorCode::InvalidRequest => "the security event token is not valid",
            EventErrorCode::InvalidKey => "the key of the signature is not one of the transmitter's",
            EventErrorCode::InvalidIssuer => "iss is not the transmitter of this stream",
            EventErrorCode::InvalidAudience => "aud is not the audience of this stream",
            EventErrorCode::AuthenticationFailed => "the signature is not valid",
            EventErrorCode::InvalidState => "the state of the verification event is not known",
        }
    }
}

/// A rejected security event token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .code.as_str())]
pub struct EventError {
    pub code: EventErrorCode,
    /// For the log only.
    pub detail: String,
}

impl EventError {
    pub fn new(code: EventErrorCode, detail: impl Into<String>) -> Self {
        EventError { code, detail: detail.into() }
    }

    pub(super) fn request(detail: impl Into<String>) -> Self {
        EventError::new(EventErrorCode::InvalidRequest, detail)
    }
}
