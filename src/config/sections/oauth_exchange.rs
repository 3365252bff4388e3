//! `[[oauth.exchange]]`: tokens of other issuers that become tokens of the gateway (RFC 8693).

use std::collections::HashMap;
use std::sync::Arc;

use crate::auth::keyring::KeySource;
use crate::auth::provider::Provider;
use crate::auth::registered_clients::RegisteredClient;
use crate::config::document::error::{ConfigError, Place};
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::{Value, choose};
use crate::config::sections::placed::Placed;
use crate::config::sections::{issuer, rules};
use crate::config::settings::ForeignIssuer;
use crate::gateway::exchange_rule::{ExchangeClients, ExchangeRule, SubjectTokenType};
use crate::tokens::jwt::Audience;
use crate::tokens::login::{CLIENT_SUBJECT_PREFIX, RESERVED_CLAIMS};

/// What a rule may name.
pub(super) struct Known<'k> {
    pub(super) issuers: &'k [ForeignIssuer],
    /// Also of issuers with errors.
    pub(super) names: &'k [String],
    pub(super) clients: &'k [RegisteredClient],
    pub(super) providers: &'k [Placed<Arc<Provider>>],
}

pub(super) fn exchanges(table: &mut Table<'_>, known: &Known<'_>) -> Vec<ExchangeRule> {
    let rules: Vec<_> = table.tables("exchange", |table| exchange(table, known)).into_iter().flatten().collect();
    report_prefixes(table, &rules, known.providers);
    rules.into_iter().map(|rule| rule.value).collect()
}

/// The beginning of the subjects of one issuer.
struct Prefix<'p> {
    issuer: &'p str,
    text: &'p str,
    place: &'p Place,
    /// Its place among all.
    number: usize,
    is_of_rule: bool,
}

/// Reports prefixes of two issuers with which two users could have one subject: a user of one could then use what
/// belongs to a user of the other.
fn report_prefixes(table: &Table<'_>, rules: &[Placed<ExchangeRule>], providers: &[Placed<Arc<Provider>>]) {
    let of_providers = providers.iter().map(|Placed { value, place }| (&*value.issuer, &value.subject_prefix, place));
    let of_rules = rules.iter().map(|Placed { value, place }| (value.issuer.as_str(), &value.subject_prefix, place));
    let all = of_providers.chain(of_rules).enumerate();
    let all: Vec<_> = all
        .map(|(number, (issuer, text, place))| Prefix {
            issuer,
            text,
            place,
            number,
            is_of_rule: number >= providers.len(),
        })
        .collect();
    let mut by_text: HashMap<&str, Vec<&Prefix<'_>>> = HashMap::new();
    for prefix in &all {
        by_text.entry(prefix.text).or_default().push(prefix);
    }
    for longer in &all {
        let starts = (0..=longer.text.len()).filter_map(|end| longer.text.get(..end));
        let shorter = starts.filter_map(|start| by_text.get(start)).flatten();
        let is_other = |shorter: &&&Prefix<'_>| {
            shorter.issuer != longer.issuer
                // Two providers are compared where they are read.
                && (shorter.is_of_rule || longer.is_of_rule)
                // Of two equal ones, the later is reported.
                && (shorter.text != longer.text || shorter.number < longer.number)
        };
        if let Some(shorter) = shorter.into_iter().find(is_other) {
            report_prefix(table, longer, shorter);
        }
    }
}

/// Equal prefixes are an error. If one only begins with the other, the issuer of the shorter one must have no user with
/// such a name: the operator may know that.
fn report_prefix(table: &Table<'_>, longer: &Prefix<'_>, shorter: &Prefix<'_>) {
    let at = if longer.is_of_rule { longer } else { shorter };
    let other = if longer.is_of_rule { shorter } else { longer };
    if longer.text == shorter.text {
        let message = "two issuers have the same `subject_prefix`: two users could have the same subject";
        let error = ConfigError::new(message, "expected a different `subject_prefix` for each issuer");
        return table.report().add(error.related(other.place, "used here for another issuer").at(at.place));
    }
    let message = format!(
        "a user of {} with a name that begins with \"{}\" could have the subject of a user of {}",
        shorter.issuer,
        longer.text.strip_prefix(shorter.text).unwrap_or_default().escape_debug(),
        longer.issuer,
    );
    let warning = ConfigError::new(message, "one `subject_prefix` begins with another");
    let warning = warning.help("give each issuer a `subject_prefix` with which no other begins");
    table.report().warn(warning.related(other.place, "used here for another issuer").at(at.place));
}

