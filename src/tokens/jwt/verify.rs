//! From the bytes of a token to a [`VerifiedToken`], with the settings and keys of its issuer.
//!
//! The cheapest checks come first: shape, header, claims. The signature comes last, because it costs fifty times as
//! much as the rest. Until then nothing in the token is trusted; the early checks only reject tokens that would be
//! rejected anyway. The key is looked up just before the signature, so that only an otherwise valid token can cause a
//! fetch of keys.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::confirmation;
use super::issuer::{Issuer, names_one_of};
use super::json::{optional_date, optional_str, quoted};
use super::jws::Jws;
use super::key_set::KeySet;
use super::verified_token::{Validity, VerifiedToken};
use crate::tokens::credential_kind::CredentialKind;
use crate::tokens::scope::is_scope_token;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};
use crate::types::step::{Step, StepReporter};

/// An issuer and its current keys.
#[derive(Clone, Debug)]
pub struct TrustedIssuer {
    pub policy: Arc<Issuer>,
    pub keys: Arc<KeySet>,
}

/// Verifies a token of one of these issuers. A `kid` is looked up only among the keys of the token's own issuer, so
/// that no issuer can sign for another.
pub fn verify(
    token: &str,
    issuers: &[TrustedIssuer],
    now: UnixTime,
    validity: Validity,
    steps: StepReporter<'_>,
) -> Result<VerifiedToken, Reject> {
    let jws = Jws::parse(token)?;
    let claims = jws.claims()?;
    let issuer = find_issuer(&claims, issuers)?;
    let policy = &issuer.policy;
    steps.report(Step::Issuer, || policy.issuer.to_string());

    check_type(&jws.header, policy)?;
    let algorithm = jws.algorithm(|algorithm| policy.algorithms.contains(&algorithm))?;
    jws.kid()?;
    steps.report(Step::Header, || jws.describe_header(algorithm));
    check_audience(&claims, policy)?;
    let bound = confirmation::read(&claims, policy.confirmation)?;
    let verified = read_claims(claims, policy, now)?;
    steps.report(Step::Claims, || format!("sub {:?}, scope {:?}", verified.subject, verified.scope.join(" ")));
    verified.check_time(now, validity)?;
    steps.report(Step::Time, || {
        format!("from {} to {}, clock skew included; it is {now}", verified.not_before, verified.expires)
    });

    let signer = jws.verify(&issuer.keys, algorithm, steps)?;
    Ok(VerifiedToken { signer: Some(signer), bound_to: bound.key, bound_to_certificate: bound.certificate, ..verified })
}

/// Returns true if [`verify`] would accept this token again with the same key and issuer settings. The time is not
/// checked. A change of other keys does not require a new check of the signature, and no change of keys concerns what
/// stands for an API key or for a login at a provider, or what the issuer said about an opaque token.
pub fn is_still_valid(token: &VerifiedToken, issuers: &[TrustedIssuer]) -> bool {
    let issuer = issuers.iter().find(|issuer| issuer.policy.issuer == token.issuer);
    issuer.is_some_and(|issuer| match token.kind {
        CredentialKind::ApiKey | CredentialKind::Handle => issuer.policy.own,
        CredentialKind::Opaque => issuer.policy == token.policy,
        CredentialKind::Jwt => {
            let has_key = |signer| issuer.keys.has_signer(signer);
            issuer.policy == token.policy && token.signer.as_ref().is_some_and(has_key)
        }
    })
}

/// The `iss` of a token that was not verified. Use it only to choose which known issuer to fetch keys from.
pub fn unverified_issuer(token: &str) -> Option<String> {
    let claims = Jws::parse(token).ok()?.claims().ok()?;
    claims.get("iss").and_then(Value::as_str).map(str::to_owned)
}

