//! A token of this gateway that replaces the token of the client. The backend then trusts one issuer, the gateway, and
//! one audience, its own.
//!
//! The replacement has the same claims as the token of the client, lives no longer, and is signed by the gateway.
//! Signing costs as much as verifying, so each token keeps its replacements until half of their lifetime is over.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use serde_json::{Map, Value, json};

use super::sign::SigningKey;
use super::verified_token::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::ids::to_base62;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Claims about the client's token itself, or about a key that only the client has (`cnf`, RFC 7800). They are not
/// copied.
const NOT_COPIED: &[&str] = &["iss", "aud", "exp", "nbf", "iat", "jti", "cnf"];

/// Claims that describe a family of this gateway. A token of another issuer must not bring them. `auth_time` is not
/// among them: there it is the login at that issuer (OpenID Connect Core section 2).
const FAMILY_CLAIMS: &[&str] = &["sid", "rgn", "auth_time_ms"];

/// The issuer and the lifetime of replacements.
#[derive(Clone, Debug)]
pub struct ReplacementSettings {
    /// `tokens.issuer`
    pub issuer: Arc<str>,
    /// `tokens.access_lifetime`
    pub lifetime: Duration,
}

/// The cached replacements of one token, one for each audience.
#[derive(Debug, Default)]
pub struct Replacements {
    cached: ArcSwapOption<Vec<Replacement>>,
}

#[derive(Clone, Debug)]
struct Replacement {
    audience: Vec<String>,
    kid: String,
    authorization: HeaderValue,
    /// The replacement is reused from here on: if the clock was set back, backends would reject it as dated ahead.
    from: UnixTime,
    /// Until then the replacement is reused.
    until: UnixTime,
}

impl Replacements {
    /// The `Authorization` header for an upstream with this audience.
    pub fn authorization(
        &self,
        token: &VerifiedToken,
        audience: &[String],
        settings: &ReplacementSettings,
        signing: &SigningKey,
        now: UnixTime,
    ) -> Result<HeaderValue, Reject> {
        let cached = self.cached.load();
        let fits = |one: &&Replacement| {
            one.audience == audience && one.kid == signing.kid && (one.from..one.until).contains(&now)
        };
        if let Some(replacement) = cached.as_deref().and_then(|cached| cached.iter().find(fits)) {
            return Ok(replacement.authorization.clone());
        }
        let replacement = Replacement::sign(token, audience, settings, signing, now)?;
        let authorization = replacement.authorization.clone();
        let others = cached.iter().flat_map(|cached| cached.iter()).filter(|one| one.audience != audience).cloned();
        // Of two requests that sign at the same time, one overwrites the other. That costs one more signature later.
        self.cached.store(Some(Arc::new(others.chain([replacement]).collect())));
        Ok(authorization)
    }
}

impl Replacement {
    fn sign(
        token: &VerifiedToken,
        audience: &[String],
        settings: &ReplacementSettings,
        signing: &SigningKey,
        now: UnixTime,
    ) -> Result<Self, Reject> {
        let expires = token.expires.min(now + settings.lifetime);
        let claims = claims(token, audience, &settings.issuer, now, expires);
        let failed =
            |error: &dyn std::error::Error| Reject::new(Reason::Internal, format!("cannot replace the token: {error}"));
        let signed = signing.sign(&claims).map_err(|error| failed(&error))?;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {signed}")).map_err(|error| failed(&error))?;
        authorization.set_sensitive(true);
        // A replacement that lives as long as the token is reused until it expires: a new one would not live longer.
        let until = if expires == token.expires { expires } else { now + settings.lifetime / 2 };
        // Requests of other workers may have read the clock a moment earlier.
        let from = now - Duration::from_secs(1);
        Ok(Replacement { audience: audience.to_vec(), kid: signing.kid.clone(), authorization, from, until })
    }
}

fn claims(
    token: &VerifiedToken,
    audience: &[String],
    issuer: &str,
    now: UnixTime,
    expires: UnixTime,
) -> Map<String, Value> {
    let is_dropped = |name: &str| NOT_COPIED.contains(&name) || !token.own && FAMILY_CLAIMS.contains(&name);
    let mut claims = token.claims.clone();
    claims.retain(|name, _| !is_dropped(name));
    claims.insert("iss".into(), json!(issuer));
    claims.insert("aud".into(), if let [one] = audience { json!(one) } else { json!(audience) });
    claims.insert("iat".into(), json!(now.as_secs()));
    claims.insert("exp".into(), json!(expires.as_secs()));
    claims.insert("jti".into(), json!(to_base62(&secret::random::<16>(), 22)));
    if !token.own {
        // The same `sub` can be different users at two issuers.
        claims.insert("idp".into(), json!(&*token.issuer));
    }
    claims
}
