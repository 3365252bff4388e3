//! What a route asks of a token beyond its being valid: issuers, scopes, and what its claims say. Pure; prepared when the
//! configuration is read.

use std::fmt;

use serde_json::{Map, Value};

use crate::tokens::jwt::VerifiedToken;
use crate::tokens::jwt::pointer::Pointer;
use crate::types::reject::{Reason, Reject};

/// All of it has to hold. Without any, every valid token will do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// `route.issuers`: one of these, or any if there are none.
    pub issuers: Vec<String>,
    /// `route.scopes`: every one of these.
    pub scopes: Vec<String>,
    /// `route.any_scope`: at least one of these, unless it is empty.
    pub any_scope: Vec<String>,
    /// `[[route.claim]]`
    pub claims: Vec<ClaimRule>,
}

/// `[[route.claim]]`: what has to stand at one place of the claims.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimRule {
    pub pointer: Pointer,
    pub condition: Condition,
}

/// Compared as JSON: `"1"` is not `1`, and nothing is taken for a part of something else.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    Equals(Value),
    OneOf(Vec<Value>),
    /// In an array; or it is the value itself, as many issuers write a list of one without its brackets.
    Contains(Value),
    /// Something, and not `null`.
    Present,
}

impl Rules {
    pub fn check(&self, token: &VerifiedToken) -> Result<(), Reject> {
        if !self.issuers.is_empty() && !self.issuers.iter().any(|issuer| **issuer == *token.issuer) {
            let detail = format!("{} is not among the route's issuers", token.issuer);
            return Err(Reject::new(Reason::IssuerNotAllowed, detail));
        }
        if let Some(missing) = self.scopes.iter().find(|scope| !token.has_scope(scope)) {
            return Err(self.scope_refusal(format!("the scope {missing} is missing")));
        }
        if !self.any_scope.is_empty() && !self.any_scope.iter().any(|scope| token.has_scope(scope)) {
            return Err(self.scope_refusal(format!("none of the scopes {} is there", self.any_scope.join(", "))));
        }
        match self.claims.iter().find_map(|rule| rule.fault(&token.claims)) {
            Some(fault) => Err(Reject::new(Reason::ClaimRejected, fault)),
            None => Ok(()),
        }
    }

    /// Names scopes that would do: all of `scopes`, and the first of `any_scope`.
    fn scope_refusal(&self, detail: String) -> Reject {
        let needed: Vec<&str> = self.scopes.iter().chain(self.any_scope.first()).map(String::as_str).collect();
        Reject::new(Reason::InsufficientScope, detail).needs_scope(&needed.join(" "))
    }
}

/// What is asked, in words.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointers: Vec<String> = self.claims.iter().map(|rule| rule.pointer.to_string()).collect();
        let lists = [
            ("one of the issuers ", &self.issuers),
            ("the scopes ", &self.scopes),
            ("one of the scopes ", &self.any_scope),
            ("the claims ", &pointers),
        ];
        let asked: Vec<String> = lists
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(what, list)| format!("{what}{}", list.join(", ")))
            .collect();
        f.write_str(if asked.is_empty() { "none" } else { "" })?;
        f.write_str(&asked.join("; "))
    }
}

impl ClaimRule {
    /// Which claim is not as it should be. Never what it is: that goes to the log.
    fn fault(&self, claims: &Map<String, Value>) -> Option<String> {
        let pointer = &self.pointer;
        let Some(value) = pointer.find(claims).filter(|value| !value.is_null()) else {
            return Some(format!("the claim {pointer} is missing"));
        };
        let good = match &self.condition {
            Condition::Equals(expected) => value == expected,
            Condition::OneOf(several) => several.contains(value),
            Condition::Contains(expected) => {
                value == expected || value.as_array().is_some_and(|a| a.contains(expected))
            }
            Condition::Present => true,
        };
        (!good).then(|| format!("the claim {pointer} is not what this route asks for"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_is_compared_as_json() {
        let claims = json!({
            "s": "admin", "n": 1, "b": true, "z": null, "list": ["a", "admin", 1], "none": [], "o": { "admin": true }
        });
        let claims = claims.as_object().expect("an object");
        let holds = |pointer: &str, condition: Condition| {
            let pointer = Pointer::parse(pointer).expect("a pointer");
            ClaimRule { pointer, condition }.fault(claims).is_none()
        };
        use Condition::*;
        for (pointer, condition, expected) in [
            ("/s", Equals(json!("admin")), true),
            ("/s", Equals(json!("Admin")), false),
            ("/n", Equals(json!(1)), true),
            ("/n", Equals(json!("1")), false),
            ("/b", Equals(json!(true)), true),
            ("/b", Equals(json!("true")), false),
            ("/list", Equals(json!("admin")), false),
            ("/x", Equals(json!("admin")), false),
            ("/s", OneOf(vec![json!("user"), json!("admin")]), true),
            ("/s", OneOf(vec![json!("user")]), false),
            ("/list", OneOf(vec![json!("admin")]), false),
            ("/list", Contains(json!("admin")), true),
            ("/list", Contains(json!(1)), true),
            ("/list", Contains(json!("adm")), false),
            ("/none", Contains(json!("admin")), false),
            ("/s", Contains(json!("admin")), true),
            ("/s", Contains(json!("adm")), false),
            ("/o", Contains(json!("admin")), false),
            ("/s", Present, true),
            ("/none", Present, true),
            ("/z", Present, false),
            ("/x", Present, false),
        ] {
            assert_eq!(holds(pointer, condition.clone()), expected, "{pointer} {condition:?}");
        }
    }
}
