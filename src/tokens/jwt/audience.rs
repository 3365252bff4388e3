//! Which audience a use of a token needs. Pure.

use serde_json::Value;

use super::verified_token::VerifiedToken;
use crate::types::reject::{Reason, Reject};

/// What `aud` must name for one use of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeededAudience<'r> {
    /// A value of `tokens.audience` or `issuer.audience`.
    Gateway,
    /// This resource (`route.resource`). A token for the gateway is not good there: the client that holds it may act
    /// for the user everywhere else.
    Resource(&'r str),
    /// Any audience that the verification accepts. For calls that are about the token, and do nothing with it.
    Any,
}

impl NeededAudience<'_> {
    /// Rejects a verified token with another audience.
    pub fn check(self, token: &VerifiedToken) -> Result<(), Reject> {
        let resource = match self {
            NeededAudience::Any => return Ok(()),
            NeededAudience::Gateway if token.is_for_gateway => return Ok(()),
            NeededAudience::Gateway => {
                return Err(Reject::new(Reason::WrongAudience, "aud names only resources of other routes"));
            }
            NeededAudience::Resource(resource) => resource,
        };
        let names_it = |aud: &Value| aud.as_str() == Some(resource);
        let is_for_it = match token.claims.get("aud") {
            Some(Value::Array(several)) => several.iter().any(names_it),
            Some(one) => names_it(one),
            None => false,
        };
        if is_for_it {
            return Ok(());
        }
        Err(Reject::new(Reason::WrongAudience, format!("aud does not name {resource}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_for_one_resource_is_good_there_alone() {
        let token = |aud: Value, is_for_gateway| {
            let mut token = VerifiedToken::with_subject("alice".into());
            token.claims.insert("aud".into(), aud);
            VerifiedToken { is_for_gateway, ..token }
        };
        let notes = "https://api.example/notes";
        let of_notes = token(json!(notes), false);
        let of_gateway = token(json!(["https://api.example"]), true);
        let of_both = token(json!(["https://api.example", notes]), true);
        let without = token(json!(null), false);
        use NeededAudience::*;
        for (needed, token, expected) in [
            (Gateway, &of_notes, false),
            (Gateway, &of_gateway, true),
            (Gateway, &of_both, true),
            (Resource(notes), &of_notes, true),
            (Resource(notes), &of_gateway, false),
            (Resource(notes), &of_both, true),
            (Resource("https://api.example/notes/"), &of_both, false),
            (Resource(notes), &without, false),
            (Any, &of_notes, true),
        ] {
            assert_eq!(needed.check(token).is_ok(), expected, "{needed:?} {:?}", token.claims.get("aud"));
        }
    }
}
