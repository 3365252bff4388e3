//! Subject identifiers (RFC 9493, and the complex subjects of SSF section 3): which user or session an event is about.

use serde_json::{Map, Value};

use super::claims::required_id;
use crate::tokens::jwt::json::quoted;

/// The subject of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectId {
    /// `iss_sub`: a user.
    User { issuer: String, subject: String },
    /// `opaque`: a session or a stream.
    Opaque(String),
    /// `complex`: all of its members hold together.
    Complex { user: Option<Box<SubjectId>>, session: Option<Box<SubjectId>>, others: Vec<String> },
    /// A format that says nothing to the gateway: an e-mail address, a phone number, a URI.
    Other(String),
}

/// Reads `sub_id`. The error is for the log.
pub(super) fn read(value: &Value) -> Result<SubjectId, String> {
    let members = value.as_object().ok_or("sub_id is not an object")?;
    let format = required_id(members, "format")?;
    match &*format {
        "complex" => complex(members),
        _ => simple(members, &format),
    }
}

/// Reads `subject` of an event in the form of earlier drafts, with `subject_type`.
pub(super) fn read_legacy(value: &Value) -> Result<SubjectId, String> {
    let members = value.as_object().ok_or("subject is not an object")?;
    let named = if members.contains_key("format") { "format" } else { "subject_type" };
    match &*required_id(members, named)? {
        "complex" => complex(members),
        "iss-sub" | "id-token-claims" => simple(members, "iss_sub"),
        format => simple(members, format),
    }
}

fn simple(members: &Map<String, Value>, format: &str) -> Result<SubjectId, String> {
    match format {
        "iss_sub" => {
            let issuer = required_id(members, "iss")?;
            let subject = required_id(members, "sub")?;
            Ok(SubjectId::User { issuer, subject })
        }
        "opaque" => required_id(members, "id").map(SubjectId::Opaque),
        // A complex subject has only simple members (SSF section 3.2).
        "complex" => Err("a complex subject is inside another one".into()),
        other => Ok(SubjectId::Other(other.to_owned())),
    }
}

fn complex(members: &Map<String, Value>) -> Result<SubjectId, String> {
    let member = |name: &'static str| -> Result<Option<Box<SubjectId>>, String> {
        let Some(value) = members.get(name) else { return Ok(None) };
        let inner = value.as_object().ok_or_else(|| format!("{name} of sub_id is not an object"))?;
        simple(inner, &required_id(inner, "format")?).map(|id| Some(Box::new(id)))
    };
    let known = ["format", "subject_type", "user", "session"];
    let others = members.keys().filter(|name| !known.contains(&name.as_str()));
    let others: Vec<_> = others.map(|name| quoted(Some(name))).collect();
    Ok(SubjectId::Complex { user: member("user")?, session: member("session")?, others })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn user() -> SubjectId {
        SubjectId::User { issuer: "https://a.example".into(), subject: "alice".into() }
    }

    #[test]
    fn each_format_is_read() {
        let alice = json!({ "format": "iss_sub", "iss": "https://a.example", "sub": "alice" });
        let s1 = json!({ "format": "opaque", "id": "s1" });
        let session = || Some(Box::new(SubjectId::Opaque("s1".into())));
        for (value, expected) in [
            (alice.clone(), user()),
            (s1.clone(), SubjectId::Opaque("s1".into())),
            (json!({ "format": "email", "email": "a@a.example" }), SubjectId::Other("email".into())),
            (
                json!({ "format": "complex", "user": alice, "session": s1, "tenant": s1 }),
                SubjectId::Complex {
                    user: Some(Box::new(user())),
                    session: session(),
                    others: vec!["\"tenant\"".into()],
                },
            ),
            (
                json!({ "format": "complex", "session": s1 }),
                SubjectId::Complex { user: None, session: session(), others: Vec::new() },
            ),
        ] {
            assert_eq!(read(&value), Ok(expected), "{value}");
        }
    }

    #[test]
    fn a_subject_without_its_members_is_rejected() {
        for value in [
            json!(null),
            json!("alice"),
            json!([]),
            json!({}),
            json!({ "format": 7 }),
            json!({ "format": "iss_sub", "sub": "alice" }),
            json!({ "format": "iss_sub", "iss": "https://a.example" }),
            json!({ "format": "iss_sub", "iss": "https://a.example", "sub": "" }),
            json!({ "format": "opaque" }),
            json!({ "format": "complex", "user": "alice" }),
            json!({ "format": "complex", "user": { "format": "complex", "user": {} } }),
            json!({ "format": "complex", "session": { "format": "opaque" } }),
        ] {
            assert!(read(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn the_form_of_earlier_drafts_is_read() {
        for value in [
            json!({ "subject_type": "iss-sub", "iss": "https://a.example", "sub": "alice" }),
            json!({ "subject_type": "iss_sub", "iss": "https://a.example", "sub": "alice" }),
            json!({ "format": "iss_sub", "iss": "https://a.example", "sub": "alice" }),
        ] {
            assert_eq!(read_legacy(&value), Ok(user()), "{value}");
            assert!(value.get("format").is_some() || read(&value).is_err(), "{value}");
        }
    }
}
