//! Who may sign in by the claims of a provider, and which of them its families get.

use serde_json::{Map, Value};

/// The claims by which a provider says that it left the groups out.
const NAMES: &str = "_claim_names";
const HAS_GROUPS: &str = "hasgroups";
/// The claims that decide about an address.
const OF_ADDRESS: [&str; 2] = ["email", "email_verified"];

/// Maximum size of the claims of one login, as JSON, in bytes: 800 groups with GUIDs as names. Each process keeps those
/// of the sessions in use in its memory.
const MAX_CLAIMS: usize = 32 * 1024;

/// `provider.claims`, `provider.groups_claim`, `provider.email_domains`, `provider.groups`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SignInRules {
    /// Copied into the family.
    pub claims: Vec<String>,
    pub groups_claim: String,
    /// In lower case. Empty: any.
    pub email_domains: Vec<String>,
    /// At least one of these. Empty: any.
    pub groups: Vec<String>,
}

/// Why a user may not sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    NoEmail,
    EmailNotVerified,
    EmailDomain,
    /// The provider says that there are groups, and does not name them.
    GroupsUnknown,
    NotInGroup,
    ClaimsTooLarge,
}

impl Denied {
    /// For the log.
    pub const fn detail(self) -> &'static str {
        match self {
            Denied::NoEmail => "provider.email_domains, and the claim email is not an address",
            Denied::EmailNotVerified => "provider.email_domains, and email_verified is not true",
            Denied::EmailDomain => "the domain of email is not in provider.email_domains",
            Denied::GroupsUnknown => "provider.groups, and the provider left the groups out: the user has too many",
            Denied::NotInGroup => "the user has none of provider.groups",
            Denied::ClaimsTooLarge => "the claims in provider.claims have more than 32 KiB as JSON: list fewer",
        }
    }
}

impl SignInRules {
    /// Returns true if a rule may need this claim, also one that a later configuration adds.
    pub fn concern(&self, name: &str) -> bool {
        const OF_RULES: [&str; 4] = ["email", "email_verified", NAMES, HAS_GROUPS];
        OF_RULES.contains(&name) || name == self.groups_claim || self.claims.iter().any(|copied| copied == name)
    }

    /// Returns true if a claim is missing that is copied or decides: UserInfo may have it.
    pub fn lack(&self, claims: &Map<String, Value>) -> bool {
        self.claims.iter().any(|name| !claims.contains_key(name)) || self.cannot_decide_by(claims)
    }

    /// Returns true if a claim is missing that decides who may sign in.
    pub fn cannot_decide_by(&self, claims: &Map<String, Value>) -> bool {
        let lacks = |name: &str| !claims.contains_key(name);
        !self.email_domains.is_empty() && OF_ADDRESS.into_iter().any(lacks)
            || !self.groups.is_empty() && lacks(&self.groups_claim)
    }

    /// The claims for the family, or why the user may not sign in.
    pub fn admit(&self, claims: &Map<String, Value>) -> Result<Map<String, Value>, Denied> {
        self.check_email(claims)?;
        self.check_groups(claims)?;
        self.copy(claims)
    }

    /// As [`SignInRules::admit`], if nothing but the claims of a family is known: a rule that needs another claim does
    /// not count.
    pub fn admit_by_some(&self, claims: &Map<String, Value>) -> Result<Map<String, Value>, Denied> {
        if OF_ADDRESS.iter().all(|name| claims.contains_key(*name)) {
            self.check_email(claims)?;
        }
        if claims.contains_key(&self.groups_claim) {
            self.check_groups(claims)?;
        }
        self.copy(claims)
    }

    fn copy(&self, claims: &Map<String, Value>) -> Result<Map<String, Value>, Denied> {
        let copied = |name: &String| Some((name.clone(), claims.get(name).filter(|value| !value.is_null())?.clone()));
        let copied: Map<String, Value> = self.claims.iter().filter_map(copied).collect();
        let is_small = serde_json::to_vec(&copied).is_ok_and(|text| text.len() <= MAX_CLAIMS);
        if is_small { Ok(copied) } else { Err(Denied::ClaimsTooLarge) }
    }

