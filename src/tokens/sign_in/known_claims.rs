//! The claims of a login as its provider last stated them, in an ID token and at UserInfo.
//!
//! A refresh may come without an ID token, or without UserInfo. What was not sent anew has not changed. What a new ID
//! token leaves out, and UserInfo has not stated, is gone: some providers leave out a claim that has become empty, such
//! as the groups of a user. The same applies to a new response of UserInfo.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Only claims that [`SignInRules`](super::rules::SignInRules) use. No `Debug`: they are about a person.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct KnownClaims {
    claims: Map<String, Value>,
    /// The names of those that UserInfo has stated.
    user_info: BTreeSet<String>,
}

impl KnownClaims {
    /// Those of a session that an older version of the gateway began: it kept only what the family has.
    pub fn of_family(claims: Map<String, Value>) -> Self {
        KnownClaims { claims, user_info: BTreeSet::new() }
    }

    pub fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// A new ID token says this. What UserInfo has stated stays.
    pub fn replace_signed(&mut self, signed: &Map<String, Value>) {
        let mut earlier = std::mem::replace(&mut self.claims, signed.clone());
        for name in self.user_info.iter().filter(|name| !signed.contains_key(*name)) {
            self.claims.extend(earlier.remove_entry(name));
        }
    }

    /// UserInfo says this. `signed`: the ID token that came with it, which counts more.
    pub fn replace_user_info(&mut self, stated: Map<String, Value>, signed: &Map<String, Value>) {
        let is_signed = |name: &String| signed.contains_key(name);
        for gone in self.user_info.iter().filter(|name| !is_signed(name)) {
            self.claims.remove(gone);
        }
        self.user_info = stated.keys().cloned().collect();
        self.claims.extend(stated.into_iter().filter(|(name, _)| !is_signed(name)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().expect("an object")
    }

    fn known(signed: Value, user_info: Value) -> KnownClaims {
        let mut known = KnownClaims::default();
        known.replace_signed(&map(signed.clone()));
        known.replace_user_info(map(user_info), &map(signed));
        known
    }

    #[test]
    fn the_id_token_counts_more_than_user_info() {
        let known = known(json!({ "email": "a", "groups": [] }), json!({ "groups": ["staff"], "name": "n" }));
        assert_eq!(*known.claims(), map(json!({ "email": "a", "groups": [], "name": "n" })));
    }

    #[test]
    fn what_was_not_sent_anew_has_not_changed() {
        let before = known(json!({ "email": "a", "groups": ["staff"] }), json!({ "name": "n" }));
        // Without an ID token.
        let mut after = before.clone();
        after.replace_user_info(map(json!({ "name": "m", "email": "b" })), &Map::new());
        assert_eq!(*after.claims(), map(json!({ "email": "b", "groups": ["staff"], "name": "m" })));
        // Without UserInfo.
        let mut after = before;
        after.replace_signed(&map(json!({ "email": "b", "groups": [] })));
        assert_eq!(*after.claims(), map(json!({ "email": "b", "groups": [], "name": "n" })));
    }

    #[test]
    fn what_was_sent_anew_without_a_claim_has_lost_it() {
        let signed = json!({ "email": "a", "groups": ["staff"] });
        let mut of_token = known(signed.clone(), json!({ "name": "n" }));
        of_token.replace_signed(&map(json!({ "email": "a" })));
        assert_eq!(*of_token.claims(), map(json!({ "email": "a", "name": "n" })));

        let mut of_user_info = known(signed, json!({ "name": "n", "groups": ["staff"] }));
        of_user_info.replace_user_info(map(json!({ "nickname": "x" })), &Map::new());
        assert_eq!(*of_user_info.claims(), map(json!({ "email": "a", "nickname": "x" })));
    }
}
