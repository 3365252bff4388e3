//! What a route asks of a token: `route.issuers`, `route.scopes`, `route.any_scope`, `[[route.claim]]`.

use serde_json::Value as Json;

use crate::config::document::error::Fault;
use crate::config::document::suggest;
use crate::config::document::table::Table;
use crate::config::document::value::Value;
use crate::gateway::rules::{ClaimRule, Condition, Rules};
use crate::tokens::jwt::pointer::Pointer;

/// `issuers` are all whose tokens are accepted, the gateway's own among them.
pub(super) fn rules(table: &mut Table<'_>, known_issuers: &[String]) -> Rules {
    let issuers = table
        .take("issuers")
        .and_then(|value| value.list_of("[\"https://login.example\"]", |text| known_issuer(text, known_issuers)));
    let mut scopes = |key, example| table.take(key).and_then(|value| value.list_of(example, scope)).unwrap_or_default();
    Rules {
        issuers: issuers.unwrap_or_default(),
        scopes: scopes("scopes", "[\"orders:read\"]"),
        any_scope: scopes("any_scope", "[\"orders:read\", \"orders:write\"]"),
        claims: table.tables("claim", claim).into_iter().flatten().collect(),
    }
}

/// Byte for byte, as everywhere: a route for an issuer that is spelled otherwise would refuse everybody.
fn known_issuer(text: &str, known: &[String]) -> Result<String, Fault> {
    if known.iter().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    let fault = Fault::new(
        format!("there is no issuer \"{text}\""),
        format!("expected one of {}", known.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")),
    );
    // It may stand in a part of the file that is torn.
    Err(match suggest::nearest(text, known.iter().map(String::as_str)) {
        Some(near) => fault.help(format!("did you mean \"{near}\"?")).of_absence(),
        None => fault.help("add [[issuer]] with this name, or name the gateway's own, tokens.issuer").of_absence(),
    })
}

/// `scope-token` of RFC 6749, appendix A.4.
pub(super) fn scope(text: &str) -> Result<String, Fault> {
    let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if !text.is_empty() && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    let fault =
        Fault::new(format!("\"{}\" is not a scope", text.escape_debug()), "expected one scope, as \"orders:read\"");
    Err(match text.contains(' ') {
        true => fault.help(format!("write each as a string of its own: [\"{}\"]", text.replace(' ', "\", \""))),
        false => fault,
    })
}

/// `None` without a pointer or a condition; the rest was checked all the same.
fn claim(table: &mut Table<'_>) -> Option<ClaimRule> {
    let pointer = table.required("pointer", "\"/realm_access/roles\"").and_then(|value| value.parse(pointer));
    // All four are asked for, also when the first is there: each is a known key.
    let conditions = [
        ("equals", table.take("equals").and_then(|value| value.scalar().map(Condition::Equals))),
        ("one_of", table.take("one_of").and_then(|value| one_of(&value).map(Condition::OneOf))),
        ("contains", table.take("contains").and_then(|value| value.scalar().map(Condition::Contains))),
        ("present", table.take("present").and_then(|value| present(&value))),
    ];
    let mut said = conditions.into_iter().filter(|(key, _)| table.has(key));
    let Some((first, condition)) = said.next() else {
        let fault = Fault::new("this rule asks for nothing", "expected `equals`, `one_of`, `contains` or `present`");
        table.wrong("equals", fault.of_absence());
        return None;
    };
    for (other, _) in said {
        let fault = Fault::new("one rule asks for two things", "expected one condition");
        let fault = fault.related(&table.place(first), "the first one is here");
        table.wrong(other, fault.help("write a [[route.claim]] for each: a token has to keep all of them"));
    }
    Some(ClaimRule { pointer: pointer?, condition: condition? })
}

pub(super) fn pointer(text: &str) -> Result<Pointer, Fault> {
    Pointer::parse(text).map_err(|fault| {
        let expected = "expected a JSON pointer (RFC 6901), as \"/realm_access/roles\"";
        let fault = Fault::new(fault.to_string(), expected);
        if let Some(rest) = text.strip_prefix("#/") {
            fault.help(format!("write \"/{rest}\""))
        } else if text.contains("://") {
            let escaped = text.replace('~', "~0").replace('/', "~1");
            fault.help(format!("a slash inside a claim's name is written ~1: \"/{escaped}\""))
        } else if text.starts_with('/') || text.is_empty() {
            fault
        } else {
            fault.help(format!("write \"/{}\"", text.replace('.', "/")))
        }
    })
}

fn one_of(value: &Value<'_>) -> Option<Vec<Json>> {
    let items = value.list("[\"a\", \"b\"]")?;
    if items.is_empty() {
        value.wrong(Fault::new("the list is empty", "expected what the claim may be, as [\"a\", \"b\"]"));
    }
    Some(items.iter().filter_map(Value::scalar).collect())
}

fn present(value: &Value<'_>) -> Option<Condition> {
    if !value.flag()? {
        value.wrong(
            Fault::new("a rule cannot ask for the absence of a claim", "expected `present = true`")
                .help("whoever leaves out a claim would get more than those who have it"),
        );
    }
    Some(Condition::Present)
}
