//! A rejected request: the reason, from one list, and what only the log contains.
//!
//! A [`Reason`] decides the status, the public error code and the message for the client. A [`Reject`] adds details
//! that only the log contains: which key, which limit, which upstream.

mod classes;
mod reason;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use http::HeaderValue;

pub use reason::Reason;

use crate::types::limit::Limit;

/// A rejection: its reason, a detail for the log, and headers of the response.
pub struct Reject {
    pub reason: Reason,
    /// For the log only. It must not contain a token or a secret.
    pub detail: Cow<'static, str>,
    /// `Allow` of a 405.
    pub allow: Option<HeaderValue>,
    /// The scopes that a 403 requires, separated by spaces.
    pub scope: Option<HeaderValue>,
    pub retry_after: Option<Duration>,
    /// Where a browser can sign in, in the body of a 401.
    pub login_url: Option<Box<str>>,
    /// If true, the client used the scheme Basic, so a 401 names that scheme (RFC 6749 section 5.2).
    pub used_basic: bool,
    /// What the client reads instead of the message of the reason. It must not contain what the client sent.
    pub described: Option<Box<str>>,
    /// The nonce for the next proof.
    pub dpop_nonce: Option<HeaderValue>,
    /// The limit that was hit, if the reason does not tell.
    pub limit: Option<Limit>,
}

impl Reject {
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Reject {
            reason,
            detail: detail.into(),
            allow: None,
            scope: None,
            retry_after: reason.default_retry_after(),
            login_url: None,
            used_basic: false,
            described: None,
            dpop_nonce: None,
            limit: None,
        }
    }

    pub fn described(mut self, text: String) -> Self {
        self.described = Some(text.into());
        self
    }

    /// What the client reads.
    pub fn message(&self) -> &str {
        self.described.as_deref().unwrap_or(self.reason.message())
    }

    pub fn of_limit(mut self, limit: Limit) -> Self {
        self.limit = Some(limit);
        self
    }

    pub fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(HeaderValue::from_static(methods));
        self
    }

    pub fn needs_scope(mut self, scope: &str) -> Self {
        self.scope = HeaderValue::from_str(scope).ok();
        self
    }
}

/// The text of an error and all its sources, for the log.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl From<Reason> for Reject {
    fn from(reason: Reason) -> Self {
        Reject::new(reason, "")
    }
}

impl fmt::Debug for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.code(), self.detail)
    }
}

#[cfg(test)]
mod tests;
