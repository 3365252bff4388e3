//! The assertion by which a client of this gateway proves who it is (`private_key_jwt`, RFC 7523 section 3). Pure.
//!
//! The client signs it for one call. Its `jti` is taken once, by the store, after these checks.

use std::time::Duration;

use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::issuer::{Audience, Confirmation, Issuer};
use super::json::optional_str;
use super::jws::Jws;
use super::verify::{TrustedIssuer, check_type, date};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::step::StepReporter;

/// How far ahead `exp` may be: the gateway remembers each `jti` until then.
const MAX_AHEAD: Duration = Duration::from_mins(5);
/// The default of `[[issuer]] clock_skew`.
const CLOCK_SKEW: Duration = Duration::from_secs(30);
/// Maximum length of `jti` in bytes.
const MAX_JTI: usize = 256;

/// An assertion with a good signature. It proves nothing before its `jti` is taken.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientAssertion {
    pub jti: String,
    /// It is invalid from here on, clock skew included.
    pub expires: UnixTime,
}

/// The conditions for the assertions of this client. `audiences`: the names of this gateway that it may use.
pub fn policy(client_id: &str, algorithms: Vec<Algorithm>, audiences: Vec<String>) -> Issuer {
    Issuer {
        issuer: client_id.into(),
        audience: Audience::OneOf(audiences),
        resources: Vec::new(),
        algorithms,
        types: vec!["JWT".to_owned(), "client-authentication+jwt".to_owned()],
        clock_skew: CLOCK_SKEW,
        max_lifetime: MAX_AHEAD,
        require_subject: true,
        confirmation: Confirmation::Reject,
        own: false,
    }
}

/// Verifies an assertion of the client with this [`policy`]. The signature comes last, as for access tokens.
pub fn verify(
    assertion: &str,
    client: &TrustedIssuer,
    now: UnixTime,
    steps: StepReporter<'_>,
) -> Result<ClientAssertion, Reject> {
    let policy = &client.policy;
    let jws = Jws::parse(assertion)?;
    let claims = jws.claims()?;
    check_type(&jws.header, policy)?;
    let algorithm = jws.algorithm(|algorithm| policy.algorithms.contains(&algorithm))?;
    jws.kid()?;
    check_parties(&claims, policy)?;
    let expires = check_time(&claims, policy, now)?;
    let jti = jti(&claims)?;
    jws.verify(&client.keys, algorithm, steps)?;
    Ok(ClientAssertion { jti, expires })
}

/// `aud` must be one string and not a list: an assertion for several servers can be used at each of them by the others
/// (CVE-2025-27370).
fn check_parties(claims: &Map<String, Value>, policy: &Issuer) -> Result<(), Reject> {
    let is_client = |name: &str| claims.get(name).is_some_and(|value| value == &*policy.issuer);
    if !is_client("iss") || !is_client("sub") {
        return Err(bad("iss and sub are not both the client_id"));
    }
    let Audience::OneOf(ours) = &policy.audience else { return Err(bad("there is no audience to compare with")) };
    let audience = claims.get("aud").and_then(Value::as_str);
    if audience.is_some_and(|audience| ours.iter().any(|ours| ours == audience)) {
        Ok(())
    } else {
        Err(Reject::new(Reason::WrongAudience, "aud is not one string, a name of this gateway"))
    }
}

/// Returns when the assertion ends.
fn check_time(claims: &Map<String, Value>, policy: &Issuer, now: UnixTime) -> Result<UnixTime, Reject> {
    let exp = date(claims, "exp")?.ok_or_else(|| bad("exp is missing"))?;
    let expires = exp + policy.clock_skew;
    if now >= expires {
        return Err(Reject::new(Reason::Expired, format!("expired {}s ago", now.since(exp).as_secs())));
    }
    if exp > now + policy.max_lifetime + policy.clock_skew {
        let detail = format!("exp is {}s ahead, at most {}s", exp.since(now).as_secs(), policy.max_lifetime.as_secs());
        return Err(Reject::new(Reason::LifetimeTooLong, detail));
    }
    for name in ["nbf", "iat"] {
        if date(claims, name)?.is_some_and(|begins| begins > now + policy.clock_skew) {
            return Err(Reject::new(Reason::NotYetValid, format!("{name} is in the future")));
        }
    }
    Ok(expires)
}

fn jti(claims: &Map<String, Value>) -> Result<String, Reject> {
    let jti = optional_str(claims, "jti").map_err(|error| bad(error.to_string()))?.unwrap_or_default();
    if (1..=MAX_JTI).contains(&jti.len()) {
        Ok(jti.to_owned())
    } else {
        Err(bad(format!("jti must have 1 to {MAX_JTI} bytes")))
    }
}