fn find_issuer<'i>(claims: &Map<String, Value>, issuers: &'i [TrustedIssuer]) -> Result<&'i TrustedIssuer, Reject> {
    let Some(Value::String(name)) = claims.get("iss") else {
        return Err(Reject::new(Reason::UnknownIssuer, "iss is missing or not a string"));
    };
    issuers
        .iter()
        .find(|issuer| *issuer.policy.issuer == **name)
        .ok_or_else(|| Reject::new(Reason::UnknownIssuer, format!("iss is {}", quoted(Some(name)))))
}

/// `typ` tells an access token (`at+jwt`) from an ID token of the same issuer and audience (RFC 9068 section 4). A
/// missing `typ` counts as `JWT`, because RFC 7519 makes it optional.
pub(super) fn check_type(header: &Map<String, Value>, policy: &Issuer) -> Result<(), Reject> {
    let typ = optional_str(header, "typ").map_err(|error| Reject::new(Reason::WrongType, error.to_string()))?;
    let is_missing = typ.is_none();
    let typ = typ.unwrap_or("JWT");
    let short = match typ.split_at_checked("application/".len()) {
        Some((media, rest)) if media.eq_ignore_ascii_case("application/") => rest,
        _ => typ,
    };
    if policy.types.iter().any(|accepted| accepted.eq_ignore_ascii_case(short)) {
        return Ok(());
    }
    let shown =
        if is_missing { "no typ, which counts as JWT".to_owned() } else { format!("typ is {}", quoted(Some(typ))) };
    Err(Reject::new(Reason::WrongType, format!("{shown}; accepted: {}", policy.types.join(", "))))
}

/// Accepts also a token for a resource of a route alone: [`super::NeededAudience`] judges each use of it.
pub(super) fn check_audience(claims: &Map<String, Value>, policy: &Issuer) -> Result<(), Reject> {
    if policy.audience.is_named_in(claims) || names_one_of(claims, &policy.resources) {
        return Ok(());
    }
    Err(Reject::new(Reason::WrongAudience, "aud is missing or has none of the accepted values"))
}

pub(super) fn read_claims(
    claims: Map<String, Value>,
    policy: &Arc<Issuer>,
    now: UnixTime,
) -> Result<VerifiedToken, Reject> {
    let subject = string(&claims, "sub")?.unwrap_or_default().to_owned();
    if subject.is_empty() && policy.require_subject {
        return Err(bad("sub is missing or empty"));
    }
    let exp = date(&claims, "exp")?.ok_or_else(|| bad("exp is missing"))?;
    let iat = date(&claims, "iat")?;
    let nbf = date(&claims, "nbf")?;

    // Without iat the lifetime counts from now, so that a token without an end is rejected in both cases.
    let lifetime = exp.since(iat.unwrap_or(now));
    if lifetime > policy.max_lifetime {
        let detail = format!("the lifetime is {}s, the maximum {}s", lifetime.as_secs(), policy.max_lifetime.as_secs());
        return Err(Reject::new(Reason::LifetimeTooLong, detail));
    }
    let (family, generation) = if policy.own { read_family(&claims)? } else { (None, None) };
    let login = if policy.own { read_login(&claims)? } else { None };
    let is_for_gateway = policy.audience.is_named_in(&claims);
    Ok(VerifiedToken {
        issuer: policy.issuer.clone(),
        own: policy.own,
        kind: CredentialKind::Jwt,
        provider: None,
        key_rate: None,
        subject,
        scope: scopes(&claims)?,
        jti: string(&claims, "jti")?.map(str::to_owned),
        dated: login.or(iat).unwrap_or_default(),
        not_before: iat.unwrap_or_default().max(nbf.unwrap_or_default()) - policy.clock_skew,
        expires: exp + policy.clock_skew,
        family,
        generation,
        login_version: 0,
        claims,
        is_for_gateway,
        policy: policy.clone(),
        signer: None,
        log_members: OnceLock::new(),
        bound_to: None,
        bound_to_certificate: None,
    })
}

