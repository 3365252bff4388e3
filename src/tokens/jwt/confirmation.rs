//! The claim `cnf` (RFC 7800): the key or the certificate of the client that a token is bound to.

use serde_json::{Map, Value};

use super::issuer::Confirmation;
use crate::tokens::bound::Bound;
use crate::types::reject::{Reason, Reject};
use crate::types::thumbprint::Thumbprint;

/// What the token is bound to. Nothing for a bearer token. A token with `cnf` is worth nothing without the key of its
/// client: if it were accepted as a bearer token, a stolen one would be as good as the client.
///
/// # Errors
/// If the gateway cannot check every member of `cnf`, or must not accept bound tokens of this issuer.
pub(super) fn read(claims: &Map<String, Value>, rule: Confirmation) -> Result<Bound, Reject> {
    let Some(cnf) = claims.get("cnf") else { return Ok(Bound::default()) };
    let bound = |detail: &'static str| Err(Reject::new(Reason::BoundToKey, detail));
    match rule {
        Confirmation::Ignore => return Ok(Bound::default()),
        Confirmation::Reject => return bound("the token has the claim cnf, and `issuer.cnf` is \"reject\""),
        Confirmation::Check => {}
    }
    let Some(members) = cnf.as_object() else { return bound("cnf is not an object") };
    if members.is_empty() || members.keys().any(|name| name != "jkt" && name != "x5t#S256") {
        return bound("the gateway checks no other member of cnf than jkt (DPoP) and x5t#S256 (certificates)");
    }
    // A member that is there and cannot be read is not one that is missing.
    let read = |name: &str| match members.get(name) {
        None => Ok(None),
        Some(value) => value.as_str().and_then(Thumbprint::parse).map(Some).ok_or(()),
    };
    match (read("jkt"), read("x5t#S256")) {
        (Ok(key), Ok(certificate)) => Ok(Bound { key, certificate }),
        (Err(()), _) => bound("jkt is not the SHA-256 thumbprint of a key in base64url"),
        _ => bound("x5t#S256 is not the SHA-256 of a certificate in base64url"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_thumbprint_alone_can_be_checked() {
        let jkt = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";
        let read = |cnf: &Value, rule| {
            let claims = json!({ "cnf": cnf });
            super::read(claims.as_object().expect("an object"), rule).map_err(|reject| reject.reason)
        };
        let bound = Err(Reason::BoundToKey);
        let of_text = Thumbprint::parse(jkt);
        let nothing = Bound::default();
        for (cnf, expected) in [
            (json!({ "jkt": jkt }), Bound { key: of_text, certificate: None }),
            (json!({ "x5t#S256": jkt }), Bound { key: None, certificate: of_text }),
            (json!({ "jkt": jkt, "x5t#S256": jkt }), Bound { key: of_text, certificate: of_text }),
        ] {
            assert_eq!(read(&cnf, Confirmation::Check), Ok(expected), "{cnf}");
        }
        assert_eq!(read(&json!({ "jkt": jkt }), Confirmation::Ignore), Ok(nothing));
        assert_eq!(read(&json!({ "jkt": jkt }), Confirmation::Reject), bound);
        assert_eq!(super::read(&Map::new(), Confirmation::Reject).ok(), Some(nothing));
        for cnf in [
            json!({}),
            json!(null),
            json!(jkt),
            json!({ "jkt": 7 }),
            json!({ "jkt": &jkt[1..] }),
            json!({ "jkt": format!("{jkt}=") }),
            json!({ "jkt": format!("{}t", &jkt[..42]) }),
            json!({ "jwk": {} }),
            json!({ "x5t": jkt }),
            json!({ "x5t#S256": 7 }),
            json!({ "x5t#S256": null }),
            json!({ "x5t#S256": format!("{jkt}=") }),
            json!({ "x5t#S256": "a".repeat(64) }),
            json!({ "x5t#S256": jkt, "x5t": jkt }),
            json!({ "jkt": jkt, "x5t#S256": &jkt[1..] }),
            json!({ "jkt": jkt, "other": 1 }),
        ] {
            assert_eq!(read(&cnf, Confirmation::Check), bound, "{cnf}");
        }
    }
}
