//! The answer of an introspection endpoint (RFC 7662), judged as the claims of a JWT are. No I/O.
//!
//! An endpoint answers for any token that it knows: for refresh tokens, for ID tokens, for tokens of other audiences
//! (CVE-2026-37979). So `active` alone means little, and everything that a JWT must have is required here, too.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::base64url::decode_segment;
use super::confirmation;
use super::issuer::{Confirmation, Issuer, names_one_of};
use super::json::quoted;
use super::jws::Jws;
use super::verified_token::{Validity, VerifiedToken};
use super::verify::{TrustedIssuer, check_audience, date, read_claims, string};
use crate::tokens::credential_kind::CredentialKind;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::step::StepReporter;

/// `typ` of a signed answer (RFC 9701 section 5).
pub const ANSWER_TYPE: &str = "token-introspection+jwt";

/// Maximum age of a signed answer. The gateway asks when it needs one, so that any older one was replayed.
const MAX_ANSWER_AGE: Duration = Duration::from_mins(1);

/// What some servers say about other kinds of tokens: `typ` (Keycloak) and `token_use` (Hydra, Cognito).
const TYPES: [&str; 3] = ["bearer", "dpop", "jwt"];
const USES: [&str; 2] = ["access", "access_token"];

/// Which members an answer must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerRules {
    /// `require_token_type`: RFC 7662 makes `token_type` optional, but servers leave it out for refresh tokens.
    pub token_type: bool,
    /// `require_iss`
    pub issuer: bool,
}

/// Returns true if the token is a JWT, or looks like one. Such a token names its issuer, and is shown to no other.
pub fn looks_like_jwt(token: &str) -> bool {
    let header = token.split_once('.').filter(|(_, rest)| rest.contains('.')).map(|(header, _)| header);
    header.and_then(decode_segment).is_some_and(|header| header.trim_ascii_start().starts_with(b"{"))
}

/// Returns true if the answer names another token than this one: an endpoint, or a cache before it, can mix up answers.
/// Only a JWT says itself which one it is.
pub fn is_about_another(answer: &Map<String, Value>, token: &str) -> bool {
    let claims = Jws::parse(token).and_then(|jws| jws.claims()).unwrap_or_default();
    let named = [&claims, answer].map(|claims| claims.get("jti").filter(|jti| jti.is_string()));
    matches!(named, [Some(own), Some(other)] if own != other)
}

/// Judges the members of an answer with `"active": true`. The token is good until its `exp`, and for `max_lifetime` at
/// most.
pub fn accept(
    mut answer: Map<String, Value>,
    policy: &Arc<Issuer>,
    rules: AnswerRules,
    now: UnixTime,
    max_lifetime: Duration,
) -> Result<VerifiedToken, Reject> {
    check_issuer(&answer, policy, rules)?;
    check_kind(&answer, policy, rules)?;
    check_audience(&answer, policy)?;
    let bound = confirmation::read(&answer, policy.confirmation)?;
    // Only about the answer: the rest describes the token, as the claims of a JWT do.
    answer.retain(|name, _| name != "active" && name != "token_type");
    let latest = now + max_lifetime;
    // RFC 7662 section 2.2 makes it optional. The server says at each question whether the token has ended.
    answer.entry("exp").or_insert_with(|| json!(latest.as_secs()));
    let token = read_claims(answer, policy, now)?;
    // Without the clock skew: no token of ours that replaces it may live longer than it.
    let expires = token.expires - policy.clock_skew;
    let bound_to = bound.key;
    let bound_to_certificate = bound.certificate;
    let expires = expires.min(latest);
    let token = VerifiedToken { kind: CredentialKind::Opaque, expires, bound_to, bound_to_certificate, ..token };
    token.check_time(now, Validity::Live)?;
    Ok(token)
}

fn check_issuer(answer: &Map<String, Value>, policy: &Issuer, rules: AnswerRules) -> Result<(), Reject> {
    match answer.get("iss") {
        None if !rules.issuer => Ok(()),
        Some(Value::String(issuer)) if **issuer == *policy.issuer => Ok(()),
        found => {
            let found = quoted(found.and_then(Value::as_str));
            Err(Reject::new(Reason::UnknownIssuer, format!("the introspection endpoint answers with iss {found}")))
        }
    }
}

