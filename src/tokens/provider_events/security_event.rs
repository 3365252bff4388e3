//! Security event tokens (RFC 8417) as SSF 1.0 has them: one event about one subject.

use std::time::Duration;

use serde_json::{Map, Value};

use super::claims::{CLOCK_SKEW, check_audience, has_type, jti, shown_type};
use super::event_error::{EventError, EventErrorCode};
use super::subject_id::{self, SubjectId};
use crate::tokens::jwt::json::{optional_date, quoted};
use crate::types::clock::UnixTime;

/// What a security event token must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPolicy {
    /// `event_stream.issuer`: the transmitter.
    pub issuer: String,
    /// `event_stream.audience`
    pub audience: String,
    /// `event_stream.max_event_age`
    pub max_age: Duration,
    /// `event_stream.legacy_subjects`: the subject may be inside the event.
    pub legacy_subjects: bool,
}

/// The verified content of a security event token.
#[derive(Clone, Debug, PartialEq)]
pub struct SecurityEvent {
    pub jti: String,
    /// The URI of its type.
    pub kind: String,
    pub subject: Option<SubjectId>,
    /// The members of the event itself.
    pub members: Map<String, Value>,
    /// When it happened: never later than it was reported.
    pub time: UnixTime,
    /// Until when the token would be accepted again.
    pub until: UnixTime,
}

/// The `iss` of claims that were not verified: it decides about the error only.
pub fn check_issuer(claims: &Map<String, Value>, policy: &EventPolicy) -> Result<(), EventError> {
    let issuer = claims.get("iss").and_then(Value::as_str);
    if issuer == Some(&*policy.issuer) {
        Ok(())
    } else {
        Err(EventError::new(EventErrorCode::InvalidIssuer, format!("iss is {}", quoted(issuer))))
    }
}

/// Reads header and claims of a JWT with a verified signature.
pub fn read(
    header: &Map<String, Value>,
    claims: &Map<String, Value>,
    policy: &EventPolicy,
    now: UnixTime,
) -> Result<SecurityEvent, EventError> {
    // SSF section 4.1.1: so that no other token of the transmitter passes for an event.
    if !has_type(header, "secevent+jwt") {
        return Err(EventError::request(format!("{}, not \"secevent+jwt\"", shown_type(header))));
    }
    check_issuer(claims, policy)?;
    check_audience(claims, &policy.audience)
        .map_err(|detail| EventError::new(EventErrorCode::InvalidAudience, detail))?;
    read_claims(claims, policy, now).map_err(EventError::request)
}

fn read_claims(claims: &Map<String, Value>, policy: &EventPolicy, now: UnixTime) -> Result<SecurityEvent, String> {
    // SSF sections 4.1.2 and 4.1.7: an ID token or an access token has them, and must not pass for an event, nor an
    // event for one of those.
    if let Some(name) = ["sub", "exp"].into_iter().find(|name| claims.contains_key(*name)) {
        return Err(format!("a security event token has no {name}, and this one has"));
    }
    let issued = optional_date(claims, "iat").map_err(|error| error.to_string())?.ok_or("iat is missing")?;
    if issued > now + CLOCK_SKEW {
        return Err(format!("iat is in the future: {issued}, and it is {now}"));
    }
    if issued + policy.max_age + CLOCK_SKEW < now {
        return Err(format!("iat is older than event_stream.max_event_age: {issued}, and it is {now}"));
    }
    let jti = jti(claims)?;
    let (kind, members) = only_event(claims)?;
    let subject = match claims.get("sub_id") {
        Some(value) => Some(subject_id::read(value)?),
        None if policy.legacy_subjects => members.get("subject").map(subject_id::read_legacy).transpose()?,
        None => None,
    };
    let time = optional_date(members, "event_timestamp").map_err(|error| error.to_string())?;
    Ok(SecurityEvent {
        jti,
        kind: kind.to_owned(),
        subject,
        members: members.clone(),
        // An event after its report would end logins that were not made yet. Both times are by the clock of the
        // transmitter, as are those of the tokens that are revoked.
        time: time.unwrap_or(issued).min(issued),
        until: issued + policy.max_age + CLOCK_SKEW,
    })
}

