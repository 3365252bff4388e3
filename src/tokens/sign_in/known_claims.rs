//! The claims of a login as its provider last stated them, in an ID token and at UserInfo.
//!
//! A refresh may come without an ID token, or without UserInfo. What was not sent anew has not changed. What a new ID
//! token leaves out, and UserInfo has not stated, is gone: some providers leave out a claim that has become empty, such
//! as the groups of a user. The same applies to a new response of UserInfo.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Only claims that [`SignInRules`](super::rules::SignInRules) use. No `Debug`: they are about a person.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct KnownClaims {
    /// Of the last ID token, without those of which UserInfo has the last word.
    signed: Map<String, Value>,
    /// Of the last response of UserInfo.
    user_info: Map<String, Value>,
}

impl KnownClaims {
    /// Those of a session that an older version of the gateway began: it kept only what the family has, and UserInfo
    /// may have stated each of them.
    pub fn of_family(claims: Map<String, Value>) -> Self {
        KnownClaims { signed: Map::new(), user_info: claims }
    }

    pub fn claims(&self) -> Map<String, Value> {
        let mut claims = self.user_info.clone();
        claims.extend(self.signed.clone());
        claims
    }

    /// Returns true if UserInfo alone has stated one of them.
    pub fn have_user_info(&self) -> bool {
        self.user_info.keys().any(|name| !self.signed.contains_key(name))
    }

    /// Forgets what UserInfo has stated.
    pub fn without_user_info(&self) -> KnownClaims {
        KnownClaims { signed: self.signed.clone(), user_info: Map::new() }
    }

    /// A new ID token says this. What UserInfo has stated stays.
    pub fn replace_signed(&mut self, signed: &Map<String, Value>) {
        self.signed = signed.clone();
    }

    /// UserInfo says this. `signed`: the ID token that came with it, which counts more.
    pub fn replace_user_info(&mut self, stated: Map<String, Value>, signed: &Map<String, Value>) {
        let gone = |name: &String| self.user_info.contains_key(name) || stated.contains_key(name);
        self.signed.retain(|name, _| signed.contains_key(name) || !gone(name));
        self.user_info = stated;
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
        assert_eq!(known.claims(), map(json!({ "email": "a", "groups": [], "name": "n" })));
    }

    #[test]
    fn what_was_not_sent_anew_has_not_changed() {
        let before = known(json!({ "email": "a", "groups": ["staff"] }), json!({ "name": "n" }));
        // Without an ID token.
        let mut after = before.clone();
        after.replace_user_info(map(json!({ "name": "m", "email": "b" })), &Map::new());
        assert_eq!(after.claims(), map(json!({ "email": "b", "groups": ["staff"], "name": "m" })));
        // Without UserInfo.
        let mut after = before;
        after.replace_signed(&map(json!({ "email": "b", "groups": [] })));
        assert_eq!(after.claims(), map(json!({ "email": "b", "groups": [], "name": "n" })));
    }

    #[test]
    fn what_was_sent_anew_without_a_claim_has_lost_it() {
        let signed = json!({ "email": "a", "groups": ["staff"] });
        let mut of_token = known(signed.clone(), json!({ "name": "n" }));
        of_token.replace_signed(&map(json!({ "email": "a" })));
        assert_eq!(of_token.claims(), map(json!({ "email": "a", "name": "n" })));

        let mut of_user_info = known(signed, json!({ "name": "n", "groups": ["staff"] }));
        of_user_info.replace_user_info(map(json!({ "nickname": "x" })), &Map::new());
        assert_eq!(of_user_info.claims(), map(json!({ "email": "a", "nickname": "x" })));
    }

    #[test]
    fn only_what_user_info_has_stated_goes_without_it() {
        let known = known(json!({ "email": "a", "groups": ["staff"] }), json!({ "email": "b", "name": "n" }));
        assert!(known.have_user_info());
        let without = known.without_user_info();
        assert_eq!(without.claims(), map(json!({ "email": "a", "groups": ["staff"] })));
        assert!(!without.have_user_info());
        // The last word on a claim counts.
        let mut after = known.clone();
        after.replace_user_info(map(json!({ "groups": ["staff"] })), &Map::new());
        assert!(after.without_user_info().claims().is_empty(), "it leaves the address out that it has stated");
        after.replace_signed(&map(json!({ "groups": ["guests"] })));
        assert_eq!(after.without_user_info().claims(), map(json!({ "groups": ["guests"] })));
        assert!(KnownClaims::of_family(map(json!({ "email": "a" }))).without_user_info().claims().is_empty());
    }
}
