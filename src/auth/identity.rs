//! What the upstream is told about who is asking: which headers, and what a token says as their values. Pure.
//!
//! One set of names for all routes, so that a name means the same wherever it arrives and what a client sends under it is
//! removed everywhere; and a token's values are written once, when it is verified, not once a request.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::tokens::jwt::VerifiedToken;
use crate::tokens::jwt::pointer::Pointer;

/// `[identity]`: whatever the client sent under these names, in any spelling, is removed first.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    pub subject: Option<HeaderName>,
    pub scope: Option<HeaderName>,
    pub token_id: Option<HeaderName>,
    pub issuer: Option<HeaderName>,
    /// `[[identity.claim]]`
    pub claims: Vec<(Pointer, HeaderName)>,
}

impl Identity {
    /// Every name that only the gateway may set.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        let four = [&self.subject, &self.scope, &self.token_id, &self.issuer];
        four.into_iter().flatten().chain(self.claims.iter().map(|(_, name)| name))
    }

    /// The headers of a token, ready to be put on each of its requests.
    pub fn of(&self, token: &VerifiedToken) -> Vec<(HeaderName, HeaderValue)> {
        let token_id = token.family.map(|id| id.to_string()).or_else(|| token.jti.clone());
        let four = [
            (&self.subject, Some(token.subject.clone()).filter(|subject| !subject.is_empty())),
            (&self.scope, Some(token.scope.join(" "))),
            (&self.token_id, token_id),
            (&self.issuer, Some(token.issuer.to_string())),
        ];
        let four = four.into_iter().filter_map(|(name, value)| Some((name.clone()?, encode(&value?, b"%"))));
        let claims = self.claims.iter().filter_map(|(pointer, name)| {
            let value = claim_text(pointer.find(&token.claims)?)?;
            Some((name.clone(), value))
        });
        side_by_side(four.chain(claims).collect())
    }
}

/// Values that lie in one piece of memory and are counted together: a request puts all of them in its head, and would find
/// each somewhere else.
fn side_by_side(texts: Vec<(HeaderName, String)>) -> Vec<(HeaderName, HeaderValue)> {
    let mut rest = Bytes::from(texts.iter().map(|(_, text)| text.as_str()).collect::<String>());
    let value = |bytes: Bytes| HeaderValue::from_maybe_shared(bytes);
    // What is encoded holds printable ASCII alone, which every header can carry.
    let empty = HeaderValue::from_static("");
    texts.into_iter().map(|(name, text)| (name, value(rest.split_to(text.len())).unwrap_or(empty.clone()))).collect()
}

/// A claim as text: a string, number, true or false as it is; a list of these with commas between, and a comma inside one
/// of them encoded, so that nobody can make two roles of one. Nothing for `null`, objects and lists of lists.
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

/// Percent-encodes (RFC 3986) what a header cannot carry, control characters and non-ASCII, and the characters in `also`:
/// nothing that a token says can end the header and begin another. So are spaces at either end, which a reader would trim:
/// ` alice` is not `alice`.
fn encode(text: &str, also: &[u8]) -> String {
    let kept = text.trim_matches(' ');
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !also.contains(&byte);
    if kept.len() == text.len() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    let start = text.len() - text.trim_start_matches(' ').len();
    let mut safe = String::with_capacity(text.len());
    for (place, byte) in text.bytes().enumerate() {
        let inside = (start..start + kept.len()).contains(&place);
        match byte {
            _ if inside && is_plain(byte) => safe.push(char::from(byte)),
            _ => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    safe
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
    fn each_claim_has_one_reading() {
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
