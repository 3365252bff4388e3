//! The rules of a route for a valid token: issuers, scopes and claims. Pure. Prepared when the configuration is read.

use std::fmt;

use serde_json::{Map, Value};

use crate::tokens::jwt::VerifiedToken;
use crate::tokens::jwt::pointer::Pointer;
use crate::types::reject::{Reason, Reject};

/// All rules must hold. Without rules, every valid token is accepted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// `route.issuers`: one of these. Empty: any.
    pub issuers: Vec<String>,
    /// `route.scopes`: all of these.
    pub scopes: Vec<String>,
    /// `route.any_scope`: at least one of these. Empty: any.
    pub any_scope: Vec<String>,
    /// `[[route.claim]]`
    pub claims: Vec<ClaimRule>,
}

/// `[[route.claim]]`: what one claim must be.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimRule {
    pub pointer: Pointer,
    pub condition: Condition,
}

/// Compared as JSON: `"1"` is not `1`, and `"admin"` is not a part of `"administrator"`.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    Equals(Value),
    OneOf(Vec<Value>),
    /// An array with this element, or this value itself: many issuers write a list of one without brackets.
    Contains(Value),
    /// Any value but `null`.
    Present,
}

impl Rules {
    pub fn check(&self, token: &VerifiedToken) -> Result<(), Reject> {
        if !self.issuers.is_empty() && !self.issuers.iter().any(|issuer| **issuer == *token.issuer) {
            let detail = format!("{} is not among the route's issuers", token.issuer);
            return Err(Reject::new(Reason::IssuerNotAllowed, detail));
        }
        if let Some(missing) = self.scopes.iter().find(|scope| !token.has_scope(scope)) {
            return Err(self.scope_rejection(format!("missing scope {missing}")));
        }
        if !self.any_scope.is_empty() && !self.any_scope.iter().any(|scope| token.has_scope(scope)) {
            return Err(self.scope_rejection(format!("none of the scopes {}", self.any_scope.join(", "))));
        }
        match self.claims.iter().find_map(|rule| rule.violation(&token.claims)) {
            Some(violation) => Err(Reject::new(Reason::ClaimRejected, violation)),
            None => Ok(()),
        }
    }

    /// Returns true if every token that meets these rules meets `others` as well.
    pub fn imply(&self, others: &Rules) -> bool {
        let issuers = others.issuers.is_empty()
            || !self.issuers.is_empty() && self.issuers.iter().all(|issuer| others.issuers.contains(issuer));
        let scopes = others.scopes.iter().all(|scope| self.scopes.contains(scope));
        let any_scope = others.any_scope.is_empty()
            || others.any_scope.iter().any(|scope| self.scopes.contains(scope))
            || !self.any_scope.is_empty() && self.any_scope.iter().all(|scope| others.any_scope.contains(scope));
        issuers && scopes && any_scope && others.claims.iter().all(|claim| self.claims.contains(claim))
    }

    /// Scopes that would be enough: all of `scopes` and the first of `any_scope`.
    pub fn needed_scopes(&self) -> impl Iterator<Item = &String> {
        self.scopes.iter().chain(self.any_scope.first())
    }

    /// [`Rules::needed_scopes`], separated by spaces.
    pub(super) fn needed_scope(&self) -> String {
        let needed: Vec<&str> = self.needed_scopes().map(String::as_str).collect();
        needed.join(" ")
    }

    fn scope_rejection(&self, detail: String) -> Reject {
        Reject::new(Reason::InsufficientScope, detail).needs_scope(&self.needed_scope())
    }
}

/// The rules in words, for `bearward explain`.
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
    /// Returns which claim breaks the rule. Never its value, because this goes to the log.
    pub fn violation(&self, claims: &Map<String, Value>) -> Option<String> {
        let pointer = &self.pointer;
        let Some(value) = pointer.find(claims).filter(|value| !value.is_null()) else {
            return Some(format!("missing claim {pointer}"));
        };
        let holds = match &self.condition {
            Condition::Equals(expected) => value == expected,
            Condition::OneOf(several) => several.contains(value),
            Condition::Contains(expected) => {
                value == expected || value.as_array().is_some_and(|a| a.contains(expected))
            }
            Condition::Present => true,
        };
        (!holds).then(|| format!("claim {pointer} does not match its rule"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_imply_weaker_rules_only() {
        let rules = |issuers: &[&str], scopes: &[&str], any_scope: &[&str], claims: &[&str]| {
            let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
            let pointer = |text: &&str| Pointer::parse(text).expect("a pointer");
            let claim = |text| ClaimRule { pointer: pointer(text), condition: Condition::Present };
            let claims = claims.iter().map(claim).collect();
            Rules { issuers: list(issuers), scopes: list(scopes), any_scope: list(any_scope), claims }
        };
        let none = rules(&[], &[], &[], &[]);
        for (one, others, implies) in [
            (none.clone(), none.clone(), true),
            (rules(&["i"], &["s"], &["a"], &["/c"]), none.clone(), true),
            (none.clone(), rules(&["i"], &[], &[], &[]), false),
            (rules(&["i"], &[], &[], &[]), rules(&["i", "j"], &[], &[], &[]), true),
            (rules(&["i", "j"], &[], &[], &[]), rules(&["i"], &[], &[], &[]), false),
            (rules(&[], &["s", "t"], &[], &[]), rules(&[], &["s"], &[], &[]), true),
            (rules(&[], &["s"], &[], &[]), rules(&[], &["s", "t"], &[], &[]), false),
            (rules(&[], &["s"], &[], &[]), rules(&[], &[], &["s", "t"], &[]), true),
            (rules(&[], &[], &["s"], &[]), rules(&[], &[], &["s", "t"], &[]), true),
            (rules(&[], &[], &["s", "t"], &[]), rules(&[], &[], &["s"], &[]), false),
            (none.clone(), rules(&[], &[], &["s"], &[]), false),
            (rules(&[], &[], &[], &["/c", "/d"]), rules(&[], &[], &[], &["/c"]), true),
            (none, rules(&[], &[], &[], &["/c"]), false),
        ] {
            assert_eq!(one.imply(&others), implies, "{one:?} {others:?}");
        }
    }

    #[test]
    fn a_claim_is_compared_as_json() {
        let claims = json!({
            "s": "admin", "n": 1, "b": true, "z": null, "list": ["a", "admin", 1], "none": [], "o": { "admin": true }
        });
        let claims = claims.as_object().expect("an object");
        let holds = |pointer: &str, condition: Condition| {
            let pointer = Pointer::parse(pointer).expect("a pointer");
            ClaimRule { pointer, condition }.violation(claims).is_none()
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