    /// An address proves nothing until the provider has verified it: at some, users choose it (nOAuth).
    fn check_email(&self, claims: &Map<String, Value>) -> Result<(), Denied> {
        if self.email_domains.is_empty() {
            return Ok(());
        }
        let email = claims.get("email").and_then(Value::as_str).ok_or(Denied::NoEmail)?;
        if claims.get("email_verified") != Some(&Value::Bool(true)) {
            return Err(Denied::EmailNotVerified);
        }
        // `a@evil@company.com` passed where the last part was compared (CVE-2026-40574).
        let (user, domain) = email.split_once('@').ok_or(Denied::NoEmail)?;
        if user.is_empty() || domain.contains('@') {
            return Err(Denied::NoEmail);
        }
        if self.email_domains.iter().any(|allowed| allowed.eq_ignore_ascii_case(domain)) {
            Ok(())
        } else {
            Err(Denied::EmailDomain)
        }
    }

    fn check_groups(&self, claims: &Map<String, Value>) -> Result<(), Denied> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let is_ours = |value: &Value| value.as_str().is_some_and(|group| self.groups.iter().any(|ours| ours == group));
        match claims.get(&self.groups_claim) {
            Some(Value::Array(groups)) if groups.iter().any(is_ours) => Ok(()),
            Some(one) if is_ours(one) => Ok(()),
            Some(Value::Array(_) | Value::String(_)) => Err(Denied::NotInGroup),
            // Entra ID leaves the groups of a user out who has more than 200.
            _ if self.are_elsewhere(claims) => Err(Denied::GroupsUnknown),
            _ => Err(Denied::NotInGroup),
        }
    }

    fn are_elsewhere(&self, claims: &Map<String, Value>) -> bool {
        let names = claims.get(NAMES).and_then(Value::as_object);
        let has_groups = claims.get(HAS_GROUPS).is_some_and(|value| *value == true || *value == "true");
        names.is_some_and(|names| names.contains_key(&self.groups_claim)) || has_groups
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(email_domains: &[&str], groups: &[&str]) -> SignInRules {
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        SignInRules {
            claims: list(&["email", "name"]),
            groups_claim: "groups".into(),
            email_domains: list(email_domains),
            groups: list(groups),
        }
    }

    fn denied(rules: &SignInRules, claims: Value) -> Option<Denied> {
        rules.admit(claims.as_object().expect("an object")).err()
    }

    #[test]
    fn only_a_verified_address_of_the_domain_is_good() {
        let rules = rules(&["ours.example"], &[]);
        for (email, verified, expected) in [
            (json!("a@ours.example"), json!(true), None),
            (json!("a@OURS.example"), json!(true), None),
            (json!("a@ours.example"), json!("true"), Some(Denied::EmailNotVerified)),
            (json!("a@ours.example"), json!(false), Some(Denied::EmailNotVerified)),
            (json!("a@ours.example"), json!(null), Some(Denied::EmailNotVerified)),
            (json!("a@evil@ours.example"), json!(true), Some(Denied::NoEmail)),
            (json!("a@x@ours.example"), json!(true), Some(Denied::NoEmail)),
            (json!("@ours.example"), json!(true), Some(Denied::NoEmail)),
            (json!("ours.example"), json!(true), Some(Denied::NoEmail)),
            (json!(["a@ours.example"]), json!(true), Some(Denied::NoEmail)),
            (json!("a@ours.example.evil"), json!(true), Some(Denied::EmailDomain)),
            (json!("a@sub.ours.example"), json!(true), Some(Denied::EmailDomain)),
            (json!("a@evilours.example"), json!(true), Some(Denied::EmailDomain)),
            (json!("a@ours.example "), json!(true), Some(Denied::EmailDomain)),
        ] {
            let claims = json!({ "email": email, "email_verified": verified });
            assert_eq!(denied(&rules, claims.clone()), expected, "{claims}");
        }
    }

    #[test]
    fn groups_that_are_left_out_are_not_no_groups() {
        let rules = rules(&[], &["staff", "admin"]);
        for (claims, expected) in [
            (json!({ "groups": ["x", "staff"] }), None),
            (json!({ "groups": "admin" }), None),
            (json!({ "groups": ["x"] }), Some(Denied::NotInGroup)),
            (json!({ "groups": [] }), Some(Denied::NotInGroup)),
            (json!({ "groups": ["staff2"] }), Some(Denied::NotInGroup)),
            (json!({}), Some(Denied::NotInGroup)),
            (json!({ "groups": { "staff": true } }), Some(Denied::NotInGroup)),
            (json!({ "_claim_names": { "groups": "src1" } }), Some(Denied::GroupsUnknown)),
            (json!({ "hasgroups": true }), Some(Denied::GroupsUnknown)),
            (json!({ "hasgroups": false }), Some(Denied::NotInGroup)),
            (json!({ "_claim_names": { "other": "src1" } }), Some(Denied::NotInGroup)),
        ] {
            assert_eq!(denied(&rules, claims.clone()), expected, "{claims}");
        }
    }

    #[test]
    fn the_rules_use_no_other_claims() {
        let rules = rules(&[], &[]);
        for name in ["email", "email_verified", "groups", "name", "_claim_names", "hasgroups"] {
            assert!(rules.concern(name), "{name}");
        }
        assert!(!rules.concern("sub") && !rules.concern("secret"));
    }

    #[test]
    fn a_rule_without_its_claim_does_not_count_for_a_family() {
        let both = rules(&["ours.example"], &["staff"]);
        for (claims, expected) in [
            (json!({}), None),
            (json!({ "email": "a@other.example" }), None),
            (json!({ "email": "a@other.example", "email_verified": true }), Some(Denied::EmailDomain)),
            (json!({ "groups": [] }), Some(Denied::NotInGroup)),
            (json!({ "groups": ["staff"], "name": "n" }), None),
        ] {
            let admitted = both.admit_by_some(claims.as_object().expect("an object"));
            assert_eq!(admitted.err(), expected, "{claims}");
        }
    }

    #[test]
    fn only_the_listed_claims_are_copied() {
        let claims = json!({ "email": "a@b", "name": null, "secret": 1, "sub": "alice" });
        let copied = rules(&[], &[]).admit(claims.as_object().expect("an object"));
        assert_eq!(Value::from(copied.expect("admitted")), json!({ "email": "a@b" }));
    }

    #[test]
    fn the_claims_of_a_login_have_a_maximum_size() {
        let rules = SignInRules { claims: vec!["groups".into()], ..SignInRules::default() };
        // `{"groups":""}` has 13 bytes.
        for (length, expected) in [(MAX_CLAIMS - 13, None), (MAX_CLAIMS - 12, Some(Denied::ClaimsTooLarge))] {
            assert_eq!(denied(&rules, json!({ "groups": "x".repeat(length), "other": "y" })), expected, "{length}");
        }
    }

    #[test]
    fn only_missing_claims_of_a_rule_prevent_a_decision() {
        for (rules, claims, expected) in [
            (rules(&[], &[]), json!({}), false),
            (rules(&["x"], &[]), json!({ "email": 1 }), true),
            (rules(&["x"], &[]), json!({ "email": 1, "email_verified": true }), false),
            (rules(&[], &["x"]), json!({}), true),
            (rules(&[], &["x"]), json!({ "groups": [] }), false),
        ] {
            assert_eq!(rules.cannot_decide_by(claims.as_object().expect("an object")), expected, "{claims}");
        }
    }

    #[test]
    fn userinfo_is_needed_only_for_what_is_missing() {
        for (rules, claims, expected) in [
            (rules(&[], &[]), json!({ "email": 1, "name": 2 }), false),
            (rules(&[], &[]), json!({ "email": 1 }), true),
            (rules(&["x"], &[]), json!({ "email": 1, "name": 2 }), true),
            (rules(&["x"], &[]), json!({ "email": 1, "name": 2, "email_verified": true }), false),
            (rules(&[], &["x"]), json!({ "email": 1, "name": 2 }), true),
            (rules(&[], &["x"]), json!({ "email": 1, "name": 2, "groups": [] }), false),
        ] {
            assert_eq!(rules.lack(claims.as_object().expect("an object")), expected, "{claims}");
        }
    }
}
