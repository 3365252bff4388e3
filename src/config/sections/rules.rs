//! The rules of a route for tokens: `route.issuers`, `route.scopes`, `route.any_scope`, `[[route.claim]]`.

use serde_json::Value as Json;

use crate::config::document::error::ConfigError;
use crate::config::document::report::Report;
use crate::config::document::shape::Shape;
use crate::config::document::suggest;
use crate::config::document::table::Table;
use crate::config::document::value::Value;
use crate::gateway::rules::{ClaimRule, Condition, Rules};
use crate::tokens::jwt::pointer::Pointer;
use crate::tokens::scope::is_scope_token;

/// A JSON pointer (RFC 6901).
pub(super) const POINTER: Shape = Shape::Pattern("^(/|$)");
/// RFC 6749 section 3.3.
pub(super) const SCOPE: Shape = Shape::Pattern(r"^[!#-\[\]-~]+$");

/// A value to compare claims with.
fn scalar() -> Shape {
    Shape::Any(vec![Shape::Text, Shape::Boolean, Shape::Whole])
}

/// `known_issuers`: all accepted issuers, also the gateway itself.
pub(super) fn rules(table: &mut Table<'_>, known_issuers: &[String]) -> Rules {
    let report = table.report();
    let issuers = table.take("issuers", Shape::list(Shape::Text)).and_then(|value| {
        value.list_of("[\"https://login.example\"]", |text| known_issuer(text, known_issuers, report))
    });
    table.default("issuers", Vec::<String>::new());
    let mut scopes = |key, example| {
        let value = table.take(key, Shape::list(SCOPE));
        table.default(key, Vec::<String>::new());
        value.and_then(|value| value.list_of(example, scope)).unwrap_or_default()
    };
    Rules {
        issuers: issuers.unwrap_or_default(),
        scopes: scopes("scopes", "[\"orders:read\"]"),
        any_scope: scopes("any_scope", "[\"orders:read\", \"orders:write\"]"),
        claims: table.tables("claim", claim).into_iter().flatten().collect(),
    }
}

/// Compared byte for byte, like `iss`. A route with a misspelt issuer would reject all tokens.
fn known_issuer(text: &str, known: &[String], report: &Report<'_>) -> Result<String, ConfigError> {
    if known.iter().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    let quoted = known.iter().map(|name| format!("\"{name}\""));
    let expected = format!("expected one of {}", suggest::list(quoted));
    let error = ConfigError::new(format!("there is no issuer \"{text}\""), expected);
    // The issuer may be in an unreadable part of the file.
    Err(match report.nearest(text, known.iter().map(String::as_str)) {
        Some(near) => error.help(format!("did you mean \"{near}\"?")).missing(),
        None => {
            error.help("add an [[issuer]] with this name, or write tokens.issuer for tokens of the gateway").missing()
        }
    })
}

pub(super) fn scope(text: &str) -> Result<String, ConfigError> {
    if is_scope_token(text) {
        return Ok(text.to_owned());
    }
    let error = ConfigError::new(
        format!("\"{}\" is not a scope", text.escape_debug()),
        "expected one scope, for example \"orders:read\"",
    );
    Err(if text.contains(' ') {
        error.help(format!("write each scope as a separate string: [\"{}\"]", text.replace(' ', "\", \"")))
    } else {
        error
    })
}

/// Also for `oauth.exchange.claim`. `None` without a pointer or a condition. All other keys are checked anyway.
pub(super) fn claim(table: &mut Table<'_>) -> Option<ClaimRule> {
    let pointer = table.required("pointer", POINTER, "\"/realm_access/roles\"").and_then(|value| value.parse(pointer));
    // All are read, even if the first is set: an unread key would be reported as unknown.
    let conditions = [
        ("equals", table.take("equals", scalar()).and_then(|value| value.scalar().map(Condition::Equals))),
        ("one_of", table.take("one_of", Shape::some(scalar())).and_then(|value| one_of(&value).map(Condition::OneOf))),
        ("contains", table.take("contains", scalar()).and_then(|value| value.scalar().map(Condition::Contains))),
        ("present", table.take("present", Shape::Boolean).and_then(|value| present(&value))),
    ];
    let mut set = conditions.into_iter().filter(|(key, _)| table.has(key));
    let Some((first, condition)) = set.next() else {
        let error =
            ConfigError::new("this rule has no condition", "expected `equals`, `one_of`, `contains` or `present`");
        table.reject("equals", error.missing());
        return None;
    };
    for (other, _) in set {
        let error = ConfigError::new("this rule has two conditions", "expected one condition");
        let error = error.related(&table.place(first), "the first condition is here");
        table.reject(other, error.help("write a [[route.claim]] for each condition; a token must satisfy all of them"));
    }
    Some(ClaimRule { pointer: pointer?, condition: condition? })
}

pub(super) fn pointer(text: &str) -> Result<Pointer, ConfigError> {
    Pointer::parse(text).map_err(|error| {
        let expected = "expected a JSON pointer (RFC 6901), for example \"/realm_access/roles\"";
        let error = ConfigError::new(error.to_string(), expected);
        if let Some(rest) = text.strip_prefix("#/") {
            error.help(format!("write \"/{rest}\""))
        } else if text.contains("://") {
            let escaped = text.replace('~', "~0").replace('/', "~1");
            error.help(format!("write a slash in a claim name as ~1: \"/{escaped}\""))
        } else if text.starts_with('/') || text.is_empty() {
            error
        } else {
            error.help(format!("write \"/{}\"", text.replace('.', "/")))
        }
    })
}

fn one_of(value: &Value<'_>) -> Option<Vec<Json>> {
    let items = value.list("[\"a\", \"b\"]")?;
    if items.is_empty() {
        value.reject(ConfigError::new(
            "the list is empty",
            "expected the possible values of the claim, for example [\"a\", \"b\"]",
        ));
    }
    Some(items.iter().filter_map(Value::scalar).collect())
}

fn present(value: &Value<'_>) -> Option<Condition> {
    if !value.boolean()? {
        value.reject(
            ConfigError::new("a rule cannot require that a claim is missing", "expected `present = true`")
                .help("remove this rule; otherwise a token with fewer claims would get more access"),
        );
    }
    Some(Condition::Present)
}
