//! The claim `cnf` (RFC 7800): the key of the client that a token is bound to.

use serde_json::{Map, Value};

use super::issuer::Confirmation;
use crate::types::reject::{Reason, Reject};
use crate::types::thumbprint::Thumbprint;

/// The key that the token is bound to. `None` for a bearer token. A token with `cnf` is worth nothing without the key
/// of its client: if it were accepted as a bearer token, a stolen one would be as good as the client.
///
/// # Errors
/// If the gateway cannot check every member of `cnf`, or must not accept bound tokens of this issuer.
pub(super) fn read(claims: &Map<String, Value>, rule: Confirmation) -> Result<Option<Thumbprint>, Reject> {
    let Some(cnf) = claims.get("cnf") else { return Ok(None) };
    let bound = |detail: &'static str| Err(Reject::new(Reason::BoundToKey, detail));
    match rule {
        Confirmation::Ignore => return Ok(None),
        Confirmation::Reject => return bound("the token has the claim cnf, and `issuer.cnf` is \"reject\""),
        Confirmation::Check => {}
    }
    let Some(members) = cnf.as_object() else { return bound("cnf is not an object") };
    if members.len() != 1 || !members.contains_key("jkt") {
        return bound("the gateway checks no other member of cnf than jkt (DPoP)");
    }
    match members.get("jkt").and_then(Value::as_str).and_then(Thumbprint::parse) {
        Some(thumbprint) => Ok(Some(thumbprint)),
        None => bound("jkt is not the SHA-256 thumbprint of a key in base64url"),
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
        assert_eq!(read(&json!({ "jkt": jkt }), Confirmation::Check), Ok(Thumbprint::parse(jkt)));
        assert_eq!(read(&json!({ "jkt": jkt }), Confirmation::Ignore), Ok(None));
        assert_eq!(read(&json!({ "jkt": jkt }), Confirmation::Reject), bound);
        assert_eq!(super::read(&Map::new(), Confirmation::Reject).ok(), Some(None));
        for cnf in [
            json!({}),
            json!(null),
            json!(jkt),
            json!({ "jkt": 7 }),
            json!({ "jkt": &jkt[1..] }),
            json!({ "jkt": format!("{jkt}=") }),
            json!({ "jkt": format!("{}t", &jkt[..42]) }),
            json!({ "jwk": {} }),
            json!({ "x5t#S256": jkt }),
            json!({ "jkt": jkt, "x5t#S256": jkt }),
            json!({ "jkt": jkt, "other": 1 }),
        ] {
            assert_eq!(read(&cnf, Confirmation::Check), bound, "{cnf}");
        }
    }
}
