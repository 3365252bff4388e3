//! Logout tokens (OpenID Connect Back-Channel Logout 1.0): a provider reports that a session, or all sessions of a
//! user, ended.

use std::time::Duration;

use serde_json::{Map, Value};

use super::claims::{CLOCK_SKEW, check_audience, has_type, jti, optional_id, shown_type};
use crate::tokens::family::revocation::Revoked;
use crate::tokens::jwt::json::{optional_date, quoted};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// The member of `events` that makes a JWT a logout token (section 2.4).
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// How old a logout token may be. Providers send them at once, and few repeat a failed call.
const MAX_AGE: Duration = Duration::from_mins(5);

/// Maximum of `exp - iat`. Section 4 recommends two minutes. It bounds how long a `jti` is remembered.
const MAX_LIFETIME: Duration = Duration::from_mins(10);

/// `provider.logout_typ`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutTyp {
    /// `typ` is `logout+jwt`, and `exp` is there.
    Strict,
    /// Also providers of earlier drafts: `typ` may be missing or `JWT`, and `exp` may be missing.
    Lax,
}

/// `provider.logout_ends`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutEnds {
    /// The session that the logout token names. All sessions of the user if it names none.
    Session,
    /// All sessions of the user: for providers with access tokens without `sid`.
    Subject,
}

/// What a logout token must match.
#[derive(Clone, Copy, Debug)]
pub struct LogoutPolicy<'p> {
    pub issuer: &'p str,
    pub client_id: &'p str,
    pub typ: LogoutTyp,
}

/// The verified content of a logout token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogoutToken {
    pub jti: String,
    pub session: Option<String>,
    pub subject: Option<String>,
    pub issued: UnixTime,
    /// Until when the token would be accepted again.
    pub until: UnixTime,
}

/// Reads header and claims of a JWT with a verified signature (section 2.6).
pub fn read(
    header: &Map<String, Value>,
    claims: &Map<String, Value>,
    policy: &LogoutPolicy<'_>,
    now: UnixTime,
) -> Result<LogoutToken, Reject> {
    let token = read_claims(header, claims, policy, now);
    token.map_err(|detail| Reject::new(Reason::BadLogoutToken, detail))
}

fn read_claims(
    header: &Map<String, Value>,
    claims: &Map<String, Value>,
    policy: &LogoutPolicy<'_>,
    now: UnixTime,
) -> Result<LogoutToken, String> {
    check_type(header, policy.typ)?;
    if claims.get("iss").and_then(Value::as_str) != Some(policy.issuer) {
        return Err("iss is not the issuer of this provider".into());
    }
    check_audience(claims, policy.client_id)?;
    let (issued, until) = times(claims, policy.typ, now)?;
    check_events(claims)?;
    // An ID token of the same client has a nonce. It must never end a session (section 2.4).
    if claims.contains_key("nonce") {
        return Err("a logout token has no nonce, and this one has".into());
    }
    let session = optional_id(claims, "sid")?;
    let subject = optional_id(claims, "sub")?;
    if session.is_none() && subject.is_none() {
        return Err("sid and sub are missing".into());
    }
    Ok(LogoutToken { jti: jti(claims)?, session, subject, issued, until })
}

/// Any other type is another kind of token of the same provider: an access token, a security event.
fn check_type(header: &Map<String, Value>, typ: LogoutTyp) -> Result<(), String> {
    let is_plain = !header.contains_key("typ") || has_type(header, "JWT");
    if has_type(header, "logout+jwt") || typ == LogoutTyp::Lax && is_plain {
        Ok(())
    } else {
        Err(format!("{}, not \"logout+jwt\"; some providers need provider.logout_typ", shown_type(header)))
    }
}

/// `iat`, and until when the token is accepted.
fn times(claims: &Map<String, Value>, typ: LogoutTyp, now: UnixTime) -> Result<(UnixTime, UnixTime), String> {
    let date = |name| optional_date(claims, name).map_err(|error| error.to_string());
    let issued = date("iat")?.ok_or("iat is missing")?;
    if issued > now + CLOCK_SKEW {
        return Err(format!("iat is in the future: {issued}, and it is {now}"));
    }
    if issued + MAX_AGE < now {
        return Err(format!("iat is more than 5 minutes ago: {issued}, and it is {now}"));
    }
    match date("exp")? {
        None if typ == LogoutTyp::Strict => Err("exp is missing; some providers need provider.logout_typ".into()),
        None => Ok((issued, issued + MAX_AGE)),
        Some(expires) if expires + CLOCK_SKEW <= now => Err(format!("exp is past: {expires}, and it is {now}")),
        Some(expires) if expires.since(issued) > MAX_LIFETIME => Err("exp is more than 10 minutes after iat".into()),
        Some(expires) => Ok((issued, expires + CLOCK_SKEW)),
    }
}

