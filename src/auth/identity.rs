//! The identity headers that the upstream receives: their names, and their values from the token. Pure.
//!
//! All routes share one set of names, so that the gateway can remove these headers from every request of a client. The
//! values of a token are encoded once, when it is verified, not on every request.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::protocols::tls::{ClientCertificate, Name};
use crate::tokens::jwt::VerifiedToken;
use crate::tokens::jwt::pointer::Pointer;

/// The names without `[identity]`, in the order of the fields. A backend may trust them also after the operator has
/// renamed one or turned it off, so no client may ever send them.
pub static DEFAULT_NAMES: [HeaderName; 4] = [
    HeaderName::from_static("x-auth-subject"),
    HeaderName::from_static("x-auth-scope"),
    HeaderName::from_static("x-auth-token-id"),
    HeaderName::from_static("x-auth-issuer"),
];

/// `[identity]`. Headers that the client sent under these names, in any spelling, are removed before these are set.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    pub subject: Option<HeaderName>,
    pub scope: Option<HeaderName>,
    pub token_id: Option<HeaderName>,
    pub issuer: Option<HeaderName>,
    /// `[[identity.claim]]`
    pub claims: Vec<(Pointer, HeaderName)>,
    pub certificate: CertificateHeaders,
}

/// The headers about the client's certificate. Each is off by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CertificateHeaders {
    pub subject: Option<HeaderName>,
    pub dns: Option<HeaderName>,
    pub uri: Option<HeaderName>,
    pub ip: Option<HeaderName>,
    pub email: Option<HeaderName>,
    pub sha256: Option<HeaderName>,
}

impl CertificateHeaders {
    fn names(&self) -> impl Iterator<Item = &HeaderName> {
        [&self.subject, &self.dns, &self.uri, &self.ip, &self.email, &self.sha256].into_iter().flatten()
    }

    /// The headers of a request with this certificate. A certificate that no authority has verified gives only its
    /// thumbprint: its holder can have written any name in it.
    pub fn of(&self, certificate: &ClientCertificate) -> Vec<(HeaderName, HeaderValue)> {
        let list = |pick: fn(&Name) -> Option<String>| {
            let names = certificate.names.iter().filter_map(pick);
            Some(names.map(|name| encode(&name, b"%,")).collect::<Vec<_>>().join(",")).filter(|list| !list.is_empty())
        };
        let subject = Some(encode(&certificate.subject, b"%")).filter(|subject| !subject.is_empty());
        let named = [
            (&self.subject, subject),
            (&self.dns, list(Name::dns)),
            (&self.uri, list(Name::uri)),
            (&self.ip, list(Name::ip)),
            (&self.email, list(Name::email)),
        ];
        let named = certificate.is_verified.then_some(named).into_iter().flatten();
        let all = named.chain([(&self.sha256, Some(certificate.thumbprint_text()))]);
        in_one_buffer(all.filter_map(|(name, value)| Some((name.clone()?, value?))).collect())
    }
}

impl Identity {
    /// The names that the gateway sets.
    pub fn set_names(&self) -> impl Iterator<Item = &HeaderName> {
        let four = [&self.subject, &self.scope, &self.token_id, &self.issuer];
        let claims = self.claims.iter().map(|(_, name)| name);
        four.into_iter().flatten().chain(claims).chain(self.certificate.names())
    }

    /// All names that no client may send.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.set_names().chain(&DEFAULT_NAMES)
    }

    /// The identity headers of a token, which are set on each of its requests.
    pub fn of(&self, token: &VerifiedToken) -> Vec<(HeaderName, HeaderValue)> {
        let four = [
            (&self.subject, Some(token.subject.clone()).filter(|subject| !subject.is_empty())),
            (&self.scope, Some(token.scope.join(" "))),
            // The `jti` of another issuer could be equal to a token id of this gateway.
            (&self.token_id, token.family.map(|id| id.to_string())),
            (&self.issuer, Some(token.issuer.to_string())),
        ];
        let four = four.into_iter().filter_map(|(name, value)| Some((name.clone()?, encode(&value?, b"%"))));
        let claims = self.claims.iter().filter_map(|(pointer, name)| {
            let value = claim_text(pointer.find(&token.claims)?)?;
            Some((name.clone(), value))
        });
        in_one_buffer(four.chain(claims).collect())
    }
}

/// Puts all values into one shared buffer: a request clones all of them, and separate buffers would each cost a cache
/// miss.
fn in_one_buffer(texts: Vec<(HeaderName, String)>) -> Vec<(HeaderName, HeaderValue)> {
    let mut rest = Bytes::from(texts.iter().map(|(_, text)| text.as_str()).collect::<String>());
    let value = |bytes: Bytes| HeaderValue::from_maybe_shared(bytes);
    // Encoded text is printable ASCII, which is always a valid header value.
    let empty = HeaderValue::from_static("");
    texts.into_iter().map(|(name, text)| (name, value(rest.split_to(text.len())).unwrap_or(empty.clone()))).collect()
}

/// A claim as text: strings, numbers and booleans as they are, a list of these joined by commas. A comma inside a
/// string is encoded, so that one role cannot become two. `None` for `null`, objects and nested lists.
fn claim_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(encode(text, b"%,")),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Array(items) if !items.iter().any(Value::is_array) => {
            items.iter().map(claim_text).collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        _ => None,
    }
}

/// Percent-encodes (RFC 3986) control characters, non-ASCII and the characters in `also`: no claim can end its header
/// and begin another one. Spaces at either end are encoded too, because readers trim them: ` alice` is not `alice`.
fn encode(text: &str, also: &[u8]) -> String {
    let trimmed = text.trim_matches(' ');
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !also.contains(&byte);
    if trimmed.len() == text.len() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    let start = text.len() - text.trim_start_matches(' ').len();
    let mut encoded = String::with_capacity(text.len());
    for (index, byte) in text.bytes().enumerate() {
        let inside = (start..start + trimmed.len()).contains(&index);
        match byte {
            _ if inside && is_plain(byte) => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_cannot_break_out_of_its_header() {
        assert_eq!(encode("a\r\nb: é%", b"%"), "a%0D%0Ab: %C3%A9%25");
        assert_eq!(encode("  a b ", b"%"), "%20%20a b%20");
        assert_eq!(encode("  ", b"%"), "%20%20");
        assert_eq!(encode("Doe, John", b"%"), "Doe, John");
    }

    #[test]
    fn encodes_each_claim_unambiguously() {
        for (value, text) in [
            (json!("acme"), Some("acme")),
            (json!("Doe, J"), Some("Doe%2C J")),
            (json!(["a", "b,c", 7, true]), Some("a,b%2Cc,7,true")),
            (json!([]), Some("")),
            (json!(["%2C"]), Some("%252C")),
            (json!(-1.5), Some("-1.5")),
            (json!(false), Some("false")),
            (json!(null), None),
            (json!({ "a": 1 }), None),
            (json!(["a", null]), None),
            (json!(["a", ["b"]]), None),
        ] {
            assert_eq!(claim_text(&value).as_deref(), text, "{value}");
        }
    }
}