/// Access tokens only. A refresh token is active at many servers, and an ID token at some.
fn check_kind(answer: &Map<String, Value>, policy: &Issuer, rules: AnswerRules) -> Result<(), Reject> {
    let wrong = |name: &str| {
        let found = quoted(answer.get(name).and_then(Value::as_str));
        Err(Reject::new(Reason::WrongType, format!("the introspection endpoint answers with {name} {found}")))
    };
    let is_one_of = |value: &Value, names: &[&str]| {
        value.as_str().is_some_and(|text| names.iter().any(|name| name.eq_ignore_ascii_case(text)))
    };
    match answer.get("token_type") {
        None if !rules.token_type => {}
        Some(kind) if is_one_of(kind, &["bearer"]) => {}
        // Without `cnf`, it is not known which key the token is bound to.
        Some(kind) if is_one_of(kind, &["dpop"]) => match policy.confirmation {
            Confirmation::Ignore => {}
            Confirmation::Check if answer.contains_key("cnf") => {}
            _ => return Err(Reject::new(Reason::BoundToKey, "token_type is \"DPoP\"")),
        },
        _ => return wrong("token_type"),
    }
    let types: Vec<&str> = TYPES.into_iter().chain(policy.types.iter().map(String::as_str)).collect();
    if answer.get("typ").is_some_and(|typ| !is_one_of(typ, &types)) {
        return wrong("typ");
    }
    if answer.get("token_use").is_some_and(|used| !is_one_of(used, &USES)) {
        return wrong("token_use");
    }
    Ok(())
}

