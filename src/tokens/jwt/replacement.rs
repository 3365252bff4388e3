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
use crate::tokens::credential_kind::CredentialKind;
use crate::types::clock::UnixTime;
use crate::types::ids::to_base62;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Claims about the client's token itself, or about a key that only the client has (`cnf`, RFC 7800). They are not
/// copied.
const NOT_COPIED: &[&str] = &["iss", "aud", "exp", "nbf", "iat", "jti", "cnf"];

/// Claims that describe a family of this gateway. A token of another issuer must not bring them. `auth_time` is not
/// among them: there it is the login at that issuer (OpenID Connect Core section 2).
const FAMILY_CLAIMS: &[&str] = &["sid", "rgn", "auth_time_ms", "client_auth"];

/// Maximum lifetime of a replacement of an opaque token. Its issuer says when the token ends early, and a backend does
/// not ask there.
const OPAQUE_LIFETIME: Duration = Duration::from_mins(5);

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
        let longest = if token.kind == CredentialKind::Opaque { OPAQUE_LIFETIME } else { Duration::MAX };
        let lifetime = settings.lifetime.min(longest);
        let expires = token.expires.min(now + lifetime);
        let claims = claims(token, audience, &settings.issuer, now, expires);
        let failed =
            |error: &dyn std::error::Error| Reject::new(Reason::Internal, format!("cannot replace the token: {error}"));
        let signed = signing.sign(&claims).map_err(|error| failed(&error))?;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {signed}")).map_err(|error| failed(&error))?;
        authorization.set_sensitive(true);
        // A replacement that lives as long as the token is reused until it expires: a new one would not live longer.
        let until = if expires == token.expires { expires } else { now + lifetime / 2 };
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

#[cfg(test)]
mod tests {
    use super::super::sign::generate_pem;
    use super::*;
    use crate::tokens::jwt::Algorithm;

    const NOW: UnixTime = UnixTime::from_secs(1_000);
    const LIFETIME: Duration = Duration::from_secs(100);
    const MILLISECOND: Duration = Duration::from_millis(1);

    fn settings() -> ReplacementSettings {
        ReplacementSettings { issuer: "https://gateway.example".into(), lifetime: LIFETIME }
    }

    fn signing() -> SigningKey {
        let pem = generate_pem(Algorithm::ES256).expect("a key");
        SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("reads its own key")
    }

    fn token(own: bool, expires: UnixTime) -> VerifiedToken {
        let mut token = VerifiedToken::with_subject("alice".into());
        (token.own, token.expires) = (own, expires);
        let claims = ["sub", "sid", "rgn", "jti", "nbf", "cnf", "role"].into_iter();
        token.claims = claims.map(|name| (name.to_owned(), json!("theirs"))).collect();
        token
    }

    /// Returns a function that tells which of the replacements it returned first: one more for each new one.
    fn replacing(token: VerifiedToken) -> impl FnMut(&str, &SigningKey, UnixTime) -> usize {
        let cache = Replacements::default();
        let mut seen = Vec::new();
        move |audience, signing, now| {
            let found = cache.authorization(&token, &[audience.to_owned()], &settings(), signing, now);
            let found = found.expect("signed");
            seen.iter().position(|one| *one == found).unwrap_or_else(|| {
                seen.push(found);
                seen.len() - 1
            })
        }
    }

    #[test]
    fn a_replacement_is_reused_for_half_of_its_lifetime() {
        let mut replace = replacing(token(true, UnixTime::MAX));
        let key = signing();
        let half = NOW + LIFETIME / 2;
        let second = Duration::from_secs(1);
        let times = [NOW, NOW - second, half - MILLISECOND, half, half - second, half - second - MILLISECOND];
        assert_eq!(times.map(|now| replace("a", &key, now)), [0, 0, 0, 1, 1, 2]);
    }

    #[test]
    fn the_last_replacement_is_reused_until_the_token_expires() {
        let expires = NOW + LIFETIME;
        let mut replace = replacing(token(true, expires));
        let key = signing();
        assert_eq!([NOW, expires - MILLISECOND].map(|now| replace("a", &key, now)), [0, 0]);
    }

    #[test]
    fn the_replacement_of_an_opaque_token_ends_soon() {
        let settings = ReplacementSettings { lifetime: Duration::from_mins(15), ..settings() };
        for (kind, minutes) in [(CredentialKind::Opaque, 5), (CredentialKind::Jwt, 15)] {
            let token = VerifiedToken { kind, ..token(false, UnixTime::MAX) };
            let replacement = Replacement::sign(&token, &["a".into()], &settings, &signing(), NOW).expect("signed");
            assert_eq!(replacement.until, NOW + Duration::from_mins(minutes) / 2, "{kind:?}");
        }
    }

    #[test]
    fn each_audience_and_each_key_has_its_own_replacement() {
        let mut replace = replacing(token(true, UnixTime::MAX));
        let key = signing();
        let other = signing();
        assert_eq!(["a", "b", "a", "b"].map(|audience| replace(audience, &key, NOW)), [0, 1, 0, 1]);
        assert_eq!([&other, &other].map(|key| replace("a", key, NOW)), [2, 2]);
        assert_eq!(replace("b", &key, NOW), 1, "another audience keeps its own");
    }

    #[test]
    fn claims_that_belong_to_the_token_itself_are_not_copied() {
        let names = |own| {
            let claims = claims(&token(own, NOW), &["a".into()], "https://gateway.example", NOW, NOW + LIFETIME);
            assert_eq!((&claims["iss"], &claims["aud"]), (&json!("https://gateway.example"), &json!("a")));
            assert_eq!((&claims["iat"], &claims["exp"]), (&json!(1_000), &json!(1_100)));
            assert_eq!((&claims["sub"], &claims["role"]), (&json!("theirs"), &json!("theirs")));
            assert_ne!(claims["jti"], json!("theirs"));
            claims.keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(true), "aud exp iat iss jti rgn role sid sub");
        assert_eq!(names(false), "aud exp iat idp iss jti role sub");
    }
}
