//! A login: what it is made of, and how a backend that has checked somebody's password says so, in headers of its answer. Pure.
//!
//! The headers are between the backend and the gateway. A client's are removed on the way in, in every spelling, and a
//! backend's on the way out, whatever the route: nobody learns them, and no backend that echoes what it is sent can be made
//! to say them.

use std::net::IpAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::tokens::jwt::json;

/// Claims that only the gateway sets. A login cannot bring its own.
pub const RESERVED_CLAIMS: &[&str] =
    &["iss", "sub", "aud", "exp", "nbf", "iat", "jti", "scope", "scp", "client_id", "sid", "rgn", "cnf", "act"];

/// What a family is made from. A lifetime that is longer than the configured one is that one.
#[derive(Debug, Default, PartialEq)]
pub struct Login {
    pub subject: String,
    pub scope: String,
    pub audience: Vec<String>,
    pub client_id: String,
    pub claims: Map<String, Value>,
    pub label: String,
    /// Where the user is, if whoever asks knows.
    pub address: Option<IpAddr>,
    pub idle: Option<Duration>,
    pub absolute: Option<Duration>,
}

impl Login {
    /// Whoever asks for it, what is in it ends up in tokens.
    pub fn check(&self) -> Result<(), String> {
        if self.subject.is_empty() || self.subject.len() > 255 {
            return Err("sub must have 1 to 255 bytes".into());
        }
        if let Some(name) = self.claims.keys().find(|name| RESERVED_CLAIMS.contains(&name.as_str())) {
            return Err(format!("the claim {name} is the gateway's own to set"));
        }
        // RFC 6749 section 3.3: printable ASCII without quote and backslash, spaces between.
        let scope_character = |byte: u8| matches!(byte, 0x20 | 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        if !self.scope.bytes().all(scope_character) {
            return Err("scope holds a character that no scope may have".into());
        }
        if self.idle == Some(Duration::ZERO) || self.absolute == Some(Duration::ZERO) {
            return Err("idle and absolute are at least 1 second".into());
        }
        Ok(())
    }
}

/// `[login]`
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub headers: LoginHeaders,
    /// `login.max_response_size`: a longer answer of a backend is not captured, and not let through.
    pub max_response_size: u64,
}

/// In which headers a backend says who has logged in.
#[derive(Clone, Debug, PartialEq)]
pub struct LoginHeaders {
    pub subject: HeaderName,
    /// Space separated.
    pub scope: Option<HeaderName>,
    /// A JSON object.
    pub claims: Option<HeaderName>,
}

impl LoginHeaders {
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        [Some(&self.subject), self.scope.as_ref(), self.claims.as_ref()].into_iter().flatten()
    }

    /// What an answer says in these headers, if it has any of them; none is left in it.
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

/// What a backend said, word for word.
pub struct LoginHeaderValues {
    subject: Vec<HeaderValue>,
    scope: Vec<HeaderValue>,
    claims: Vec<HeaderValue>,
}

impl LoginHeaderValues {
    /// The login it means. The fault names no value: it goes into a log.
    pub fn login(&self) -> Result<Login, String> {
        let claims = match text("claims", &self.claims)? {
            Some(text) => {
                json::object(text.as_bytes()).map_err(|_| "the claims are not one JSON object, each member once")?
            }
            None => Map::new(),
        };
        let login = Login {
            subject: text("subject", &self.subject)?.ok_or("no subject is said")?.to_owned(),
            scope: text("scope", &self.scope)?.unwrap_or_default().to_owned(),
            claims,
            ..Login::default()
        };
        login.check()?;
        Ok(login)
    }
}

/// One value, or none: of two, somebody else might have added one.
fn text<'s>(what: &str, values: &'s [HeaderValue]) -> Result<Option<&'s str>, String> {
    match values {
        [] => Ok(None),
        [one] => str::from_utf8(one.as_bytes()).map(Some).map_err(|_| format!("the {what} is not UTF-8")),
        _ => Err(format!("the {what} is said twice")),
    }
}