/// Verifies a signed answer (RFC 9701) to this client, and returns what it says about the token. Its own `iss` and
/// `aud` are about the answer alone.
pub fn read_signed_answer(
    answer: &str,
    issuer: &TrustedIssuer,
    client_id: &str,
    now: UnixTime,
    steps: StepReporter<'_>,
) -> Result<Map<String, Value>, Reject> {
    let bad = |detail: &'static str| Reject::new(Reason::BadClaims, detail);
    let policy = &issuer.policy;
    let jws = Jws::parse(answer)?;
    let typ = jws.header.get("typ").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    // An access token or a logout token of the same issuer is signed by the same keys.
    if typ.strip_prefix("application/").unwrap_or(&typ) != ANSWER_TYPE {
        return Err(Reject::new(Reason::WrongType, format!("typ of the signed answer is {}", quoted(Some(&typ)))));
    }
    let algorithm = jws.algorithm(|algorithm| policy.algorithms.contains(&algorithm))?;
    let mut claims = jws.claims()?;
    if string(&claims, "iss")? != Some(&*policy.issuer) {
        return Err(Reject::new(Reason::UnknownIssuer, "iss of the signed answer is not that of the issuer"));
    }
    if !names_one_of(&claims, &[client_id.to_owned()]) {
        return Err(Reject::new(Reason::WrongAudience, "aud of the signed answer does not name this client"));
    }
    let made = date(&claims, "iat")?.ok_or_else(|| bad("iat of the signed answer is missing"))?;
    if now.since(made) > MAX_ANSWER_AGE + policy.clock_skew || made.since(now) > policy.clock_skew {
        return Err(bad("iat of the signed answer is not that of this moment"));
    }
    if date(&claims, "exp")?.is_some_and(|end| now >= end + policy.clock_skew) {
        return Err(bad("the signed answer has expired"));
    }
    jws.verify(&issuer.keys, algorithm, steps)?;
    match claims.remove("token_introspection") {
        Some(Value::Object(answer)) => Ok(answer),
        _ => Err(bad("token_introspection of the signed answer is not an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::issuer::Audience;
    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);
    const MAX_LIFETIME: Duration = Duration::from_mins(2);
    const STRICT: AnswerRules = AnswerRules { token_type: true, issuer: false };
    const LAX: AnswerRules = AnswerRules { token_type: false, issuer: false };

    fn policy() -> Arc<Issuer> {
        Arc::new(Issuer {
            audience: Audience::OneOf(vec!["https://api.example".into()]),
            resources: Vec::new(),
            clock_skew: Duration::from_secs(30),
            max_lifetime: Duration::from_hours(1),
            require_subject: true,
            types: vec!["at+jwt".into()],
            ..(**VerifiedToken::with_subject("x".into()).policy()).clone()
        })
    }

    fn answer(changes: &Value) -> Map<String, Value> {
        let mut answer = json!({
            "active": true, "token_type": "Bearer", "iss": "https://login.example", "aud": "https://api.example",
            "sub": "alice", "client_id": "app", "scope": "read write", "iat": 999_900, "exp": 1_000_900,
        });
        let members = answer.as_object_mut().expect("an object");
        for (name, value) in changes.as_object().expect("an object") {
            members.insert(name.clone(), value.clone());
        }
        members.retain(|_, value| !value.is_null());
        members.clone()
    }

    fn judge(changes: &Value, rules: AnswerRules) -> Result<VerifiedToken, Reason> {
        accept(answer(changes), &policy(), rules, NOW, MAX_LIFETIME).map_err(|reject| reject.reason)
    }

    #[test]
    fn an_answer_is_judged_as_the_claims_of_a_jwt() {
        for (changes, expected) in [
            (json!({}), None),
            (json!({ "iss": null }), None),
            (json!({ "iss": "https://other.example" }), Some(Reason::UnknownIssuer)),
            (json!({ "iss": 1 }), Some(Reason::UnknownIssuer)),
            (json!({ "aud": null }), Some(Reason::WrongAudience)),
            (json!({ "aud": "https://other.example" }), Some(Reason::WrongAudience)),
            (json!({ "aud": ["https://other.example", "https://api.example"] }), None),
            (json!({ "aud": ["https://api.example", 1] }), Some(Reason::WrongAudience)),
            (json!({ "sub": null }), Some(Reason::BadClaims)),
            (json!({ "sub": 7 }), Some(Reason::BadClaims)),
            (json!({ "scope": "a\"b" }), Some(Reason::BadClaims)),
            (json!({ "exp": "1000900" }), Some(Reason::BadClaims)),
            (json!({ "exp": 1e300 }), Some(Reason::BadClaims)),
            (json!({ "exp": 200_000_000_000_u64 }), Some(Reason::LifetimeTooLong)),
            (json!({ "exp": 1_000_000 }), Some(Reason::Expired)),
            (json!({ "nbf": 1_000_030 }), None),
            (json!({ "nbf": 1_000_031 }), Some(Reason::NotYetValid)),
            (json!({ "iat": 990_000 }), Some(Reason::LifetimeTooLong)),
            (json!({ "cnf": { "jkt": "x" } }), Some(Reason::BoundToKey)),
            (json!({ "cnf": {} }), Some(Reason::BoundToKey)),
        ] {
            assert_eq!(judge(&changes, STRICT).err(), expected, "{changes}");
        }
        let required = AnswerRules { issuer: true, ..STRICT };
        assert_eq!(judge(&json!({ "iss": null }), required).err(), Some(Reason::UnknownIssuer));
    }

    #[test]
    fn only_an_access_token_is_accepted() {
        let wrong = Some(Reason::WrongType);
        let bound = Some(Reason::BoundToKey);
        for (changes, strict, lax) in [
            (json!({ "token_type": null }), wrong, None),
            (json!({ "token_type": "bearer" }), None, None),
            (json!({ "token_type": "refresh_token" }), wrong, wrong),
            (json!({ "token_type": ["Bearer"] }), wrong, wrong),
            (json!({ "token_type": "DPoP" }), bound, bound),
            (json!({ "typ": "Bearer" }), None, None),
            (json!({ "typ": "at+jwt" }), None, None),
            (json!({ "typ": "Refresh" }), wrong, wrong),
            (json!({ "typ": "ID" }), wrong, wrong),
            (json!({ "token_use": "access_token" }), None, None),
            (json!({ "token_use": "refresh_token" }), wrong, wrong),
            (json!({ "token_use": true }), wrong, wrong),
        ] {
            assert_eq!([judge(&changes, STRICT).err(), judge(&changes, LAX).err()], [strict, lax], "{changes}");
        }
    }

    #[test]
    fn a_token_ends_with_its_exp_or_with_its_maximum_lifetime() {
        for (changes, secs) in [
            (json!({}), 1_000_120),
            (json!({ "exp": 1_000_060 }), 1_000_060),
            (json!({ "exp": null }), 1_000_120),
            (json!({ "exp": null, "iat": null }), 1_000_120),
        ] {
            let token = judge(&changes, STRICT).expect("accepted");
            assert_eq!(token.expires, UnixTime::from_secs(secs), "{changes}");
            assert!(token.kind == CredentialKind::Opaque && !token.claims.contains_key("active"), "{:?}", token.claims);
        }
        let token = judge(&json!({}), STRICT).expect("accepted");
        assert_eq!(
            (&*token.subject, token.scope.join(" "), token.dated.as_secs()),
            ("alice", "read write".into(), 999_900)
        );
    }

    #[test]
    fn only_a_jwt_says_which_token_it_is() {
        // {"alg":"ES256"} and {"jti":"a"}
        let jwt = "eyJhbGciOiJFUzI1NiJ9.eyJqdGkiOiJhIn0.AA";
        for (token, changes, expected) in [
            (jwt, json!({ "jti": "a" }), false),
            (jwt, json!({ "jti": "b" }), true),
            (jwt, json!({}), false),
            (jwt, json!({ "jti": 1 }), false),
            ("eyJhbGciOiJFUzI1NiJ9.e30.AA", json!({ "jti": "b" }), false),
            ("opaque", json!({ "jti": "b" }), false),
        ] {
            assert_eq!(is_about_another(&answer(&changes), token), expected, "{token} {changes}");
        }
    }

    #[test]
    fn only_what_has_the_header_of_a_jwt_looks_like_one() {
        // {"alg":"none"} and {"alg":"dir","enc":"A256GCM"}
        for (token, expected) in [
            ("eyJhbGciOiJub25lIn0.e30.", true),
            ("eyJhbGciOiJub25lIn0.e30.AA", true),
            ("eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0..AA.AA.AA", true),
            ("eyJhbGciOiJub25lIn0.e30", false),
            ("eyJhbGciOiJub25lIn0", false),
            ("ory_at_abc.def.ghi", false),
            ("2YotnFZFEjr1zCsicMWpAA", false),
            ("", false),
        ] {
            assert_eq!(looks_like_jwt(token), expected, "{token}");
        }
    }
}