fn bad(detail: impl Into<std::borrow::Cow<'static, str>>) -> Reject {
    Reject::new(Reason::BadClaims, detail)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::tokens::jwt::sign::{SigningKey, generate_pem, verifying_keys};

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);
    const GATEWAY: &str = "https://gateway.example";

    fn key(algorithm: Algorithm) -> SigningKey {
        let pem = generate_pem(algorithm).expect("a key");
        SigningKey::from_pem(pem.expose(), algorithm).expect("its own key")
    }

    fn client(keys: &[&SigningKey], algorithm: Algorithm) -> TrustedIssuer {
        let keys = Arc::new(verifying_keys(keys.iter().copied()).expect("strong keys"));
        TrustedIssuer { policy: Arc::new(policy("ci", vec![algorithm], vec![GATEWAY.to_owned()])), keys }
    }

    fn claims(changes: &Value) -> Map<String, Value> {
        let now = NOW.as_secs();
        let mut claims = json!({ "iss": "ci", "sub": "ci", "aud": GATEWAY, "iat": now, "exp": now + 60, "jti": "1" });
        let members = claims.as_object_mut().expect("an object");
        for (name, value) in changes.as_object().expect("an object") {
            match value {
                Value::Null => drop(members.remove(name)),
                value => drop(members.insert(name.clone(), value.clone())),
            }
        }
        members.clone()
    }

    #[test]
    fn only_a_short_assertion_for_this_gateway_is_good() {
        let key = key(Algorithm::ES256);
        let client = client(&[&key], Algorithm::ES256);
        let verified = |changes: &Value| {
            let text = key.sign_as("JWT", &key.kid, &claims(changes)).expect("signed");
            verify(&text, &client, NOW, StepReporter::OFF)
        };
        let reason = |changes: &Value| verified(changes).map(drop).map_err(|reject| reject.reason);
        let good = verified(&json!({})).unwrap_or_else(|reject| panic!("{}", reject.detail));
        assert_eq!(good, ClientAssertion { jti: "1".to_owned(), expires: NOW + Duration::from_secs(90) });
        let now = NOW.as_secs();
        let long = "x".repeat(257);
        for (changes, expected) in [
            (json!({ "iat": null }), Ok(())),
            (json!({ "exp": now + 330 }), Ok(())),
            (json!({ "exp": now - 29 }), Ok(())),
            (json!({ "iat": now + 30, "nbf": now + 30 }), Ok(())),
            (json!({ "jti": &long[1..] }), Ok(())),
            (json!({ "iss": "other" }), Err(Reason::BadClaims)),
            (json!({ "sub": "other" }), Err(Reason::BadClaims)),
            (json!({ "sub": null }), Err(Reason::BadClaims)),
            (json!({ "iss": ["ci"] }), Err(Reason::BadClaims)),
            (json!({ "aud": [GATEWAY] }), Err(Reason::WrongAudience)),
            (json!({ "aud": [GATEWAY, "https://other.example"] }), Err(Reason::WrongAudience)),
            (json!({ "aud": format!("{GATEWAY}/oauth/token") }), Err(Reason::WrongAudience)),
            (json!({ "aud": format!("{GATEWAY}/") }), Err(Reason::WrongAudience)),
            (json!({ "aud": null }), Err(Reason::WrongAudience)),
            (json!({ "exp": null }), Err(Reason::BadClaims)),
            (json!({ "exp": now - 30 }), Err(Reason::Expired)),
            (json!({ "exp": now + 331 }), Err(Reason::LifetimeTooLong)),
            (json!({ "exp": now + 86_400, "iat": now + 86_340 }), Err(Reason::LifetimeTooLong)),
            (json!({ "iat": now + 31 }), Err(Reason::NotYetValid)),
            (json!({ "nbf": now + 31 }), Err(Reason::NotYetValid)),
            (json!({ "jti": null }), Err(Reason::BadClaims)),
            (json!({ "jti": "" }), Err(Reason::BadClaims)),
            (json!({ "jti": 1 }), Err(Reason::BadClaims)),
            (json!({ "jti": long }), Err(Reason::BadClaims)),
        ] {
            assert_eq!(reason(&changes), expected, "{changes}");
        }
    }

    #[test]
    fn type_algorithm_and_key_are_those_of_the_client() {
        let own = key(Algorithm::ES256);
        let other = key(Algorithm::ES256);
        let edwards = key(Algorithm::EdDSA);
        let client = client(&[&own, &edwards], Algorithm::ES256);
        let reason = |typ: &str, key: &SigningKey, kid: &str| {
            let text = key.sign_as(typ, kid, &claims(&json!({}))).expect("signed");
            verify(&text, &client, NOW, StepReporter::OFF).map(drop).map_err(|reject| reject.reason)
        };
        for typ in ["JWT", "jwt", "client-authentication+jwt", "application/client-authentication+jwt"] {
            assert_eq!(reason(typ, &own, &own.kid), Ok(()), "{typ}");
        }
        for typ in ["at+jwt", "logout+jwt", "secevent+jwt", ""] {
            assert_eq!(reason(typ, &own, &own.kid), Err(Reason::WrongType), "{typ}");
        }
        assert_eq!(reason("JWT", &edwards, &edwards.kid), Err(Reason::AlgorithmNotAllowed));
        assert_eq!(reason("JWT", &other, &other.kid), Err(Reason::UnknownKey));
        assert_eq!(reason("JWT", &other, &own.kid), Err(Reason::BadSignature));
    }
}
