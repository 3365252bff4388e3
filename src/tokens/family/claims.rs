//! The claims of a family: those that every credential of it has.

use serde_json::{Map, Value, json};

use super::record::Family;

/// The claim that says how the client of a family has authenticated.
const CLIENT_AUTH: &str = "client_auth";

/// When the user signed in, in seconds. For a client that a user has granted it, that was before the family began:
/// [`with_auth_time`].
pub fn auth_time(family: &Family) -> u64 {
    family.claims.get("auth_time").and_then(Value::as_u64).unwrap_or(family.created_at.as_secs())
}

/// Keeps when the user signed in, for a family that begins later. No login can set the claim: it is reserved.
pub fn with_auth_time(mut family: Family, session: &Family) -> Family {
    family.claims.insert("auth_time".into(), json!(auth_time(session)));
    family
}

/// Keeps when the user has authenticated at the provider, which may be long before the session here. Not later than the
/// session: the clock of the provider may be ahead.
pub fn with_auth_time_of_provider(mut family: Family, time: u64) -> Family {
    family.claims.insert("auth_time".into(), json!(time.min(family.created_at.as_secs())));
    family
}

/// Keeps that the client of a family has authenticated, and how: without that, its refresh token is not enough. No
/// login can set the claim: it is reserved.
pub fn with_client_auth(mut family: Family, method: Option<&str>) -> Family {
    if let Some(method) = method {
        family.claims.insert(CLIENT_AUTH.into(), json!(method));
    }
    family
}

/// Returns true for the claims of a family, or of its token, that only a client which authenticates may refresh and
/// revoke.
pub fn has_client_auth(claims: &Map<String, Value>) -> bool {
    claims.contains_key(CLIENT_AUTH)
}

/// The claims of RFC 9068 section 2.2 without `jti`, and two of our own: `sid`, the family, and `auth_time_ms`, when
/// the family began. Watermarks are compared with it: a refresh cannot make a session younger than "log out
/// everywhere".
///
/// `audience`: for a family without one. `issued` and `expires` are in seconds.
pub fn claims_of(family: &Family, issuer: &str, audience: &[String], issued: u64, expires: u64) -> Map<String, Value> {
    let audience = if family.audience.is_empty() { audience } else { &family.audience };
    let mut claims = family.claims.clone();
    claims.insert("iss".into(), json!(issuer));
    claims.insert("sub".into(), json!(family.subject));
    claims.insert("aud".into(), if let [one] = audience { json!(one) } else { json!(audience) });
    claims.insert("iat".into(), json!(issued));
    claims.insert("exp".into(), json!(expires));
    claims.insert("auth_time".into(), json!(auth_time(family)));
    claims.insert("auth_time_ms".into(), json!(family.created_at.as_millis()));
    claims.insert("sid".into(), json!(family.id));
    if !family.scope.is_empty() {
        claims.insert("scope".into(), json!(family.scope));
    }
    if !family.client_id.is_empty() {
        claims.insert("client_id".into(), json!(family.client_id));
    }
    claims
}
