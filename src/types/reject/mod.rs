//! A rejected request: the reason, from one list, and what only the log contains.
//!
//! A [`Reason`] decides the status, the public error code and the message for the client. A [`Reject`] adds details
//! that only the log contains: which key, which limit, which upstream.

mod change;
mod classes;
mod reason;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use http::HeaderValue;

pub use reason::Reason;

use crate::types::limit::Limit;

/// The `error` of a request that may succeed later.
const TEMPORARY: &str = "temporarily_unavailable";
/// When to repeat it.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// A rejection: its reason, and a detail for the log.
pub struct Reject {
    pub reason: Reason,
    /// For the log only. It must not contain a token or a secret.
    pub detail: Cow<'static, str>,
    /// The limit that was hit, if the reason does not tell.
    pub limit: Option<Limit>,
    /// Boxed because few rejections have any: each step of each request returns room for a rejection.
    extras: Option<Box<Extras>>,
}

/// What the response says besides its reason.
#[derive(Default)]
struct Extras {
    allow: Option<HeaderValue>,
    scope: Option<HeaderValue>,
    retry_after: Option<Duration>,
    login_url: Option<Box<str>>,
    used_basic: bool,
    described: Option<Box<str>>,
    is_temporary: bool,
    dpop_nonce: Option<HeaderValue>,
}

impl Reject {
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Reject { reason, detail: detail.into(), limit: None, extras: None }
    }

    /// What the client reads instead of the message of the reason. It must not contain what the client sent.
    pub fn described(self, text: String) -> Self {
        self.with(|extras| extras.described = Some(text.into()))
    }

    /// Tells the client only that it may try again, whatever the reason. The log has the reason.
    pub fn as_temporary(self) -> Self {
        self.with(|extras| extras.is_temporary = true)
    }

    pub fn of_limit(mut self, limit: impl Into<Option<Limit>>) -> Self {
        self.limit = limit.into();
        self
    }

    /// The methods in `Allow` of a 405.
    pub fn allows(self, methods: &'static str) -> Self {
        self.with_allow(Some(HeaderValue::from_static(methods)))
    }

    /// As [`Reject::allows`].
    pub fn with_allow(self, methods: Option<HeaderValue>) -> Self {
        self.with(|extras| extras.allow = methods)
    }

    /// The scopes that a 403 requires, separated by spaces.
    pub fn needs_scope(self, scope: &str) -> Self {
        self.with(|extras| extras.scope = HeaderValue::from_str(scope).ok())
    }

    pub fn with_retry_after(self, wait: Duration) -> Self {
        self.with(|extras| extras.retry_after = Some(wait))
    }

    /// Where a browser can sign in, in the body of a 401.
    pub fn with_login_url(self, url: &str) -> Self {
        self.with(|extras| extras.login_url = Some(url.into()))
    }

    /// The client used the scheme Basic, so a 401 names that scheme (RFC 6749 section 5.2).
    pub fn of_basic(self) -> Self {
        self.with(|extras| extras.used_basic = true)
    }

    /// The nonce for the next proof.
    pub fn with_dpop_nonce(self, nonce: Option<HeaderValue>) -> Self {
        if nonce.is_none() { self } else { self.with(|extras| extras.dpop_nonce = nonce) }
    }

    fn with(mut self, set: impl FnOnce(&mut Extras)) -> Self {
        set(self.extras.get_or_insert_default());
        self
    }

    /// `error` in the body.
    pub fn public_code(&self) -> &'static str {
        if self.is_temporary() { TEMPORARY } else { self.reason.public_code() }
    }

    /// What the client reads.
    pub fn message(&self) -> &str {
        self.extra(|extras| extras.described.as_deref()).unwrap_or(self.reason.message())
    }

    pub fn allow(&self) -> Option<&HeaderValue> {
        self.extra(|extras| extras.allow.as_ref())
    }

    pub fn scope(&self) -> Option<&HeaderValue> {
        self.extra(|extras| extras.scope.as_ref())
    }

    pub fn retry_after(&self) -> Option<Duration> {
        let default = if self.is_temporary() { Some(RETRY_SOON) } else { self.reason.default_retry_after() };
        self.extra(|extras| extras.retry_after).or(default)
    }

    pub fn login_url(&self) -> Option<&str> {
        self.extra(|extras| extras.login_url.as_deref())
    }

    pub fn used_basic(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.used_basic)
    }

    pub fn dpop_nonce(&self) -> Option<&HeaderValue> {
        self.extra(|extras| extras.dpop_nonce.as_ref())
    }

    fn is_temporary(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.is_temporary)
    }

    fn extra<'r, T>(&'r self, read: impl FnOnce(&'r Extras) -> Option<T>) -> Option<T> {
        self.extras.as_deref().and_then(read)
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
