//! JSON as a token may carry it: one object, no member twice at any level, nothing nested deeply.
//!
//! serde_json's own `Value` keeps the last of two equal members; other readers keep the first. A token that two readers
//! understand differently is refused (HAProxy 2.6 and several libraries take it).

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};

/// Deeper nesting than this has no use in a token and only costs.
const MAX_DEPTH: usize = 16;

/// Reads one JSON object strictly. The error names what is wrong, never the text itself.
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
                return Err(de::Error::custom("a member stands twice"));
            };
            member.insert(members.next_value_seed(inner)?);
        }
        Ok(Value::Object(object))
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
    fn one_object_and_nothing_twice() {
        assert!(object(br#"{"a":[1,-2,0.5,"x",null,true],"b":{"c":{}}}"#).is_ok());
        let nested = |depth| format!("{}{}{}", r#"{"a":"#.repeat(depth), "1", "}".repeat(depth));
        assert!(object(nested(16).as_bytes()).is_ok());
        for refused in [
            r#"{"a":1,"a":1}"#,
            r#"{"b":{"a":1,"\u0061":2}}"#,
            r#"{"a":1}x"#,
            r#"{"a":1}{}"#,
            r#"{"a":1"#,
            "[]",
            "",
            &nested(17),
        ] {
            assert!(object(refused.as_bytes()).is_err(), "{refused}");
        }
    }
}