/// Exactly one event, as the interoperability profile of CAEP requires: with two, one could be done and one rejected.
fn only_event(claims: &Map<String, Value>) -> Result<(&String, &Map<String, Value>), String> {
    let Some(Value::Object(events)) = claims.get("events") else {
        return Err("events is missing or not an object".into());
    };
    let mut events = events.iter();
    match (events.next(), events.next()) {
        (Some((kind, Value::Object(members))), None) => Ok((kind, members)),
        (Some((kind, _)), None) => Err(format!("the event {} is not an object", quoted(Some(kind)))),
        (None, _) => Err("events is empty".into()),
        (Some(_), Some(_)) => Err("events has more than one member".into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);
    const REVOKED: &str = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";

    fn policy() -> EventPolicy {
        EventPolicy {
            issuer: "https://login.example".into(),
            audience: "https://gateway.example/events".into(),
            max_age: Duration::from_hours(1),
            legacy_subjects: false,
        }
    }

    fn claims() -> Value {
        json!({
            "iss": "https://login.example", "aud": "https://gateway.example/events", "iat": 999_990, "jti": "j1",
            "sub_id": { "format": "iss_sub", "iss": "https://login.example", "sub": "alice" },
            "events": { REVOKED: { "event_timestamp": 999_900 } },
        })
    }

    /// The claims with these changes. The text "remove" removes a claim.
    fn changed(changes: &Value) -> Map<String, Value> {
        let mut claims = claims().as_object().expect("an object").clone();
        for (name, value) in changes.as_object().expect("an object") {
            if value == "remove" {
                claims.remove(name)
            } else {
                claims.insert(name.clone(), value.clone())
            };
        }
        claims
    }

    fn read_with(typ: &Value, claims: &Map<String, Value>, policy: &EventPolicy) -> Result<SecurityEvent, EventError> {
        let header = json!({ "alg": "RS256", "typ": typ });
        read(header.as_object().expect("an object"), claims, policy, NOW)
    }

    #[test]
    fn a_good_event_is_dated_by_what_happened() {
        let good = |changes: &Value| {
            let read = read_with(&json!("secevent+jwt"), &changed(changes), &policy());
            read.unwrap_or_else(|error| panic!("{changes}: {error}"))
        };
        let event = good(&json!({}));
        assert_eq!((&*event.jti, &*event.kind), ("j1", REVOKED));
        assert_eq!(event.time, UnixTime::from_secs(999_900));
        assert_eq!(event.until, UnixTime::from_secs(999_990 + 3_660));
        for (changes, time) in [
            (json!({ "events": { REVOKED: {} } }), 999_990),
            (json!({ "events": { REVOKED: { "event_timestamp": 2_000_000 } } }), 999_990),
            (json!({ "events": { REVOKED: { "event_timestamp": 999_900_000_u64 } } }), 999_990),
            (json!({ "iat": 1_000_060, "events": { REVOKED: {} } }), 1_000_060),
            (json!({ "iat": 996_340, "aud": ["other", "https://gateway.example/events"] }), 996_340),
        ] {
            assert_eq!(good(&changes).time, UnixTime::from_secs(time), "{changes}");
        }
    }

    #[test]
    fn each_wrong_claim_is_rejected_with_its_code() {
        use EventErrorCode::{InvalidAudience, InvalidIssuer, InvalidRequest};
        for (changes, code, says) in [
            (json!({ "iss": "https://login.example/" }), InvalidIssuer, "iss"),
            (json!({ "iss": "remove" }), InvalidIssuer, "iss"),
            (json!({ "aud": "https://other.example" }), InvalidAudience, "aud"),
            (json!({ "aud": "remove" }), InvalidAudience, "aud"),
            (json!({ "aud": [] }), InvalidAudience, "aud"),
            (json!({ "sub": "alice" }), InvalidRequest, "no sub"),
            (json!({ "sub": null }), InvalidRequest, "no sub"),
            (json!({ "exp": 2_000_000 }), InvalidRequest, "no exp"),
            (json!({ "iat": "remove" }), InvalidRequest, "iat is missing"),
            (json!({ "iat": "1" }), InvalidRequest, "iat is not"),
            (json!({ "iat": 1_000_061 }), InvalidRequest, "future"),
            (json!({ "iat": 996_339 }), InvalidRequest, "older"),
            (json!({ "jti": "remove" }), InvalidRequest, "jti is missing"),
            (json!({ "jti": "" }), InvalidRequest, "jti is empty"),
            (json!({ "jti": 5 }), InvalidRequest, "jti is not"),
            (json!({ "events": "remove" }), InvalidRequest, "events"),
            (json!({ "events": [REVOKED] }), InvalidRequest, "events"),
            (json!({ "events": {} }), InvalidRequest, "empty"),
            (json!({ "events": { REVOKED: null } }), InvalidRequest, "not an object"),
            (json!({ "events": { REVOKED: {}, "https://other.example": {} } }), InvalidRequest, "more than one"),
            (json!({ "events": { REVOKED: { "event_timestamp": "x" } } }), InvalidRequest, "event_timestamp"),
            (json!({ "sub_id": "alice" }), InvalidRequest, "sub_id"),
        ] {
            let error = read_with(&json!("secevent+jwt"), &changed(&changes), &policy()).expect_err("wrong");
            assert_eq!(error.code, code, "{changes}");
            assert!(error.detail.contains(says), "{changes}: {error}");
        }
    }

    #[test]
    fn other_types_of_tokens_are_no_events() {
        for (typ, is_event) in [
            (json!("secevent+jwt"), true),
            (json!("application/SecEvent+JWT"), true),
            (json!("logout+jwt"), false),
            (json!("at+jwt"), false),
            (json!("JWT"), false),
            (json!(null), false),
            (json!(7), false),
        ] {
            assert_eq!(read_with(&typ, &changed(&json!({})), &policy()).is_ok(), is_event, "{typ}");
        }
    }

    #[test]
    fn a_subject_in_the_event_counts_only_by_option() {
        let subject = json!({ "subject_type": "iss-sub", "iss": "https://login.example", "sub": "alice" });
        let claims = changed(&json!({ "sub_id": "remove", "events": { REVOKED: { "subject": subject } } }));
        let with = |policy: &EventPolicy| read_with(&json!("secevent+jwt"), &claims, policy).expect("good").subject;
        assert_eq!(with(&policy()), None);
        assert!(with(&EventPolicy { legacy_subjects: true, ..policy() }).is_some());
    }
}
