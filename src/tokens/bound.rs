//! The key and the certificate that a token is bound to (the claim `cnf`, RFC 7800), and what a client has proved.
//! Pure.

use serde_json::{Map, Value};

use crate::types::thumbprint::Thumbprint;

/// The key and the certificate of a client. Of a token: with both, the client must prove both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// `jkt` (RFC 9449 section 6.1).
    pub key: Option<Thumbprint>,
    /// `x5t#S256` (RFC 8705 section 3.1).
    pub certificate: Option<Thumbprint>,
}

impl Bound {
    /// The value of `cnf`. `None` for a bearer token.
    pub fn claim(self) -> Option<Value> {
        let members = [("jkt", self.key), ("x5t#S256", self.certificate)].into_iter();
        let members: Map<_, _> =
            members.filter_map(|(name, value)| Some((name.to_owned(), value?.to_string().into()))).collect();
        Some(members).filter(|members| !members.is_empty()).map(Value::Object)
    }

    /// What `cnf` in the claims of a family says. Only the gateway writes it.
    pub fn of_family(claims: &Map<String, Value>) -> Bound {
        let read = |name: &str| Thumbprint::parse(claims.get("cnf")?.get(name)?.as_str()?);
        Bound { key: read("jkt"), certificate: read("x5t#S256") }
    }

    /// Where this has nothing, what the other one has.
    pub fn or(self, other: Bound) -> Bound {
        Bound { key: self.key.or(other.key), certificate: self.certificate.or(other.certificate) }
    }

    /// Without the certificate, unless tokens are to be bound to it.
    pub fn with_certificate_if(self, is_wanted: bool) -> Bound {
        Bound { certificate: if is_wanted { self.certificate } else { None }, ..self }
    }
}

/// A client that asks for tokens, with what it has proved.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProvedClient {
    /// What it has proved.
    pub proved: Bound,
    /// It is a registered client, and has authenticated.
    pub is_authenticated: bool,
    /// What new tokens are bound to, if their family is not bound.
    pub bind: Bound,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_names_what_there_is() {
        let text = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";
        let one = Thumbprint::parse(text);
        for (bound, expected) in [
            (Bound::default(), None),
            (Bound { key: one, certificate: None }, Some(json!({ "jkt": text }))),
            (Bound { key: None, certificate: one }, Some(json!({ "x5t#S256": text }))),
            (Bound { key: one, certificate: one }, Some(json!({ "jkt": text, "x5t#S256": text }))),
        ] {
            assert_eq!(bound.claim(), expected);
            let claims = expected.map(|cnf| ("cnf".to_owned(), cnf)).into_iter().collect();
            assert_eq!(Bound::of_family(&claims), bound);
            assert_eq!(bound.or(Bound::default()), bound);
            assert_eq!(Bound::default().or(bound), bound);
            assert_eq!(bound.with_certificate_if(false).certificate, None);
            assert_eq!(bound.with_certificate_if(true), bound);
        }
    }
}
