//! From the bytes of a token to a [`VerifiedToken`], by an issuer's terms and its own keys.
//!
//! The order is by cost, cheapest first: size and shape, header, claims, and the signature last, as it costs fifty times
//! all the rest. Nothing is believed before the signature holds; a token that would be refused anyway is refused early.
//! The key is looked up last but one: only a token that is good otherwise may cause keys to be fetched.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::jws::{Jws, optional_str, show};
use super::key_set::KeySet;
use super::{Audience, Issuer, Validity, VerifiedToken};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};
use crate::types::trace::{Step, Trace};

/// An issuer and the keys it has at the moment.
#[derive(Clone, Debug)]
pub struct TrustedIssuer {
    pub policy: Arc<Issuer>,
    pub keys: Arc<KeySet>,
}

/// Checks a compact JWS. `issuers` are those whose tokens may be used here; a `kid` is looked up in the token's own
/// issuer only, so that no issuer can speak for another.
pub fn verify(
    token: &str,
    issuers: &[TrustedIssuer],
    now: UnixTime,
    validity: Validity,
    trace: Trace<'_>,
) -> Result<VerifiedToken, Reject> {
    let jws = Jws::read(token)?;
    let claims = jws.claims()?;
    let issuer = find_issuer(&claims, issuers)?;
    let policy = &issuer.policy;
    trace.step(Step::Issuer, || policy.issuer.to_string());

    check_type(&jws.header, policy)?;
    let algorithm = jws.algorithm(|algorithm| policy.algorithms.contains(&algorithm))?;
    jws.kid()?;
    trace.step(Step::Header, || jws.header_in_words(algorithm));
    check_audience(&claims, &policy.audience)?;
    let verified = read_claims(claims, policy, now)?;
    trace.step(Step::Claims, || format!("sub {:?}, scope {:?}", verified.subject, verified.scope.join(" ")));
    verified.check_time(now, validity)?;
    trace.step(Step::Time, || {
        format!("from {} to {}, clock skew included; it is {now}", verified.not_before, verified.expires)
    });

    let signer = jws.check(&issuer.keys, algorithm, trace)?;
    Ok(VerifiedToken { signer: Some(signer), ..verified })
}

/// Would [`verify`] find this one good again, by the same key and on the same terms, its time aside? Other keys come and go, and
/// its signature need not be checked for that.
pub fn still_holds(token: &VerifiedToken, issuers: &[TrustedIssuer]) -> bool {
    let issuer = issuers.iter().find(|issuer| issuer.policy.issuer == token.issuer);
    issuer.is_some_and(|issuer| {
        issuer.policy == token.policy && token.signer.as_ref().is_some_and(|signer| issuer.keys.still_finds(signer))
    })
}

/// Whose token this says it is. Nothing of it is believed: it says whose keys to fetch, among issuers that are known.
pub fn named_issuer(token: &str) -> Option<String> {
    let claims = Jws::read(token).ok()?.claims().ok()?;
    claims.get("iss").and_then(Value::as_str).map(str::to_owned)
}

fn find_issuer<'i>(claims: &Map<String, Value>, issuers: &'i [TrustedIssuer]) -> Result<&'i TrustedIssuer, Reject> {
    let Some(Value::String(name)) = claims.get("iss") else {
        return Err(Reject::new(Reason::UnknownIssuer, "iss is missing or not a string"));
    };
    issuers
        .iter()
        .find(|issuer| *issuer.policy.issuer == **name)
        .ok_or_else(|| Reject::new(Reason::UnknownIssuer, format!("iss is {}", show(Some(name)))))
}

/// `typ` says what the token is for. An ID token of the same issuer with the same audience is no access token; `at+jwt`
/// tells them apart (RFC 9068 section 4). A missing `typ` is read as `JWT`, as RFC 7519 makes it optional.
fn check_type(header: &Map<String, Value>, policy: &Issuer) -> Result<(), Reject> {
    let typ = optional_str(header, "typ").map_err(|fault| Reject::new(Reason::WrongType, fault))?.unwrap_or("JWT");
    let short = match typ.split_at_checked("application/".len()) {
        Some((media, rest)) if media.eq_ignore_ascii_case("application/") => rest,
        _ => typ,
    };
    if policy.types.iter().any(|accepted| accepted.eq_ignore_ascii_case(short)) {
        return Ok(());
    }
    Err(Reject::new(Reason::WrongType, format!("typ is {}, accepted: {}", show(Some(typ)), policy.types.join(", "))))
}

