//! The claims of a family: those that every credential of it has.

use serde_json::{Map, Value, json};

use super::record::Family;

/// The claims of RFC 9068 section 2.2 without `jti`, and two of our own: `sid`, the family, and `auth_time_ms`, the
/// `auth_time` in milliseconds. Watermarks are compared with it: it is the time of the login, so that a refresh cannot
/// make a session younger than "log out everywhere".
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
    claims.insert("auth_time".into(), json!(family.created_at.as_secs()));
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
