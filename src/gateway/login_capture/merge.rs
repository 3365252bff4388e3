//! The members of a token pair in a JSON object of somebody else, of which every byte stays as it is. Pure.
//!
//! It is not written anew: a number of more digits than ours has, the order of members, their escapes would not survive that.

use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::broker::TokenPair;

/// A backend's object.
#[derive(Debug)]
pub(super) struct JsonObject<'c> {
    /// Up to its closing brace.
    open: &'c str,
    is_empty: bool,
    /// It says `"success": true` itself.
    says_success: bool,
}

impl<'c> JsonObject<'c> {
    /// Its names must not be among `ours`: a client could not tell whose value it reads. `"success": true` is an exception,
    /// as many answers have it, and both mean the same. The fault names nothing that stands in the content.
    pub(super) fn read(content: &'c [u8], ours: &[&str]) -> Result<Self, String> {
        let text = str::from_utf8(content).map_err(|_| "its body is not UTF-8")?;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let names = deserializer.deserialize_map(Names { ours }).ok().filter(|_| deserializer.end().is_ok());
        let (Some(names), Some(open)) = (names, text.trim_end().strip_suffix('}')) else {
            return Err("its body is not a JSON object".into());
        };
        match names.taken {
            Some(name) => Err(format!("its body has a member `{name}` of its own")),
            None => Ok(JsonObject { open, is_empty: names.is_empty, says_success: names.says_success }),
        }
    }

    pub(super) fn with(&self, pair: &TokenPair) -> Result<Vec<u8>, String> {
        let mut ours = match serde_json::to_value(pair) {
            Ok(Value::Object(ours)) => ours,
            Ok(_) => return Err("the pair is not an object".into()),
            Err(error) => return Err(error.to_string()),
        };
        if self.says_success {
            ours.remove("success");
        }
        let ours = Value::Object(ours).to_string();
        let comma = if self.is_empty { "" } else { "," };
        Ok([self.open, comma, &ours[1..]].concat().into_bytes())
    }
}

struct Found {
    is_empty: bool,
    says_success: bool,
    taken: Option<String>,
}

struct Names<'o> {
    ours: &'o [&'o str],
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Found, A::Error> {
        let mut found = Found { is_empty: true, says_success: false, taken: None };
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
