//! `[[issuer]]`: other issuers and the rules for their tokens. `keys.rs` reads the keys about key sets.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::keyring::{KeyFile, KeySource};
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::{Value, choose};
use crate::config::sections::placed::{Placed, duplicates};
use crate::config::sections::{introspection, keys};
use crate::config::settings::ForeignIssuer;
use crate::tokens::jwt::is_hmac;
use crate::tokens::jwt::{ALGORITHMS, Algorithm, Audience, Confirmation, Issuer};

/// Clocks do not differ by more. A larger value would only make tokens live longer.
pub(super) const MAX_CLOCK_SKEW: Duration = Duration::from_mins(5);

/// An `iss`: see [`name`].
const NAME: &str = r"^\S+$";

const DAY: Duration = Duration::from_hours(24);
const ONE_SECOND: Duration = Duration::from_secs(1);

pub(super) struct Issuers {
    pub(super) accepted: Vec<ForeignIssuer>,
    /// Also of issuers with errors, so that routes that name them get no further error.
    pub(super) names: Vec<String>,
}

pub(super) fn issuers(root: &mut Table<'_>, own: &str) -> Issuers {
    let own_place = root.place("tokens");
    let mut names = vec![own.to_owned()];
    let read = root.tables("issuer", |table| {
        let written = table.required("issuer", Shape::Pattern(NAME), "\"https://login.example\"");
        let name = written.and_then(|value| value.parse(name));
        names.extend(name.map(str::to_owned));
        issuer(table, name)
    });
    let issuers: Vec<_> = read.into_iter().flatten().collect();
    for issuer in issuers.iter().filter(|issuer| *issuer.value.policy.issuer == *own) {
        let error = ConfigError::new("this is the issuer of the gateway itself", "expected another issuer")
            .help("remove this [[issuer]]: the gateway always accepts its own tokens; or change tokens.issuer")
            .related(&own_place, "the gateway's own issuer is set here");
        root.report().add(error.at(&issuer.place));
    }
    for (first, later) in duplicates(&issuers, |issuer| &issuer.policy.issuer) {
        let name = &later.value.policy.issuer;
        // That is reported already.
        if **name == *own {
            continue;
        }
        let error = ConfigError::new(format!("two issuers have the name \"{name}\""), "expected a different issuer")
            .help("write one [[issuer]] with all its keys in one file and all its algorithms in one list")
            .related(&first.place, "first used here");
        root.report().add(error.at(&later.place));
    }
    introspection::check_prefixes(root, &issuers);
    Issuers { accepted: issuers.into_iter().map(|issuer| issuer.value).collect(), names }
}

/// `None` without a name or a source of keys. All other keys are checked anyway.
fn issuer(table: &mut Table<'_>, name: Option<&str>) -> Option<Placed<ForeignIssuer>> {
    let shape = Shape::Any(vec![Shape::Choice(vec!["any".to_owned()]), texts()]);
    let audience = table.required("audience", shape, "[\"https://api.example\"]");
    let audience = audience.and_then(|value| audience_or_any(&value));
    let asks = table.has("introspection");
    let keys = keys::source(table, name, asks);
    let algorithms = algorithms(table, keys.as_ref());
    let has_keys = keys.as_ref().is_some_and(|keys| keys.value != KeySource::None);
    let introspection = table.optional_table("introspection", |table| introspection::read(table, name, has_keys));
    let types = table.take("types", texts());
    let types = types.and_then(|value| some_of(&value, "[\"at+jwt\"]", "the `typ` of the tokens"));
    table.default("types", ["at+jwt"].as_slice());
    let policy = Issuer {
        issuer: Arc::from(name.unwrap_or_default()),
        audience: audience.unwrap_or(Audience::OneOf(Vec::new())),
        // Known when the routes are read.
        resources: Vec::new(),
        algorithms: algorithms.unwrap_or_default(),
        types: types.unwrap_or_else(|| vec!["at+jwt".to_owned()]),
        clock_skew: table.duration("clock_skew", Duration::from_secs(30), Duration::ZERO..=MAX_CLOCK_SKEW),
        max_lifetime: table.duration("max_lifetime", DAY, ONE_SECOND..=366 * DAY),
        require_subject: table.boolean("require_subject", true),
        confirmation: table.choice(
            "cnf",
            Confirmation::Check,
            &[("check", Confirmation::Check), ("reject", Confirmation::Reject), ("ignore", Confirmation::Ignore)],
        ),
        own: false,
    };
    let keys = keys?;
    if let KeySource::File(file) = &keys.value
        && let Err(error) = keys::keys_match(file, &policy)
    {
        table.report().add(error.at(&keys.place));
    }
    let place = table.place("issuer");
    // With errors in it, the section is not used at all.
    let introspection = match introspection {
        Some(read) => Some(read?),
        None => None,
    };
    let value = ForeignIssuer { policy, keys: keys.value, introspection };
    (!value.policy.issuer.is_empty()).then_some(Placed { value, place })
}

