//! What a client suggests for the page at which a user signs in: `login_hint` and `ui_locales` (OpenID Connect Core
//! section 3.1.2.1). The provider decides what it makes of them, and nothing depends on it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum length of each, in bytes. A longer one is left out.
const MAX_LEN: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInHints {
    /// Who the user probably is.
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    login_hint: Option<String>,
    /// Languages, the best one first.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    ui_locales: Option<String>,
}

impl SignInHints {
    /// Of an authorization request, or of the link to a sign-in, which has the same parameters.
    pub fn of(parameters: &BTreeMap<String, String>) -> Self {
        let is_short = |value: &&String| !value.is_empty() && value.len() <= MAX_LEN;
        let get = |name: &str| parameters.get(name).filter(is_short).cloned();
        SignInHints { login_hint: get("login_hint"), ui_locales: get("ui_locales") }
    }

    pub fn is_empty(&self) -> bool {
        self.parameters().next().is_none()
    }

    /// As the provider gets them.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let named = [("login_hint", &self.login_hint), ("ui_locales", &self.ui_locales)];
        named.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_short_or_left_out() {
        let hints = |login_hint: &str| {
            let parameters = [("login_hint", login_hint), ("ui_locales", "de en"), ("acr_values", "high")];
            SignInHints::of(&parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
        };
        let sent = |hints: &SignInHints| hints.parameters().map(|(name, value)| format!("{name}={value}")).collect();
        let both: Vec<String> = sent(&hints("alice"));
        assert_eq!(both, ["login_hint=alice", "ui_locales=de en"]);
        let long: Vec<String> = sent(&hints(&"a".repeat(MAX_LEN + 1)));
        assert_eq!(long, ["ui_locales=de en"]);
        assert!(SignInHints::default().is_empty());
    }
}