fn check_audience(claims: &Map<String, Value>, audience: &Audience) -> Result<(), Reject> {
    let Audience::OneOf(audience) = audience else { return Ok(()) };
    let accepted = |value: &Value| value.as_str().is_some_and(|aud| audience.iter().any(|ours| ours == aud));
    let good = match claims.get("aud") {
        Some(Value::Array(several)) => several.iter().all(Value::is_string) && several.iter().any(accepted),
        Some(one) => accepted(one),
        None => false,
    };
    if good { Ok(()) } else { Err(Reject::new(Reason::WrongAudience, "aud is missing or names none of ours")) }
}

fn read_claims(claims: Map<String, Value>, policy: &Arc<Issuer>, now: UnixTime) -> Result<VerifiedToken, Reject> {
    let bad = |fault: String| Reject::new(Reason::BadClaims, fault);
    let subject = optional_str(&claims, "sub").map_err(bad)?.unwrap_or_default().to_owned();
    if subject.is_empty() && policy.require_subject {
        return Err(bad("sub is missing or empty".into()));
    }
    let exp = date(&claims, "exp").map_err(bad)?.ok_or_else(|| bad("exp is missing".into()))?;
    let iat = date(&claims, "iat").map_err(bad)?;
    let nbf = date(&claims, "nbf").map_err(bad)?;

    // Without an iat the lifetime counts from now: a token for ever is refused either way.
    let lifetime = exp.since(iat.unwrap_or(now));
    if lifetime > policy.max_lifetime {
        let detail = format!("lives {}s, at most {}s are taken", lifetime.as_secs(), policy.max_lifetime.as_secs());
        return Err(Reject::new(Reason::LifetimeTooLong, detail));
    }
    let (family, generation) = if policy.own { read_family(&claims).map_err(bad)? } else { (None, None) };
    Ok(VerifiedToken {
        issuer: policy.issuer.clone(),
        own: policy.own,
        subject,
        scope: scopes(&claims).map_err(bad)?,
        jti: optional_str(&claims, "jti").map_err(bad)?.map(str::to_owned),
        issued_at: iat.unwrap_or_default(),
        not_before: iat.unwrap_or_default().max(nbf.unwrap_or_default()) - policy.clock_skew,
        expires: exp + policy.clock_skew,
        family,
        generation,
        claims,
        policy: policy.clone(),
        signer: None,
    })
}

/// Our own tokens always name their family: a token that cannot be revoked by it is not ours.
fn read_family(claims: &Map<String, Value>) -> Result<(Option<TokenId>, Option<u64>), String> {
    let family = claims.get("sid").and_then(Value::as_str).and_then(TokenId::parse).ok_or("sid is not a token id")?;
    let generation = claims.get("rgn").and_then(Value::as_u64).ok_or("rgn is not a generation")?;
    Ok((Some(family), Some(generation)))
}

/// `scope` (RFC 8693) or `scp`, each a string with spaces or an array.
fn scopes(claims: &Map<String, Value>) -> Result<Vec<String>, String> {
    let Some(value) = claims.get("scope").or_else(|| claims.get("scp")) else { return Ok(Vec::new()) };
    match value {
        Value::String(text) => Ok(text.split(' ').filter(|scope| !scope.is_empty()).map(str::to_owned).collect()),
        Value::Array(several) => several
            .iter()
            .map(|scope| {
                scope.as_str().map(str::to_owned).ok_or_else(|| "scope holds something else than strings".into())
            })
            .collect(),
        _ => Err("scope is neither a string nor an array".into()),
    }
}

/// A NumericDate (RFC 7519 section 2): seconds, perhaps with a fraction. Strings, negatives and dates past the year 9999
/// are refused: an `exp` that some reader takes for absent is how CVE-2026-25537 worked.
fn date(claims: &Map<String, Value>, name: &str) -> Result<Option<UnixTime>, String> {
    const YEAR_10000: f64 = 253_402_300_800.0;
    let Some(value) = claims.get(name) else { return Ok(None) };
    match value.as_f64() {
        Some(secs) if (0.0..YEAR_10000).contains(&secs) => Ok(Some(UnixTime::from_millis((secs * 1000.0) as u64))),
        _ => Err(format!("{name} is not a NumericDate")),
    }
}
