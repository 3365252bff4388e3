//! The keys of `[[provider]]` and `[[route]]` that concern sign-ins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::broker::sign_in::SignInProviderSettings;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::{host, oauth_client, rules};
use crate::gateway::sign_in::OWN_PARAMETERS;
use crate::tokens::login::RESERVED_CLAIMS;
use crate::tokens::sign_in::rules::SignInRules;

const SCOPES: [&str; 3] = ["openid", "profile", "email"];
const CLAIMS: [&str; 4] = ["email", "email_verified", "name", "preferred_username"];
const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

/// `route.sign_in`
pub(super) fn of_route(table: &mut Table<'_>, providers: &[Arc<str>], public: bool) -> Option<Arc<str>> {
    let value = table.take("sign_in", Shape::Text)?;
    let text = value.string()?;
    let found = providers.iter().find(|provider| ***provider == *text).cloned();
    if found.is_none() {
        let error = ConfigError::new(format!("there is no provider `{text}`"), "expected the name of a [[provider]]");
        value.reject(match table.report().nearest(text, providers.iter().map(|provider| &**provider)) {
            Some(near) => error.help(format!("did you mean `{near}`?")).missing(),
            None => error.help(format!("add [[provider]] with name = \"{text}\"")).missing(),
        });
    } else if public {
        let error =
            ConfigError::new("`sign_in` has no effect on a public route", "expected `sign_in` or `public`, not both");
        value.reject(error.related(&table.place("public"), "the route is public"));
    }
    found
}

/// The keys of `[[provider]]` that concern sign-ins.
pub(super) fn of_provider(table: &mut Table<'_>) -> SignInProviderSettings {
    let scopes = table.take("scopes", Shape::list(rules::SCOPE));
    table.default("scopes", SCOPES.as_slice());
    let scopes = scopes.and_then(|value| value.list_of("[\"openid\", \"email\"]", rules::scope));
    let scopes = scopes.unwrap_or_else(|| SCOPES.map(str::to_owned).to_vec());
    if !scopes.iter().any(|scope| scope == "openid") {
        let error = ConfigError::new("`openid` is missing", "expected the scope \"openid\" in the list");
        table.reject("scopes", error.help("without it, the provider issues no ID token"));
    }
    SignInProviderSettings {
        scopes: scopes.join(" "),
        parameters: parameters(table),
        rules: sign_in_rules(table),
        max_staleness: table.duration("max_staleness", 15 * MINUTE, Duration::ZERO..=DAY),
        consecutive_timeouts: oauth_client::consecutive_timeouts(table),
    }
}

fn sign_in_rules(table: &mut Table<'_>) -> SignInRules {
    let claim = || Shape::Pattern(".");
    let claims = table.take("claims", Shape::list(claim()));
    table.default("claims", CLAIMS.as_slice());
    let claims = claims.and_then(|value| value.list_of("[\"email\", \"groups\"]", claim_name));
    let groups_claim = table.take("groups_claim", claim()).and_then(|value| value.parse(claim_name));
    table.default("groups_claim", "groups");
    let domains = table.take("email_domains", Shape::list(Shape::Pattern("^[^@]+$")));
    table.default("email_domains", Vec::<String>::new());
    let groups = table.take("groups", Shape::list(Shape::Pattern(".")));
    table.default("groups", Vec::<String>::new());
    SignInRules {
        claims: claims.unwrap_or_else(|| CLAIMS.map(str::to_owned).to_vec()),
        groups_claim: groups_claim.unwrap_or_else(|| "groups".to_owned()),
        email_domains: domains.and_then(|value| value.list_of("[\"example.com\"]", domain)).unwrap_or_default(),
        groups: groups.and_then(|value| value.list_of("[\"staff\"]", group)).unwrap_or_default(),
    }
}

fn claim_name(text: &str) -> Result<String, ConfigError> {
    if text.is_empty() {
        return Err(ConfigError::new("this is empty", "expected the name of a claim"));
    }
    if RESERVED_CLAIMS.contains(&text) {
        Err(ConfigError::new(format!("only the gateway sets the claim {text}"), "expected another claim"))
    } else {
        Ok(text.to_owned())
    }
}

fn domain(text: &str) -> Result<String, ConfigError> {
    let named = host::parse(text)?;
    if text.contains(['@', '*', ':', '/']) {
        Err(ConfigError::new("this is not a domain", "expected the part after the @ of addresses"))
    } else {
        Ok(named)
    }
}

fn group(text: &str) -> Result<String, ConfigError> {
    match text {
        "" => Err(ConfigError::new("this is empty", "expected the name of a group")),
        text => Ok(text.to_owned()),
    }
}

/// `provider.authorization_parameters`
fn parameters(table: &mut Table<'_>) -> BTreeMap<String, String> {
    let example = "[\"prompt=select_account\"]";
    let value = table.take("authorization_parameters", Shape::list(Shape::Pattern("^[^=]+=")));
    table.default("authorization_parameters", Vec::<String>::new());
    let mut parameters = BTreeMap::new();
    for item in value.and_then(|value| value.list(example)).unwrap_or_default() {
        let Some((name, value)) = item.parse(parameter) else { continue };
        if parameters.insert(name, value).is_some() {
            item.reject(ConfigError::new("this parameter is in the list twice", "expected each name once"));
        }
    }
    parameters
}

fn parameter(text: &str) -> Result<(String, String), ConfigError> {
    let expected = "expected NAME=VALUE, for example \"prompt=select_account\"";
    let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        return Err(ConfigError::new("this parameter has no name or no value", expected));
    };
    if name == "max_age" && value.parse::<u32>().is_err() {
        return Err(ConfigError::new("max_age is not a number of seconds", "expected for example \"max_age=3600\""));
    }
    if OWN_PARAMETERS.contains(&name) {
        Err(ConfigError::new(format!("only the gateway sets {name}"), expected))
    } else {
        Ok((name.to_owned(), value.to_owned()))
    }
}
