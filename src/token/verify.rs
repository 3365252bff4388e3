//! From the bytes of a token to a [`VerifiedToken`], by an issuer's terms and its own keys.
//!
//! The order is by cost, cheapest first: size and shape, header, claims, and the signature last, as it costs fifty times
//! all the rest. Nothing is believed before the signature holds; a token that would be refused anyway is refused early.
//! The key is looked up last but one: only a token that is good otherwise may cause keys to be fetched.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::keys::{Key, KeySet};
use super::{Audience, Issuer, Validity, VerifiedToken, algorithm_name, algorithm_named, decode_segment, json};
use crate::clock::UnixTime;
use crate::ids::TokenId;
use crate::reject::{Reason, Reject};
use crate::story::{Step, Story};

/// An issuer and the keys it has at the moment.
#[derive(Clone, Debug)]
pub struct TrustedIssuer {
    pub policy: Arc<Issuer>,
    pub keys: Arc<KeySet>,
}

/// Header parameters that change what a token means or where its key comes from. None of them is needed, and each has
/// been an attack: a key out of the token (`jwk`, `jku`, `x5u`), another payload encoding (`b64`, `zip`), extensions that
/// must be understood (`crit`).
const FORBIDDEN: &[&str] = &["crit", "b64", "zip", "jku", "jwk", "x5u"];

/// Checks a compact JWS. `issuers` are those whose tokens may be used here; a `kid` is looked up in the token's own
/// issuer only, so that no issuer can speak for another.
pub fn verify(
    token: &str,
    issuers: &[TrustedIssuer],
    now: UnixTime,
    validity: Validity,
    story: Story<'_>,
) -> Result<VerifiedToken, Reject> {
    let segments = Segments::split(token)?;
    let header = json_segment(segments.header, "header")?;
    if let Some(name) = FORBIDDEN.iter().find(|name| header.contains_key(**name)) {
        return Err(Reject::new(Reason::ForbiddenHeader, format!("the header has {name}")));
    }
    let claims = json_segment(segments.claims, "claims")?;
    let issuer = find_issuer(&claims, issuers)?;
    let policy = &*issuer.policy;
    story.tell(Step::Issuer, || policy.issuer.to_string());

    check_type(&header, policy)?;
    let algorithm = find_algorithm(&header, policy)?;
    let kid = optional_str(&header, "kid").map_err(|fault| Reject::new(Reason::MalformedToken, fault))?;
    story.tell(Step::Header, || {
        let typ = header.get("typ").and_then(Value::as_str);
        format!("alg {}, typ {}, kid {}", algorithm_name(algorithm), show(typ), show(kid))
    });
    check_audience(&claims, &policy.audience)?;
    let verified = read_claims(claims, policy, now)?;
    story.tell(Step::Claims, || format!("sub {:?}, scope {:?}", verified.subject, verified.scope.join(" ")));
    verified.check_time(now, validity)?;
    story.tell(Step::Time, || {
        format!("from {} to {}, leeway included; it is {now}", verified.not_before, verified.expires)
    });

    let key = find_key(&issuer.keys, kid, algorithm)?;
    story.tell(Step::Key, || format!("{} {}", algorithm_name(key.algorithm), show(key.kid.as_deref())));
    match jsonwebtoken::crypto::verify(segments.signature, segments.message.as_bytes(), &key.decoding, key.algorithm) {
        Ok(true) => {
            story.tell(Step::Signature, || "holds".into());
            Ok(verified)
        }
        Ok(false) => Err(Reason::BadSignature.into()),
        Err(error) => Err(Reject::new(Reason::BadSignature, format!("the signature cannot be read: {error}"))),
    }
}

/// Whose token this says it is. Nothing of it is believed: it says whose keys to fetch, among issuers that are known.
pub fn named_issuer(token: &str) -> Option<String> {
    let claims = json_segment(Segments::split(token).ok()?.claims, "claims").ok()?;
    claims.get("iss").and_then(Value::as_str).map(str::to_owned)
}

struct Segments<'t> {
    header: &'t str,
    claims: &'t str,
    signature: &'t str,
    /// What is signed: header, dot, claims.
    message: &'t str,
}

impl<'t> Segments<'t> {
    fn split(token: &'t str) -> Result<Self, Reject> {
        let malformed = || Reject::new(Reason::MalformedToken, "not three segments with dots between them");
        let (message, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = message.split_once('.').ok_or_else(malformed)?;
        if claims.contains('.') || header.is_empty() || claims.is_empty() {
            return Err(malformed());
        }
        if signature.is_empty() {
            return Err(Reject::new(Reason::BadSignature, "there is no signature"));
        }
        Ok(Segments { header, claims, signature, message })
    }
}

fn json_segment(segment: &str, name: &str) -> Result<Map<String, Value>, Reject> {
    let malformed = |fault: String| Reject::new(Reason::MalformedToken, format!("the {name}: {fault}"));
    let bytes = decode_segment(segment).ok_or_else(|| malformed("not base64url without padding".into()))?;
    json::object(&bytes).map_err(|error| malformed(error.to_string()))
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

fn find_algorithm(header: &Map<String, Value>, policy: &Issuer) -> Result<super::Algorithm, Reject> {
    let Some(Value::String(name)) = header.get("alg") else {
        return Err(Reject::new(Reason::AlgorithmRefused, "alg is missing or not a string"));
    };
    algorithm_named(name)
        .filter(|algorithm| policy.algorithms.contains(algorithm))
        .ok_or_else(|| Reject::new(Reason::AlgorithmRefused, format!("alg is {}", show(Some(name)))))
}

fn find_key<'k>(keys: &'k KeySet, kid: Option<&str>, algorithm: super::Algorithm) -> Result<&'k Key, Reject> {
    if keys.is_empty() {
        return Err(Reject::new(Reason::KeysUnavailable, "this issuer's keys are not there yet, or too old"));
    }
    keys.find(kid, algorithm).ok_or_else(|| {
        Reject::new(Reason::UnknownKey, format!("no {} key {} of this issuer", algorithm_name(algorithm), show(kid)))
    })
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

fn read_claims(claims: Map<String, Value>, policy: &Issuer, now: UnixTime) -> Result<VerifiedToken, Reject> {
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
        not_before: iat.unwrap_or_default().max(nbf.unwrap_or_default()) - policy.leeway,
        expires: exp + policy.leeway,
        family,
        generation,
        claims,
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

fn optional_str<'m>(map: &'m Map<String, Value>, name: &str) -> Result<Option<&'m str>, String> {
    match map.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{name} is not a string")),
    }
}

/// Something a client chose, for the log: quoted, escaped, and not long.
fn show(text: Option<&str>) -> String {
    match text {
        None => "(none)".into(),
        Some(text) => format!("{:?}", text.chars().take(64).collect::<String>()),
    }
}