/// The name is compared with `iss` byte for byte, so it is not normalised, and few names are rejected.
pub(super) fn name(text: &str) -> Result<&str, ConfigError> {
    if !text.is_empty() && !text.chars().any(|character| character.is_whitespace() || character.is_control()) {
        Ok(text)
    } else {
        Err(ConfigError::new("this is empty or contains spaces", "expected the `iss` of its tokens, byte for byte"))
    }
}

/// A list of strings that are not empty. Also for `tokens.audience`.
pub(super) fn texts() -> Shape {
    Shape::some(Shape::Pattern("."))
}

/// Also for `tokens.audience`.
pub(super) fn audience(value: &Value<'_>) -> Option<Vec<String>> {
    some_of(value, "[\"https://api.example\"]", "the `aud` of the tokens")
}

fn audience_or_any(value: &Value<'_>) -> Option<Audience> {
    match value.is_string().then(|| value.string()).flatten() {
        Some("any") => {
            let warning = ConfigError::new(
                "tokens for every other service of this issuer are accepted",
                "a service that gets such a token can use it here",
            );
            value.warn(warning.help("write the `aud` that the issuer gives to tokens for this gateway"));
            Some(Audience::Any)
        }
        _ => audience(value).map(Audience::OneOf),
    }
}

fn some_of(value: &Value<'_>, example: &str, what: &str) -> Option<Vec<String>> {
    let list = value.list_of(example, |text| match text {
        "" => Err(ConfigError::new("this is empty", format!("expected {what}"))),
        text => Ok(text.to_owned()),
    })?;
    if list.is_empty() && value.list(example)?.is_empty() {
        value.reject(ConfigError::new("the list is empty", format!("expected {what}, for example {example}")));
    }
    Some(list)
}

pub(super) fn algorithms_shape() -> Shape {
    Shape::some(Shape::choice(ALGORITHMS))
}

/// Also for `oauth.client.algorithms`.
pub(super) fn algorithms(table: &mut Table<'_>, keys: Option<&Placed<KeySource>>) -> Option<Vec<Algorithm>> {
    let example = "[\"ES256\"]";
    let value = table.take("algorithms", algorithms_shape());
    if matches!(keys, Some(Placed { value: KeySource::None, .. })) {
        return introspection::without_algorithms(table);
    }
    let Some(value) = value else {
        if !table.has("algorithms") {
            let error = ConfigError::new("`algorithms` is missing", format!("expected `algorithms = {example}`"));
            table.reject("algorithms", error.missing());
        }
        return None;
    };
    let algorithms = value.list_of(example, algorithm)?;
    if value.list(example)?.is_empty() {
        value.reject(ConfigError::new(
            "the list is empty",
            format!("expected at least one algorithm, for example {example}"),
        ));
        return None;
    }
    let hmac = algorithms.iter().any(|algorithm| is_hmac(*algorithm));
    let public = algorithms.iter().any(|algorithm| !is_hmac(*algorithm));
    let keys = keys.map(|keys| &keys.value);
    // CVE-2016-10555: an attacker signs a token with HMAC and the public key as the secret.
    let error = if hmac && public {
        ConfigError::new("HMAC and public-key algorithms are mixed", "expected only HS algorithms, or none")
            .help("remove one kind: an attacker could otherwise use a public key as an HMAC secret")
    } else if hmac && matches!(keys, Some(KeySource::File(KeyFile::Pem(_)))) {
        ConfigError::new("HMAC does not use public keys", "expected public-key algorithms with `pem_file`")
    } else if hmac && matches!(keys, Some(KeySource::Remote(_))) {
        ConfigError::new("HMAC secrets cannot be fetched", "expected public-key algorithms")
            .help("for HMAC, write the secret that you share with the issuer to a file, and name it in `secret_file`")
    } else if public && matches!(keys, Some(KeySource::File(KeyFile::Secret(_)))) {
        ConfigError::new("public-key algorithms need a public key", "expected HS256, HS384 or HS512 with `secret_file`")
    } else {
        return Some(algorithms);
    };
    value.reject(error);
    None
}

fn algorithm(text: &str) -> Result<Algorithm, ConfigError> {
    if text.eq_ignore_ascii_case("none") {
        Err(ConfigError::new("`none` accepts unsigned tokens", "expected a signature algorithm")
            .help("remove it: anyone can create unsigned tokens"))
    } else {
        choose(text, ALGORITHMS)
    }
}
