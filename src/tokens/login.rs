//! A login, and the response headers in which a backend that has checked a password reports it. No I/O.
//!
//! Only the gateway sees these headers. It removes them from requests, in every spelling, so that a backend that echoes
//! request headers cannot be made to report a login. It removes them from every response, so that no client learns
//! them.

use std::net::IpAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::tokens::bound::Bound;
use crate::tokens::jwt::json;
use crate::tokens::scope::are_scope_tokens;

/// Claims that only the gateway sets. A login must not contain them.
pub const RESERVED_CLAIMS: &[&str] = &[
    "iss",
    "sub",
    "aud",
    "exp",
    "nbf",
    "iat",
    "auth_time",
    "auth_time_ms",
    "jti",
    "scope",
    "scp",
    "client_id",
    "client_auth",
    "sid",
    "rgn",
    "cnf",
    "act",
    "idp",
];

/// What the subject of a registered client's own tokens begins with (`[[oauth.client]]`). No login may have such a
/// subject, so that no user can become a client.
pub const CLIENT_SUBJECT_PREFIX: &str = "client|";

/// Maximum length of a subject in bytes (OpenID Connect Core section 2), without what precedes that of another issuer.
const MAX_SUBJECT: usize = 255;

/// What a family is created from. A lifetime longer than the configured one is shortened to it.
#[derive(Debug, Default, PartialEq)]
pub struct Login {
    pub subject: String,
    /// Length of what the gateway has put before the `sub` of another issuer, at most 64 bytes (`subject_prefix`).
    pub prefix_len: usize,
    pub scope: String,
    pub audience: Vec<String>,
    pub client_id: String,
    pub claims: Map<String, Value>,
    pub label: String,
    /// The address of the user, if it is known.
    pub address: Option<IpAddr>,
    pub idle: Option<Duration>,
    pub absolute: Option<Duration>,
    /// The key (DPoP) and the certificate of the client: all tokens of the login are bound to them.
    pub bound_to: Bound,
}

impl Login {
    /// Checks everything that becomes part of a token.
    pub fn check(&self) -> Result<(), LoginError> {
        if self.subject.is_empty() || self.subject.len() > MAX_SUBJECT + self.prefix_len {
            return Err(LoginError::SubjectLength);
        }
        if self.subject.starts_with(CLIENT_SUBJECT_PREFIX) {
            return Err(LoginError::ClientSubject);
        }
        if let Some(name) = self.claims.keys().find(|name| RESERVED_CLAIMS.contains(&name.as_str())) {
            return Err(LoginError::ReservedClaim(name.clone()));
        }
        if !are_scope_tokens(&self.scope) {
            return Err(LoginError::ScopeCharacter);
        }
        if self.idle == Some(Duration::ZERO) || self.absolute == Some(Duration::ZERO) {
            return Err(LoginError::ZeroLifetime);
        }
        Ok(())
    }
}

/// Why a login is rejected. The text names no value of a header: it is logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    #[error("sub must have 1 to 255 bytes")]
    SubjectLength,
    #[error("sub must not begin with {CLIENT_SUBJECT_PREFIX}, which is reserved for OAuth clients")]
    ClientSubject,
    #[error("only the gateway sets the claim {0}; remove it")]
    ReservedClaim(String),
    #[error("scope contains a character that RFC 6749 does not allow")]
    ScopeCharacter,
    #[error("idle and absolute must be at least 1 second")]
    ZeroLifetime,
    /// A header of this kind is not UTF-8.
    #[error("the {0} header is not UTF-8")]
    NotUtf8(&'static str),
    /// The response has several headers of this kind.
    #[error("the response has several {0} headers")]
    Repeated(&'static str),
    #[error("the response has no subject header")]
    NoSubject,
    #[error("the claims header is not a JSON object without duplicate members")]
    ClaimsNotAnObject,
}

/// `[login]`
#[derive(Clone, Debug, PartialEq)]
pub struct LoginSettings {
    pub headers: LoginHeaders,
    /// `login.max_response_size`: maximum size of a login response. A larger response is rejected.
    pub max_response_size: u64,
}

/// The response headers in which a backend reports a login.
#[derive(Clone, Debug, PartialEq)]
pub struct LoginHeaders {
    pub subject: HeaderName,
    /// Separated by spaces.
    pub scope: Option<HeaderName>,
    /// A JSON object.
    pub claims: Option<HeaderName>,
}

impl LoginHeaders {
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        [Some(&self.subject), self.scope.as_ref(), self.claims.as_ref()].into_iter().flatten()
    }

    /// Removes these headers from a response. Returns their values if there were any.
    pub fn take_from(&self, headers: &mut HeaderMap) -> Option<Box<LoginHeaderValues>> {
        if !headers.keys().any(|name| self.names().any(|ours| ours == name)) {
            return None;
        }
        let mut take = |name: &HeaderName| {
            let values = headers.get_all(name).iter().cloned().collect();
            headers.remove(name);
            values
        };
        let subject = take(&self.subject);
        let scope = self.scope.as_ref().map(&mut take).unwrap_or_default();
        let claims = self.claims.as_ref().map(take).unwrap_or_default();
        Some(Box::new(LoginHeaderValues { subject, scope, claims }))
    }
}

