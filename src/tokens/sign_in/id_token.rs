//! The claims of an ID token of which signature, issuer and algorithm were verified (OpenID Connect Core section
//! 3.1.3.7; for a refresh section 12.2).

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::freshness::{AuthenticatedSince, CLOCK_SKEW};
use crate::types::clock::UnixTime;
use crate::types::secret;

/// Maximum length of `sub` (Core section 2) and of `sid`, in bytes.
const MAX_NAME: usize = 255;

/// A signed ID token and what it must match.
pub struct Check<'c> {
    pub header: &'c Map<String, Value>,
    pub claims: &'c Map<String, Value>,
    pub issuer: &'c str,
    pub client_id: &'c str,
    /// That of the attempt.
    pub nonce: &'c str,
    /// Issued with it.
    pub access_token: &'c str,
    pub asked: Asked<'c>,
    /// `None`: this is the first one.
    pub earlier: Option<Earlier<'c>>,
    pub now: UnixTime,
}

/// What the gateway asked of the authentication. A user can remove it from the URL of the request, so the ID token must
/// confirm it (Core section 3.1.3.7, items 12 and 13).
#[derive(Clone, Copy, Default)]
pub struct Asked<'c> {
    /// `max_age`: at most this long ago, in seconds.
    pub max_age: Option<u64>,
    /// `acr_values`: one of these, separated by spaces.
    pub acr_values: Option<&'c str>,
    /// What a client of the gateway has asked.
    pub since: Option<AuthenticatedSince>,
}

impl<'c> Asked<'c> {
    /// `parameters`: of the request.
    pub fn by(parameters: &'c BTreeMap<String, String>) -> Self {
        // The configuration rejects what is no number.
        let max_age = parameters.get("max_age").map(|age| age.parse().unwrap_or_default());
        Asked { max_age, acr_values: parameters.get("acr_values").map(String::as_str), since: None }
    }
}

/// What may not change by a refresh.
#[derive(Clone, Copy)]
pub struct Earlier<'c> {
    pub subject: &'c str,
    pub auth_time: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct IdToken {
    pub subject: String,
    /// The `sid` at the provider.
    pub session: Option<String>,
    pub issued: UnixTime,
    pub auth_time: Option<u64>,
}

/// Why an ID token is rejected, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongToken {
    /// It proves nothing: it is not for this client, or not for this moment, or not of this sign-in.
    Unusable(&'static str),
    /// It is good, and of another user than the login.
    OtherUser(&'static str),
}

impl WrongToken {
    pub const fn detail(self) -> &'static str {
        match self {
            WrongToken::Unusable(detail) | WrongToken::OtherUser(detail) => detail,
        }
    }
}

impl From<&'static str> for WrongToken {
    fn from(detail: &'static str) -> Self {
        WrongToken::Unusable(detail)
    }
}

