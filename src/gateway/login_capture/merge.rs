//! Adds the members of a token pair to the JSON object of a backend. Every byte of the backend stays as it is. Pure.
//!
//! The object is not parsed and written again: long numbers, the order of members and escapes would not survive that.

use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::broker::TokenPair;

/// Why a token pair cannot be added to the body of a login response.
#[derive(Debug)]
pub(super) enum MergeError {
    NotUtf8,
    NotAnObject,
    /// The backend's object has a member with a name of ours.
    MemberExists(String),
    /// The token pair could not be written as JSON.
    Pair,
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::NotUtf8 => f.write_str("the body of the login response is not UTF-8"),
            MergeError::NotAnObject => f.write_str("the body of the login response is not a JSON object"),
            MergeError::MemberExists(name) => write!(f, "the body of the login response already has a member `{name}`"),
            MergeError::Pair => f.write_str("cannot write the token pair as JSON"),
        }
    }
}

impl std::error::Error for MergeError {}

/// The object in the backend's response.
#[derive(Debug)]
pub(super) struct JsonObject<'c> {
    /// The text up to the closing brace.
    open: &'c str,
    is_empty: bool,
    /// The backend's own object contains `"success": true`.
    says_success: bool,
}

impl<'c> JsonObject<'c> {
    /// Rejects an object with a member of `ours`: a client could not tell which value it reads. `"success": true` is
    /// allowed, because many backends send it and both mean the same. The error repeats nothing of the content.
    pub(super) fn read(content: &'c [u8], ours: &[&str]) -> Result<Self, MergeError> {
        let text = str::from_utf8(content).map_err(|_| MergeError::NotUtf8)?;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let names = deserializer.deserialize_map(Names { ours }).map_err(|_| MergeError::NotAnObject)?;
        deserializer.end().map_err(|_| MergeError::NotAnObject)?;
        let open = text.trim_end().strip_suffix('}').ok_or(MergeError::NotAnObject)?;
        match names.taken {
            Some(member) => Err(MergeError::MemberExists(member)),
            None => Ok(JsonObject { open, is_empty: names.is_empty, says_success: names.says_success }),
        }
    }

    pub(super) fn with(&self, pair: &TokenPair) -> Result<Vec<u8>, MergeError> {
        let Ok(Value::Object(mut ours)) = serde_json::to_value(pair) else { return Err(MergeError::Pair) };
        if self.says_success {
            ours.remove("success");
        }
        let ours = Value::Object(ours).to_string();
        let comma = if self.is_empty { "" } else { "," };
        Ok([self.open, comma, &ours[1..]].concat().into_bytes())
    }
}

struct BackendObject {
    is_empty: bool,
    says_success: bool,
    taken: Option<String>,
}

struct Names<'o> {
    ours: &'o [&'o str],
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = BackendObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<BackendObject, A::Error> {
        let mut found = BackendObject { is_empty: true, says_success: false, taken: None };
        while let Some(name) = members.next_key::<String>()? {
            found.is_empty = false;
            if !self.ours.contains(&name.as_str()) {
                members.next_value::<IgnoredAny>()?;
            } else if members.next_value::<Value>()? == Value::Bool(true) && name == "success" && !found.says_success {
                found.says_success = true;
            } else {
                found.taken = Some(name);
            }
        }
        Ok(found)
    }
}