fn bad(detail: impl Into<Cow<'static, str>>) -> Reject {
    Reject::new(Reason::BadClaims, detail)
}

pub(super) fn string<'c>(claims: &'c Map<String, Value>, name: &'static str) -> Result<Option<&'c str>, Reject> {
    optional_str(claims, name).map_err(|error| bad(error.to_string()))
}

/// Tokens of this gateway always name their family. Without it, a revocation of the family would not end the token.
fn read_family(claims: &Map<String, Value>) -> Result<(Option<TokenId>, Option<u64>), Reject> {
    let family = claims.get("sid").and_then(Value::as_str).and_then(TokenId::parse);
    let family = family.ok_or_else(|| bad("sid is not a token id"))?;
    let generation = claims.get("rgn").and_then(Value::as_u64).ok_or_else(|| bad("rgn is not a generation"))?;
    Ok((Some(family), Some(generation)))
}

/// When the login was. `None` for tokens of a version of the gateway without this claim.
fn read_login(claims: &Map<String, Value>) -> Result<Option<UnixTime>, Reject> {
    let Some(value) = claims.get("auth_time_ms") else { return Ok(None) };
    let millis = value.as_u64().ok_or_else(|| bad("auth_time_ms is not a number of milliseconds"))?;
    Ok(Some(UnixTime::from_millis(millis)))
}

/// `scope` (RFC 8693) or `scp`: a space-separated string or an array of strings. A scope with a space in it, or with
/// another character that RFC 6749 does not allow, would be one scope here and two for a backend that splits
/// `X-Auth-Scope`.
fn scopes(claims: &Map<String, Value>) -> Result<Vec<String>, Reject> {
    let Some(value) = claims.get("scope").or_else(|| claims.get("scp")) else { return Ok(Vec::new()) };
    let scope_token = |scope: &str| {
        if is_scope_token(scope) {
            Ok(scope.to_owned())
        } else {
            Err(bad(format!("scope contains {}, which is not one scope", quoted(Some(scope)))))
        }
    };
    match value {
        Value::String(text) => text.split(' ').filter(|scope| !scope.is_empty()).map(scope_token).collect(),
        Value::Array(several) => several
            .iter()
            .map(|scope| scope.as_str().ok_or_else(|| bad("an element of scope is not a string")).and_then(scope_token))
            .collect(),
        _ => Err(bad("scope is neither a string nor an array")),
    }
}

pub(super) fn date(claims: &Map<String, Value>, name: &'static str) -> Result<Option<UnixTime>, Reject> {
    optional_date(claims, name).map_err(|error| bad(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn own_tokens_are_dated_by_their_login_and_others_by_iat() {
        let other = VerifiedToken::with_subject("alice".into()).policy;
        let other = Issuer { max_lifetime: Duration::from_secs(900), ..(*other).clone() };
        let own = Issuer { own: true, ..other.clone() };
        let sid = TokenId::from_bytes([1; 16]);
        let whole =
            json!({ "sub": "alice", "iat": 1_000, "exp": 1_900, "sid": sid, "rgn": 2, "auth_time_ms": 600_123 });
        let dated = |policy: &Issuer, removed: &[&str]| {
            let mut claims = whole.as_object().expect("an object").clone();
            claims.retain(|name, _| !removed.contains(&name.as_str()));
            let read = read_claims(claims, &Arc::new(policy.clone()), UnixTime::from_secs(1_000));
            read.unwrap_or_else(|reject| panic!("{}", reject.detail)).dated.as_millis()
        };
        assert_eq!(dated(&own, &[]), 600_123);
        assert_eq!(dated(&own, &["auth_time_ms"]), 1_000_000, "a version without the claim issued the token");
        assert_eq!(dated(&other, &[]), 1_000_000, "the claim of another issuer means nothing here");
        assert_eq!(dated(&other, &["iat"]), 0);
    }
}