/// `None` without an issuer or clients. All other keys are checked anyway.
fn exchange(table: &mut Table<'_>, known: &Known<'_>) -> Option<Placed<ExchangeRule>> {
    let issuer = table.required("issuer", Shape::Text, "\"https://login.example\"");
    let issuer = issuer.and_then(|value| value.parse(|text| issuer_among(text, known)));
    let shape = Shape::Any(vec![Shape::Choice(vec!["any".to_owned()]), Shape::some(Shape::Text)]);
    let clients = table.required("clients", shape, "[\"app\"]").and_then(|value| clients(&value, known.clients));
    let types = table.take("token_types", Shape::some(Shape::choice(SubjectTokenType::NAMES)));
    table.default("token_types", ["access_token"].as_slice());
    let token_types = match types {
        Some(types) => types.list_of("[\"access_token\"]", |text| choose(text, SubjectTokenType::NAMES)),
        None => Some(vec![SubjectTokenType::AccessToken]),
    };
    let token_types = token_types.unwrap_or_default();
    let audience = table.take("audience", issuer::texts()).and_then(|value| issuer::audience(&value));
    let prefix = table.required("subject_prefix", Shape::Text, "\"login|\"").and_then(|value| value.parse(prefix));
    let scopes = table.take("scopes", Shape::list(rules::SCOPE));
    table.default("scopes", Vec::<String>::new());
    let scopes = scopes.and_then(|value| value.list_of("[\"orders:read\"]", rules::scope));
    let copied = table.take("claims", Shape::list(Shape::Pattern(".")));
    table.default("claims", Vec::<String>::new());
    let copied = copied.and_then(|value| value.list_of("[\"email\"]", copied_claim));
    let claims = table.tables("claim", rules::claim).into_iter().flatten().collect();
    let [limit_to_subject, refresh_token, single_use] =
        [("limit_to_subject", true), ("refresh_token", false), ("single_use", false)]
            .map(|(key, default)| table.boolean(key, default));
    let accepted = accepted_audience(table, issuer.as_deref(), audience.clone(), known, &token_types);
    let rule = ExchangeRule {
        issuer: issuer?,
        clients: clients?,
        audience: accepted,
        id_token_audience: audience,
        token_types,
        claims,
        subject_prefix: prefix?,
        scopes: scopes.unwrap_or_default(),
        limit_to_subject,
        refresh_token,
        single_use,
        copied_claims: copied.unwrap_or_default(),
    };
    check_id_tokens(table, &rule);
    Some(Placed { value: rule, place: table.place("subject_prefix") })
}

/// Not the gateway itself: its own sessions end by other means.
fn issuer_among(text: &str, known: &Known<'_>) -> Result<String, ConfigError> {
    let asked = |issuer: &&ForeignIssuer| *issuer.policy.issuer == *text && issuer.keys == KeySource::None;
    if known.issuers.iter().any(|issuer| asked(&issuer)) {
        // The gateway verifies subject tokens with keys: every exchange would fail.
        let error = ConfigError::new(
            format!("the [[issuer]] \"{text}\" has no source of keys"),
            "expected an issuer with a source of keys",
        );
        return Err(error.help("add `discover = true` or `jwks_url`, and `algorithms`, to the [[issuer]]"));
    }
    if known.names.iter().skip(1).any(|name| name == text) {
        Ok(text.to_owned())
    } else {
        Err(ConfigError::new(format!("there is no [[issuer]] \"{text}\""), "expected the `issuer` of one")
            .help("add an [[issuer]] with this name; tokens of the gateway itself cannot be exchanged")
            .missing())
    }
}

fn clients(value: &Value<'_>, known: &[RegisteredClient]) -> Option<ExchangeClients> {
    if value.is_string() {
        let any = value.choice(&[("any", ())]);
        return any.map(|()| ExchangeClients::Any);
    }
    let example = "[\"app\"]";
    let listed = value.list_of(example, |text| {
        if known.iter().any(|client| client.client_id == text) {
            Ok(text.to_owned())
        } else {
            Err(ConfigError::new(format!("there is no client \"{text}\""), "expected the client_id of a client")
                .help("add an [[oauth.client]] with this client_id, or write clients = \"any\"")
                .missing())
        }
    })?;
    if listed.is_empty() && value.list(example)?.is_empty() {
        value.reject(ConfigError::new("the list is empty", format!("expected a client, for example {example}")));
    }
    Some(ExchangeClients::Listed(listed))
}

fn prefix(text: &str) -> Result<String, ConfigError> {
    if text.starts_with(CLIENT_SUBJECT_PREFIX) {
        return Err(ConfigError::new("this is the beginning of the subjects of clients", "expected another prefix"));
    }
    if text.len() <= 64 && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(ConfigError::new("this is not the beginning of a subject", "expected at most 64 characters"))
    }
}

fn copied_claim(text: &str) -> Result<String, ConfigError> {
    if RESERVED_CLAIMS.contains(&text) {
        Err(ConfigError::new(format!("only the gateway sets the claim {text}"), "expected another claim"))
    } else {
        Ok(text.to_owned())
    }
}

/// Of access tokens: that of the rule, or else that of the issuer.
fn accepted_audience(
    table: &Table<'_>,
    issuer: Option<&str>,
    audience: Option<Vec<String>>,
    known: &Known<'_>,
    types: &[SubjectTokenType],
) -> Vec<String> {
    if let Some(audience) = audience {
        return audience;
    }
    let Some(name) = issuer else { return Vec::new() };
    match known.issuers.iter().find(|issuer| *issuer.policy.issuer == *name).map(|issuer| &issuer.policy.audience) {
        Some(Audience::OneOf(audience)) => audience.clone(),
        Some(Audience::Any) if types.iter().any(|kind| *kind != SubjectTokenType::IdToken) => {
            // A token for any other service of the issuer would become one of the gateway.
            let error =
                ConfigError::new("`audience` is missing", "expected `audience`, because the issuer has \"any\"");
            table.reject("audience", error.missing());
            Vec::new()
        }
        Some(Audience::Any) | None => Vec::new(),
    }
}

/// An ID token is bound to one client, which must prove that it is the one.
fn check_id_tokens(table: &Table<'_>, rule: &ExchangeRule) {
    if !rule.token_types.contains(&SubjectTokenType::IdToken) {
        return;
    }
    let several = match &rule.clients {
        ExchangeClients::Any => true,
        ExchangeClients::Listed(listed) => listed.len() > 1 && rule.id_token_audience.is_some(),
    };
    if several {
        let error = ConfigError::new("ID tokens are for one client", "expected the one client that may present them");
        table.reject("clients", error.help("write a rule for each client: `audience` is its name at the issuer"));
    }
    if rule.limit_to_subject && !rule.scopes.is_empty() {
        let error = ConfigError::new("an ID token has no scopes", "expected limit_to_subject = false, or no `scopes`");
        table.reject("scopes", error);
    }
}
