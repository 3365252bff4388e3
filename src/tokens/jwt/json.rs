//! The JSON of tokens, read strictly: one object, no duplicate member at any level, limited nesting.
//!
//! serde_json's own `Value` keeps the last of two members with the same name; other readers keep the first. A token
//! that two readers understand differently is rejected (HAProxy 2.6 and several libraries accept it).

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};

use crate::types::clock::UnixTime;

/// Maximum nesting. No real token needs more, and each level costs time and stack.
const MAX_DEPTH: usize = 16;

/// Reads one JSON object strictly. The error never quotes the input, which may be a secret.
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = StrictJson { depth: 0 }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(de::Error::custom("not an object")),
    }
}

#[derive(Clone, Copy)]
struct StrictJson {
    depth: usize,
}

impl StrictJson {
    fn deeper<E: de::Error>(self) -> Result<StrictJson, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom("nested too deeply"));
        }
        Ok(StrictJson { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for StrictJson {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJson {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(Name(name)) = members.next_key()? {
            let Entry::Vacant(member) = object.entry(name) else {
                return Err(de::Error::custom("duplicate member"));
            };
            member.insert(members.next_value_seed(inner)?);
        }
        Ok(Value::Object(object))
    }
}

/// The member as a string, if it is there.
pub(crate) fn optional_str<'m>(
    object: &'m Map<String, Value>,
    name: &'static str,
) -> Result<Option<&'m str>, NotAString> {
    match object.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(NotAString(name)),
    }
}

/// A member that must be a string has another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a string")]
pub struct NotAString(&'static str);

/// A NumericDate (RFC 7519 section 2): seconds, possibly with a fraction. Strings, negative numbers and dates after the
/// year 9999 are rejected. In CVE-2026-25537 a reader treated such an `exp` as missing.
pub(crate) fn optional_date(object: &Map<String, Value>, name: &'static str) -> Result<Option<UnixTime>, NotADate> {
    const YEAR_10000: f64 = 253_402_300_800.0;
    let Some(value) = object.get(name) else { return Ok(None) };
    match value.as_f64() {
        Some(secs) if (0.0..YEAR_10000).contains(&secs) => Ok(Some(UnixTime::from_millis((secs * 1000.0) as u64))),
        _ => Err(NotADate(name)),
    }
}

/// A member that must be a NumericDate is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a NumericDate")]
pub struct NotADate(&'static str);

/// Text from a client, for the log: quoted, escaped, and cut after 64 characters.
pub(crate) fn quoted(text: Option<&str>) -> String {
    match text {
        None => "(none)".into(),
        Some(text) => format!("{:?}", text.chars().take(64).collect::<String>()),
    }
}

struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_no_duplicate_members_and_limited_nesting() {
        assert!(object(br#"{"a":[1,-2,0.5,"x",null,true],"b":{"c":{}}}"#).is_ok());
        let nested = |depth| format!("{}{}{}", r#"{"a":"#.repeat(depth), "1", "}".repeat(depth));
        assert!(object(nested(16).as_bytes()).is_ok());
        for rejected in [
            r#"{"a":1,"a":1}"#,
            r#"{"b":{"a":1,"\u0061":2}}"#,
            r#"{"a":1}x"#,
            r#"{"a":1}{}"#,
            r#"{"a":1"#,
            "[]",
            "",
            &nested(17),
        ] {
            assert!(object(rejected.as_bytes()).is_err(), "{rejected}");
        }
    }
}
