//! `route.proof`: whether tokens need a proof of their key.

use crate::auth::bearer::TokenLocations;
use crate::auth::proofs::ProofRule;
use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;

/// `route.proof`. A warning for "off": a stolen token is as good as its client then.
pub(super) fn of_route(table: &mut Table<'_>, is_public: bool, places: &TokenLocations) -> ProofRule {
    let is_set = table.has("proof");
    let rules = [("off", ProofRule::Off), ("if_bound", ProofRule::IfBound), ("required", ProofRule::Required)];
    let rule = table.choice("proof", ProofRule::IfBound, &rules);
    if is_set && is_public {
        let error =
            ConfigError::new("`proof` has no effect on a public route", "expected `proof` or `public`, not both");
        table.reject("proof", error.related(&table.place("public"), "the route is public"));
    } else if rule == ProofRule::Off {
        let warning = ConfigError::new("tokens that are bound to a key need no proof here", "a stolen one works, too");
        let help = "write `proof = \"if_bound\"`, unless clients of this route cannot send proofs yet";
        table.report().warn(warning.help(help).at(&table.place("proof")));
    }
    let never_bound = [("sign_in", places.sign_in), ("api_keys", places.api_keys), ("token_from", places.login_cookie)];
    if let Some((key, _)) = never_bound.into_iter().find(|(_, is_used)| *is_used && rule == ProofRule::Required) {
        let error =
            ConfigError::new("what the route accepts here is never bound to a key", "expected `proof = \"if_bound\"`");
        table.reject("proof", error.related(&table.place(key), "sessions in cookies and API keys have no key"));
    }
    rule
}
