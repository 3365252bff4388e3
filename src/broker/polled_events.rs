//! Reads the response to a poll (RFC 8936 section 2.3), up to the number of events that the gateway asked for.
//!
//! Each event costs memory, and time of the control thread. A transmitter may send more of them than it was asked for:
//! the rest is skipped and not answered, so that the transmitter sends it again.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;

/// Maximum number of events in one response.
pub(super) const MAX_EVENTS: usize = 100;

#[derive(Debug, Default, PartialEq)]
pub(super) struct PolledEvents {
    /// By `jti`.
    pub(super) events: Vec<(String, String)>,
    /// How many more the response has.
    pub(super) skipped: usize,
}

/// Why a response cannot be used. Never quotes it: it may have tokens.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(super) enum BadResponse {
    #[error("the response is not JSON")]
    NotJson,
    #[error("the response has no member sets with a text for each jti")]
    NoEvents,
}

/// `moreAvailable` changes nothing: after new events, the next poll comes at once.
pub(super) fn read(content: &[u8]) -> Result<PolledEvents, BadResponse> {
    match serde_json::from_slice(content) {
        Ok(Response(Some(events))) => Ok(events),
        Ok(Response(None)) => Err(BadResponse::NoEvents),
        Err(error) if error.classify() == Category::Data => Err(BadResponse::NoEvents),
        Err(_) => Err(BadResponse::NotJson),
    }
}

struct Response(Option<PolledEvents>);

impl<'de> Deserialize<'de> for Response {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ResponseVisitor)
    }
}

struct ResponseVisitor;

impl<'de> Visitor<'de> for ResponseVisitor {
    type Value = Response;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Response, A::Error> {
        let mut events = None;
        while let Some(name) = members.next_key::<String>()? {
            if name != "sets" {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            if events.replace(members.next_value()?).is_some() {
                return Err(de::Error::duplicate_field("sets"));
            }
        }
        Ok(Response(events))
    }
}

impl<'de> Deserialize<'de> for PolledEvents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EventsVisitor)
    }
}

struct EventsVisitor;

impl<'de> Visitor<'de> for EventsVisitor {
    type Value = PolledEvents;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a text for each jti")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<PolledEvents, A::Error> {
        let mut polled = PolledEvents::default();
        while polled.events.len() < MAX_EVENTS {
            let Some((jti, token)) = members.next_entry::<String, String>()? else { return Ok(polled) };
            if polled.events.iter().any(|(known, _)| *known == jti) {
                return Err(de::Error::custom("a jti is repeated"));
            }
            polled.events.push((jti, token));
        }
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            polled.skipped += 1;
        }
        Ok(polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_a_token_for_each_jti() {
        let response = |events: &[(&str, &str)]| {
            let events = events.iter().map(|(jti, token)| ((*jti).to_owned(), (*token).to_owned())).collect();
            Ok(PolledEvents { events, skipped: 0 })
        };
        let no_events = || Err(BadResponse::NoEvents);
        let not_json = || Err(BadResponse::NotJson);
        for (text, expected) in [
            (r#"{"sets":{}}"#, response(&[])),
            (r#"{"sets":{"a":"x.y.z","b":"u.v.w"},"moreAvailable":true}"#, response(&[("a", "x.y.z"), ("b", "u.v.w")])),
            (r#"{"sets":{},"moreAvailable":true}"#, response(&[])),
            (r#"{"sets":{"a":{}}}"#, no_events()),
            (r#"{"sets":["a"]}"#, no_events()),
            (r#"{"sets":"a secret"}"#, no_events()),
            (r#"{"sets":{"a":"x","a":"y"}}"#, no_events()),
            (r#"{"sets":{},"sets":{"a":"x"}}"#, no_events()),
            ("{}", no_events()),
            ("[]", no_events()),
            ("{", not_json()),
            (r#"{"sets":{}} x"#, not_json()),
            ("", not_json()),
        ] {
            assert_eq!(read(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn events_beyond_the_maximum_are_skipped() {
        for (number, skipped) in [(99, 0), (100, 0), (101, 1), (20_000, 19_900)] {
            let events: Vec<_> = (0..number).map(|number| format!("\"j{number}\":\"x\"")).collect();
            let polled = read(format!("{{\"sets\":{{{}}}}}", events.join(",")).as_bytes()).expect("read");
            assert_eq!((polled.events.len(), polled.skipped), (number.min(MAX_EVENTS), skipped));
        }
    }
}