impl Check<'_> {
    /// What the token says, or why it is rejected. Whether it is of another user is checked last.
    pub fn run(&self) -> Result<IdToken, WrongToken> {
        self.check_kind()?;
        if self.text("iss", "iss is not text")? != Some(self.issuer) {
            return Err("iss is not the issuer of the provider".into());
        }
        self.check_audience()?;
        let issued = self.check_time()?;
        self.check_nonce()?;
        self.check_access_token()?;
        let subject = self.name("sub", "sub is not text of 1 to 255 bytes")?.ok_or("sub is missing")?;
        let auth_time = match self.claims.get("auth_time") {
            None => None,
            Some(value) => Some(value.as_f64().filter(|time| *time >= 0.0).ok_or("auth_time is not a date")? as u64),
        };
        self.check_asked(auth_time)?;
        let session = self.name("sid", "sid is not text of 1 to 255 bytes")?;
        if let Some(earlier) = self.earlier {
            if earlier.subject != subject {
                return Err(WrongToken::OtherUser("sub has changed since the login"));
            }
            if auth_time.is_some() && earlier.auth_time.is_some() && auth_time != earlier.auth_time {
                return Err("auth_time has changed since the login".into());
            }
        }
        Ok(IdToken { subject, session, issued, auth_time })
    }

    /// Rejects other kinds of JWTs that the provider signs with the same key.
    fn check_kind(&self) -> Result<(), &'static str> {
        let is_plain = match self.header.get("typ") {
            None => true,
            Some(typ) => typ.as_str().is_some_and(|typ| {
                let short = match typ.split_at_checked("application/".len()) {
                    Some((start, rest)) if start.eq_ignore_ascii_case("application/") => rest,
                    _ => typ,
                };
                short.eq_ignore_ascii_case("jwt")
            }),
        };
        if !is_plain {
            return Err("typ is not JWT");
        }
        if self.claims.contains_key("events") {
            return Err("it has the claim events");
        }
        Ok(())
    }

    /// An ID token for several clients could be replayed by another of them.
    fn check_audience(&self) -> Result<(), &'static str> {
        let is_ours = |value: &Value| value.as_str() == Some(self.client_id);
        let is_for_us = match self.claims.get("aud") {
            Some(Value::Array(several)) => !several.is_empty() && several.iter().all(is_ours),
            Some(one) => is_ours(one),
            None => false,
        };
        if !is_for_us {
            return Err("aud is not the client_id alone");
        }
        match self.claims.get("azp") {
            Some(azp) if !is_ours(azp) => Err("azp is not the client_id"),
            _ => Ok(()),
        }
    }

    fn check_time(&self) -> Result<UnixTime, &'static str> {
        let expires = self.date("exp", "exp is not a date")?.ok_or("exp is missing")?;
        let issued = self.date("iat", "iat is not a date")?.ok_or("iat is missing")?;
        let not_before = self.date("nbf", "nbf is not a date")?.unwrap_or_default();
        if expires + CLOCK_SKEW <= self.now {
            return Err("it has expired");
        }
        if issued > self.now + CLOCK_SKEW {
            return Err("iat is in the future");
        }
        if not_before > self.now + CLOCK_SKEW {
            return Err("nbf is in the future");
        }
        Ok(issued)
    }

    /// After a refresh it may be absent.
    fn check_nonce(&self) -> Result<(), &'static str> {
        match self.claims.get("nonce") {
            None if self.earlier.is_some() => Ok(()),
            Some(Value::String(nonce)) if secret::equal(nonce.as_bytes(), self.nonce.as_bytes()) => Ok(()),
            _ => Err("nonce is not that of the sign-in"),
        }
    }

    fn check_asked(&self, auth_time: Option<u64>) -> Result<(), &'static str> {
        if let Some(max_age) = self.asked.max_age {
            let age = Duration::from_secs(max_age) + CLOCK_SKEW;
            let since = auth_time.ok_or("auth_time is missing, and max_age was asked for")?;
            let since = UnixTime::from_secs(since);
            // It would pass for as long as it is in the future.
            if since > self.now + CLOCK_SKEW {
                return Err("auth_time is in the future, and max_age was asked for");
            }
            if since + age < self.now {
                return Err("the user signed in at the provider longer ago than max_age");
            }
        }
        self.asked.since.map_or(Ok(()), |since| since.check(auth_time))?;
        let Some(asked) = self.asked.acr_values else { return Ok(()) };
        match self.text("acr", "acr is not text")? {
            Some(acr) if asked.split(' ').any(|asked| asked == acr) => Ok(()),
            _ => Err("acr is none of acr_values"),
        }
    }

    /// `at_hash` binds the access token to the ID token (Core section 3.1.3.6).
    fn check_access_token(&self) -> Result<(), &'static str> {
        let Some(found) = self.text("at_hash", "at_hash is not text")? else { return Ok(()) };
        let bits = match self.header.get("alg").and_then(Value::as_str).unwrap_or_default() {
            "EdDSA" => Some(512),
            algorithm => algorithm.get(2..).and_then(|bits| bits.parse().ok()),
        };
        let half = bits.and_then(|bits| secret::left_half(bits, self.access_token.as_bytes()));
        let expected = URL_SAFE_NO_PAD.encode(half.ok_or("at_hash with an unknown algorithm")?);
        if secret::equal(expected.as_bytes(), found.as_bytes()) {
            Ok(())
        } else {
            Err("at_hash is not that of the access token")
        }
    }

    fn name(&self, name: &str, wrong: &'static str) -> Result<Option<String>, &'static str> {
        match self.text(name, wrong)? {
            Some(text) if text.is_empty() || text.len() > MAX_NAME => Err(wrong),
            found => Ok(found.map(str::to_owned)),
        }
    }

    fn text(&self, name: &str, wrong: &'static str) -> Result<Option<&str>, &'static str> {
        self.claims.get(name).map(|value| value.as_str().ok_or(wrong)).transpose()
    }

    fn date(&self, name: &str, wrong: &'static str) -> Result<Option<UnixTime>, &'static str> {
        const YEAR_10000: f64 = 253_402_300_800.0;
        let Some(value) = self.claims.get(name) else { return Ok(None) };
        let seconds = value.as_f64().filter(|seconds| (0.0..YEAR_10000).contains(seconds)).ok_or(wrong)?;
        Ok(Some(UnixTime::from_millis((seconds * 1000.0) as u64)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_000_000;
    const ISSUER: &str = "https://login.example";
    const EXPECTED: (&str, &str, &str) = (ISSUER, "client", "n");

    fn good() -> Value {
        json!({ "iss": ISSUER, "sub": "alice", "aud": "client", "iat": NOW, "exp": NOW + 300, "nonce": "n", "sid": "s" })
    }

    fn run(header: &Value, claims: &Value, earlier: Option<Earlier<'_>>) -> Result<IdToken, &'static str> {
        let check = Check {
            header: header.as_object().expect("an object"),
            claims: claims.as_object().expect("an object"),
            issuer: ISSUER,
            client_id: "client",
            nonce: "n",
            access_token: "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y",
            asked: Asked::default(),
            earlier,
            now: UnixTime::from_secs(NOW),
        };
        check.run().map_err(WrongToken::detail)
    }

    fn with(changes: &Value) -> Value {
        let mut claims = good();
        for (name, value) in changes.as_object().expect("an object") {
            match value {
                Value::Null => drop(claims.as_object_mut().expect("an object").remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    }

    #[test]
    fn a_good_token_tells_who_signed_in() {
        let header = json!({ "alg": "RS256" });
        let expected = IdToken {
            subject: "alice".into(),
            session: Some("s".into()),
            issued: UnixTime::from_secs(NOW),
            auth_time: None,
        };
        assert_eq!(run(&header, &good(), None), Ok(expected));
        for changes in [
            json!({ "aud": ["client"] }),
            json!({ "aud": ["client", "client"], "azp": "client" }),
            json!({ "exp": NOW - 59 }),
            json!({ "iat": NOW + 60 }),
            json!({ "sid": null }),
            json!({ "at_hash": "77QmUPtjPfzWtF2AnpK9RQ" }),
        ] {
            assert!(run(&header, &with(&changes), None).is_ok(), "{changes}");
        }
        for typ in ["JWT", "jwt", "application/jwt", "Application/JWT"] {
            assert!(run(&json!({ "alg": "RS256", "typ": typ }), &good(), None).is_ok(), "{typ}");
        }
    }

    #[test]
    fn each_lie_is_found() {
        for (changes, wrong) in [
            (json!({ "iss": "https://evil.example" }), "iss is not the issuer of the provider"),
            (json!({ "iss": null }), "iss is not the issuer of the provider"),
            (json!({ "iss": [ISSUER] }), "iss is not text"),
            (json!({ "aud": "other" }), "aud is not the client_id alone"),
            (json!({ "aud": ["client", "other"], "azp": "client" }), "aud is not the client_id alone"),
            (json!({ "aud": [] }), "aud is not the client_id alone"),
            (json!({ "aud": null }), "aud is not the client_id alone"),
            (json!({ "azp": "other" }), "azp is not the client_id"),
            (json!({ "azp": 1 }), "azp is not the client_id"),
            (json!({ "exp": NOW - 60 }), "it has expired"),
            (json!({ "exp": null }), "exp is missing"),
            (json!({ "exp": "1000300" }), "exp is not a date"),
            (json!({ "iat": null }), "iat is missing"),
            (json!({ "iat": NOW + 61 }), "iat is in the future"),
            (json!({ "nbf": NOW + 61 }), "nbf is in the future"),
            (json!({ "nonce": "old" }), "nonce is not that of the sign-in"),
            (json!({ "nonce": null }), "nonce is not that of the sign-in"),
            (json!({ "nonce": ["n"] }), "nonce is not that of the sign-in"),
            (json!({ "at_hash": "77QmUPtjPfzWtF2AnpK9RR" }), "at_hash is not that of the access token"),
            (json!({ "sub": null }), "sub is missing"),
            (json!({ "sub": "" }), "sub is not text of 1 to 255 bytes"),
            (json!({ "sub": "x".repeat(256) }), "sub is not text of 1 to 255 bytes"),
            (json!({ "sub": 1 }), "sub is not text of 1 to 255 bytes"),
            (json!({ "sid": 1 }), "sid is not text of 1 to 255 bytes"),
            (json!({ "auth_time": "x" }), "auth_time is not a date"),
            (json!({ "events": {} }), "it has the claim events"),
        ] {
            assert_eq!(run(&json!({ "alg": "RS256" }), &with(&changes), None), Err(wrong), "{changes}");
        }
        for typ in
            [json!("logout+jwt"), json!("secevent+jwt"), json!("at+jwt"), json!("token-introspection+jwt"), json!(1)]
        {
            assert_eq!(run(&json!({ "alg": "RS256", "typ": typ }), &good(), None), Err("typ is not JWT"), "{typ}");
        }
        let unknown = run(&json!({ "alg": "XX1" }), &with(&json!({ "at_hash": "x" })), None);
        assert_eq!(unknown, Err("at_hash with an unknown algorithm"));
    }

    /// The user can remove `max_age` and `acr_values` from the URL of the provider.
    #[test]
    fn the_token_confirms_what_was_asked_for() {
        let run = |asked: Asked<'_>, changes: Value| {
            let header = json!({ "alg": "RS256" });
            let claims = with(&changes);
            let [header, claims] = [&header, &claims].map(|value| value.as_object().expect("an object"));
            let now = UnixTime::from_secs(NOW);
            let (issuer, client_id, nonce) = EXPECTED;
            let check = Check { header, claims, issuer, client_id, nonce, access_token: "", asked, earlier: None, now };
            check.run().map_err(WrongToken::detail).err()
        };
        let parameters = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let max_age = parameters("max_age", "300");
        let acr = parameters("acr_values", "mfa hardware");
        let max_age = Asked::by(&max_age);
        let acr = Asked::by(&acr);
        let old = Some("the user signed in at the provider longer ago than max_age");
        assert_eq!(run(max_age, json!({ "auth_time": NOW - 360 })), None);
        assert_eq!(run(max_age, json!({ "auth_time": NOW - 361 })), old);
        assert_eq!(run(max_age, json!({})), Some("auth_time is missing, and max_age was asked for"));
        let future = Some("auth_time is in the future, and max_age was asked for");
        assert_eq!(run(max_age, json!({ "auth_time": NOW + 60 })), None);
        assert_eq!(run(max_age, json!({ "auth_time": NOW + 61 })), future);
        assert_eq!(run(max_age, json!({ "auth_time": u64::MAX })), future);
        assert_eq!(run(acr, json!({ "acr": "hardware" })), None);
        for changes in [json!({ "acr": "pwd" }), json!({ "acr": "mfa hardware" }), json!({})] {
            assert_eq!(run(acr, changes.clone()), Some("acr is none of acr_values"), "{changes}");
        }
        assert_eq!(run(acr, json!({ "acr": 1 })), Some("acr is not text"));
    }

    #[test]
    fn a_refresh_may_not_change_who_signed_in() {
        let earlier = Earlier { subject: "alice", auth_time: Some(NOW) };
        let run = |changes: Value| run(&json!({ "alg": "RS256" }), &with(&changes), Some(earlier)).err();
        assert_eq!(run(json!({})), None);
        assert_eq!(run(json!({ "nonce": null })), None);
        assert_eq!(run(json!({ "auth_time": NOW })), None);
        assert_eq!(run(json!({ "nonce": "other" })), Some("nonce is not that of the sign-in"));
        assert_eq!(run(json!({ "sub": "bob" })), Some("sub has changed since the login"));
        assert_eq!(run(json!({ "auth_time": NOW + 1 })), Some("auth_time has changed since the login"));
        // A token that proves nothing says nothing of the user.
        for changes in [
            json!({ "sub": "bob", "aud": "other" }),
            json!({ "sub": "bob", "exp": NOW - 60 }),
            json!({ "sub": "bob", "nonce": "other" }),
            json!({ "sub": "bob", "sid": 1 }),
        ] {
            assert_ne!(run(changes.clone()), Some("sub has changed since the login"), "{changes}");
        }
    }
}