/// A `null` passes a lax reader (wildfly-elytron, 2025), so that a token without the event counted as one with it.
fn check_events(claims: &Map<String, Value>) -> Result<(), String> {
    let Some(Value::Object(events)) = claims.get("events") else {
        // WSO2 once sent `event`.
        return Err("events is missing or not an object".into());
    };
    match events.get(EVENT) {
        Some(Value::Object(_)) => Ok(()),
        Some(_) => Err(format!("the member {} of events is not an object", quoted(Some(EVENT)))),
        None => Err(format!("events has no member {}", quoted(Some(EVENT)))),
    }
}

impl LogoutToken {
    /// What the provider ended. A session has no time: it never begins again. A user may have logged in again since, so
    /// that only tokens up to the time of the report are revoked. Both times are by the clock of the provider.
    pub fn revokes(&self, issuer: &str, ends: LogoutEnds) -> Vec<Revoked> {
        let session = self.session.clone().map(|session| Revoked::Session { issuer: issuer.to_owned(), session });
        let ends_subject = session.is_none() || ends == LogoutEnds::Subject;
        let subject = if ends_subject { self.subject.clone() } else { None };
        let of_subject = |subject| Revoked::Subject { issuer: issuer.to_owned(), subject, not_after: self.issued };
        let subject = subject.map(of_subject);
        session.into_iter().chain(subject).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ISSUER: &str = "https://login.example";
    const NOW: UnixTime = UnixTime::from_secs(1_000_000);
    const STRICT: LogoutPolicy<'_> = LogoutPolicy { issuer: ISSUER, client_id: "shop", typ: LogoutTyp::Strict };
    const LAX: LogoutPolicy<'_> = LogoutPolicy { typ: LogoutTyp::Lax, ..STRICT };

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    fn claims() -> Map<String, Value> {
        object(&json!({
            "iss": ISSUER, "aud": "shop", "iat": 999_990, "exp": 1_000_110, "jti": "j1",
            "events": { EVENT: {} }, "sid": "s1", "sub": "alice",
        }))
    }

    /// The claims with these changes. `null` removes a claim.
    fn changed(changes: &Value) -> Map<String, Value> {
        let mut claims = claims();
        for (name, value) in object(changes) {
            match value {
                Value::Null => claims.remove(&name),
                value => claims.insert(name, value),
            };
        }
        claims
    }

    fn read_with(
        typ: Option<&str>,
        claims: &Map<String, Value>,
        policy: &LogoutPolicy<'_>,
    ) -> Result<LogoutToken, String> {
        let header = typ.map_or_else(|| json!({ "alg": "RS256" }), |typ| json!({ "alg": "RS256", "typ": typ }));
        read(&object(&header), claims, policy, NOW).map_err(|reject| {
            assert_eq!(reject.reason, Reason::BadLogoutToken);
            reject.detail.into_owned()
        })
    }

    #[test]
    fn a_good_logout_token_names_session_and_user() {
        let token = read_with(Some("logout+jwt"), &claims(), &STRICT).expect("good");
        let expected = LogoutToken {
            jti: "j1".into(),
            session: Some("s1".into()),
            subject: Some("alice".into()),
            issued: UnixTime::from_secs(999_990),
            until: UnixTime::from_secs(1_000_170),
        };
        assert_eq!(token, expected);
        for also_good in [
            json!({ "aud": ["other", "shop"] }),
            json!({ "sub": null }),
            json!({ "sid": null }),
            json!({ "events": { EVENT: {}, "https://other.example": {} } }),
            json!({ "events": { EVENT: { "a": 1 } } }),
            json!({ "iat": 999_700, "exp": 1_000_100 }),
            json!({ "iat": 1_000_060 }),
            json!({ "exp": 999_995 }),
        ] {
            let read = read_with(Some("logout+jwt"), &changed(&also_good), &STRICT);
            assert!(read.is_ok(), "{also_good}: {read:?}");
        }
    }

    #[test]
    fn each_wrong_claim_is_rejected() {
        for (changes, says) in [
            (json!({ "iss": "https://login.example/" }), "iss"),
            (json!({ "iss": null }), "iss"),
            (json!({ "iss": [ISSUER] }), "iss"),
            (json!({ "aud": "other" }), "aud"),
            (json!({ "aud": null }), "aud"),
            (json!({ "aud": [] }), "aud"),
            (json!({ "aud": ["shop", 7] }), "aud"),
            (json!({ "aud": { "shop": true } }), "aud"),
            (json!({ "iat": null }), "iat is missing"),
            (json!({ "iat": "999990" }), "iat is not"),
            (json!({ "iat": 1_000_061 }), "in the future"),
            (json!({ "iat": 999_699, "exp": 1_000_100 }), "5 minutes ago"),
            (json!({ "exp": null }), "exp is missing"),
            (json!({ "exp": true }), "exp is not"),
            (json!({ "exp": 999_940 }), "exp is past"),
            (json!({ "exp": 1_000_591 }), "10 minutes"),
            (json!({ "events": null }), "events"),
            (json!({ "events": null, "event": { EVENT: {} } }), "events is missing"),
            (json!({ "events": [EVENT] }), "events is missing or not"),
            (json!({ "events": EVENT }), "events is missing or not"),
            (json!({ "events": {} }), "no member"),
            (json!({ "events": { "https://other.example": {} } }), "no member"),
            (json!({ "events": { EVENT: null } }), "not an object"),
            (json!({ "events": { EVENT: [] } }), "not an object"),
            (json!({ "events": { EVENT: "x" } }), "not an object"),
            (json!({ "nonce": "n" }), "nonce"),
            (json!({ "sid": null, "sub": null }), "sid and sub"),
            (json!({ "sid": "" }), "sid is empty"),
            (json!({ "sid": 7 }), "sid is not a string"),
            (json!({ "sub": "" }), "sub is empty"),
            (json!({ "sub": ["alice"] }), "sub is not a string"),
            (json!({ "sub": "a".repeat(1025) }), "more than 1024"),
            (json!({ "jti": null }), "jti is missing"),
            (json!({ "jti": "" }), "jti is empty"),
            (json!({ "jti": 1 }), "jti is not"),
            (json!({ "jti": "j".repeat(257) }), "more than 256"),
        ] {
            let error = read_with(Some("logout+jwt"), &changed(&changes), &STRICT).expect_err(&changes.to_string());
            assert!(error.contains(says), "{changes}: {error}");
        }
        let mut with_null_nonce = claims();
        with_null_nonce.insert("nonce".into(), Value::Null);
        assert!(read_with(Some("logout+jwt"), &with_null_nonce, &STRICT).is_err(), "nonce: null");
        let mut with_null_events = claims();
        with_null_events.insert("events".into(), Value::Null);
        assert!(read_with(Some("logout+jwt"), &with_null_events, &STRICT).is_err(), "events: null");
    }

    #[test]
    fn other_types_of_the_same_provider_are_rejected() {
        for (typ, strict, lax) in [
            (Some("logout+jwt"), true, true),
            (Some("application/Logout+JWT"), true, true),
            (None, false, true),
            (Some("JWT"), false, true),
            (Some("at+jwt"), false, false),
            (Some("secevent+jwt"), false, false),
            (Some("token-introspection+jwt"), false, false),
            (Some(""), false, false),
        ] {
            assert_eq!(read_with(typ, &claims(), &STRICT).is_ok(), strict, "{typ:?}");
            assert_eq!(read_with(typ, &claims(), &LAX).is_ok(), lax, "{typ:?}");
        }
        let odd = read(&object(&json!({ "typ": 7 })), &claims(), &LAX, NOW);
        assert!(odd.is_err(), "typ is a number");
    }

    #[test]
    fn a_lax_provider_may_leave_out_exp_and_nothing_else() {
        let token = read_with(None, &changed(&json!({ "exp": null })), &LAX).expect("lax");
        assert_eq!(token.until, UnixTime::from_secs(999_990) + MAX_AGE);
        for changes in [json!({ "iat": null }), json!({ "jti": null }), json!({ "events": {} }), json!({ "exp": 1 })] {
            assert!(read_with(None, &changed(&changes), &LAX).is_err(), "{changes}");
        }
    }

    #[test]
    fn a_session_ends_alone_unless_the_operator_wants_all() {
        let of = |session: Option<&str>, subject: Option<&str>, ends, issued| {
            let [session, subject] = [session, subject].map(|id| id.map(str::to_owned));
            LogoutToken { jti: "j".into(), session, subject, issued, until: NOW }.revokes(ISSUER, ends)
        };
        let session = || Revoked::Session { issuer: ISSUER.into(), session: "s1".into() };
        let subject = |not_after| Revoked::Subject { issuer: ISSUER.into(), subject: "alice".into(), not_after };
        let issued = NOW - MAX_AGE;
        assert_eq!(of(Some("s1"), Some("alice"), LogoutEnds::Session, issued), [session()]);
        assert_eq!(of(Some("s1"), Some("alice"), LogoutEnds::Subject, issued), [session(), subject(issued)]);
        assert_eq!(of(Some("s1"), None, LogoutEnds::Subject, issued), [session()]);
        assert_eq!(of(None, Some("alice"), LogoutEnds::Session, issued), [subject(issued)]);
    }
}
