//! A token of our own in the place of the one that a client brought: the upstream then has one issuer to trust, whoever
//! issued the client's, and one audience, its own.
//!
//! It says what the client's token says, and no more: the same claims, for as long at most, signed anew. Signing costs as
//! much as verifying, so each token keeps its replacements until half of their life is over.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use serde_json::{Map, Value, json};

use super::VerifiedToken;
use super::sign::SigningKey;
use crate::types::clock::UnixTime;
use crate::types::ids::to_base62;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// What the client's token says about itself, or about a key that only the client has (`cnf`, RFC 7800).
const OF_THE_ORIGINAL: &[&str] = &["iss", "aud", "exp", "nbf", "iat", "jti", "cnf"];

/// `sid` and `rgn` are a family of ours. From another issuer they are not.
const OF_OUR_FAMILIES: &[&str] = &["sid", "rgn"];

/// Whose the replacements are, and how long they live.
#[derive(Clone, Debug)]
pub struct ReplacementSettings {
    /// `tokens.issuer`
    pub issuer: Arc<str>,
    /// `tokens.access_lifetime`
    pub lifetime: Duration,
}

/// The replacements of one token, one for each audience.
#[derive(Debug, Default)]
pub struct Replacements {
    made: ArcSwapOption<Vec<Replacement>>,
}

#[derive(Clone, Debug)]
struct Replacement {
    audience: Vec<String>,
    kid: String,
    authorization: HeaderValue,
    until: UnixTime,
}

impl Replacements {
    /// `Authorization` for an upstream that is this audience.
    pub fn authorization(
        &self,
        token: &VerifiedToken,
        audience: &[String],
        terms: &ReplacementSettings,
        signing: &SigningKey,
        now: UnixTime,
    ) -> Result<HeaderValue, Reject> {
        let made = self.made.load();
        let fits = |one: &&Replacement| one.audience == audience && one.kid == signing.kid && now < one.until;
        if let Some(replacement) = made.as_deref().and_then(|made| made.iter().find(fits)) {
            return Ok(replacement.authorization.clone());
        }
        let replacement = Replacement::make(token, audience, terms, signing, now)?;
        let authorization = replacement.authorization.clone();
        let others = made.iter().flat_map(|made| made.iter()).filter(|one| one.audience != audience).cloned();
        // Of two requests that make one at the same time, one loses its own: that costs a signature, later.
        self.made.store(Some(Arc::new(others.chain([replacement]).collect())));
        Ok(authorization)
    }
}

impl Replacement {
    fn make(
        token: &VerifiedToken,
        audience: &[String],
        terms: &ReplacementSettings,
        signing: &SigningKey,
        now: UnixTime,
    ) -> Result<Self, Reject> {
        let expires = token.expires.min(now + terms.lifetime);
        let claims = claims(token, audience, &terms.issuer, now, expires);
        let failed = |fault: String| Reject::new(Reason::Internal, format!("the token's replacement: {fault}"));
        let signed = signing.sign(&claims).map_err(failed)?;
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {signed}")).map_err(|error| failed(error.to_string()))?;
        authorization.set_sensitive(true);
        // The last one lasts as long as the token does: another would not live longer.
        let until = if expires == token.expires { expires } else { now + terms.lifetime / 2 };
        Ok(Replacement { audience: audience.to_vec(), kid: signing.kid.clone(), authorization, until })
    }
}

fn claims(
    token: &VerifiedToken,
    audience: &[String],
    issuer: &str,
    now: UnixTime,
    expires: UnixTime,
) -> Map<String, Value> {
    let goes = |name: &str| OF_THE_ORIGINAL.contains(&name) || !token.own && OF_OUR_FAMILIES.contains(&name);
    let mut claims = token.claims.clone();
    claims.retain(|name, _| !goes(name));
    claims.insert("iss".into(), json!(issuer));
    claims.insert("aud".into(), if let [one] = audience { json!(one) } else { json!(audience) });
    claims.insert("iat".into(), json!(now.as_secs()));
    claims.insert("exp".into(), json!(expires.as_secs()));
    claims.insert("jti".into(), json!(to_base62(&secret::random::<16>(), 22)));
    if !token.own {
        // Two issuers may mean different people by one `sub`.
        claims.insert("idp".into(), json!(&*token.issuer));
    }
    claims
}