/// The login headers of one response, not checked yet.
pub struct LoginHeaderValues {
    subject: Vec<HeaderValue>,
    scope: Vec<HeaderValue>,
    claims: Vec<HeaderValue>,
}

impl LoginHeaderValues {
    /// The login that the headers describe.
    pub fn login(&self) -> Result<Login, LoginError> {
        let claims = match text("claims", &self.claims)? {
            Some(text) => json::object(text.as_bytes()).map_err(|_| LoginError::ClaimsNotAnObject)?,
            None => Map::new(),
        };
        let login = Login {
            subject: text("subject", &self.subject)?.ok_or(LoginError::NoSubject)?.to_owned(),
            scope: text("scope", &self.scope)?.unwrap_or_default().to_owned(),
            claims,
            ..Login::default()
        };
        login.check()?;
        Ok(login)
    }
}

/// At most one value: of two, an attacker might have added one.
fn text<'s>(what: &'static str, values: &'s [HeaderValue]) -> Result<Option<&'s str>, LoginError> {
    match values {
        [] => Ok(None),
        [one] => str::from_utf8(one.as_bytes()).map(Some).map_err(|_| LoginError::NotUtf8(what)),
        _ => Err(LoginError::Repeated(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_become_part_of_a_token_is_accepted() {
        let login = |subject: &str| Login { subject: subject.into(), ..Login::default() };
        let with_claim = |name: &str| {
            let claims = Map::from_iter([(name.to_owned(), Value::Null)]);
            Login { claims, ..login("alice") }
        };
        let zero = Some(Duration::ZERO);
        let second = Some(Duration::from_secs(1));
        for (login, expected) in [
            (login("a"), Ok(())),
            (login(&"a".repeat(255)), Ok(())),
            (login(""), Err(LoginError::SubjectLength)),
            (login(&"a".repeat(256)), Err(LoginError::SubjectLength)),
            (Login { prefix_len: 5, ..login(&"a".repeat(260)) }, Ok(())),
            (Login { prefix_len: 5, ..login(&"a".repeat(261)) }, Err(LoginError::SubjectLength)),
            (login("client|ci"), Err(LoginError::ClientSubject)),
            (login("client"), Ok(())),
            (with_claim("role"), Ok(())),
            (with_claim("idp"), Err(LoginError::ReservedClaim("idp".into()))),
            (Login { scope: "read write".into(), ..login("a") }, Ok(())),
            (Login { scope: "read\twrite".into(), ..login("a") }, Err(LoginError::ScopeCharacter)),
            (Login { idle: second, absolute: second, ..login("a") }, Ok(())),
            (Login { idle: zero, ..login("a") }, Err(LoginError::ZeroLifetime)),
            (Login { absolute: zero, ..login("a") }, Err(LoginError::ZeroLifetime)),
        ] {
            assert_eq!(login.check(), expected, "{login:?}");
        }
    }
}
