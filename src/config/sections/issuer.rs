//! `[[issuer]]`: others whose tokens are accepted, and on which terms. Their keys are the subject of `keys.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::keyring::{KeyFile, KeySource};
use crate::config::ForeignIssuer;
use crate::config::document::error::Fault;
use crate::config::document::table::Table;
use crate::config::document::value::{Value, choose};
use crate::config::sections::{Placed, keys};
use crate::tokens::jwt::key_set::is_hmac;
use crate::tokens::jwt::{ALGORITHMS, Algorithm, Audience, Issuer};

/// More than clocks can honestly differ: beyond, clock skew is a longer lifetime by another name.
pub(super) const MAX_CLOCK_SKEW: Duration = Duration::from_mins(5);

const DAY: Duration = Duration::from_hours(24);
const ONE_SECOND: Duration = Duration::from_secs(1);

pub(super) struct Issuers {
    pub(super) accepted: Vec<ForeignIssuer>,
    /// Of those with faults as well: what names them is not wrong.
    pub(super) names: Vec<String>,
}

pub(super) fn issuers(root: &mut Table<'_>, own: &str) -> Issuers {
    let own_place = root.place("tokens");
    let mut names = vec![own.to_owned()];
    let read = root.tables("issuer", |table| {
        let name = table.required("issuer", "\"https://login.example\"").and_then(|value| value.parse(name));
        names.extend(name.map(str::to_owned));
        issuer(table, name)
    });
    let issuers: Vec<_> = read.into_iter().flatten().collect();
    for (index, issuer) in issuers.iter().enumerate() {
        let name = &issuer.value.policy.issuer;
        let first = issuers[..index].iter().find(|first| first.value.policy.issuer == *name);
        let fault = if **name == *own {
            Fault::new("this is the gateway's own issuer", "expected the name of another issuer")
                .help("its tokens are accepted without an [[issuer]]; remove this, or set tokens.issuer")
                .related(&own_place, "the gateway's own tokens are set here")
        } else if let Some(first) = first {
            Fault::new(format!("two issuers are called \"{name}\""), "expected another issuer")
                .help("an issuer owns its keys: put them into one file, and all its algorithms into one list")
                .related(&first.place, "the first one is here")
        } else {
            continue;
        };
        root.reading().record(fault.at(&issuer.place));
    }
    Issuers { accepted: issuers.into_iter().map(|issuer| issuer.value).collect(), names }
}

/// `None` if it has no name or no keys to go by; the rest was checked all the same.
fn issuer(table: &mut Table<'_>, name: Option<&str>) -> Option<Placed<ForeignIssuer>> {
    let audience = table.required("audience", "[\"https://api.example\"]").and_then(|value| audience_or_any(&value));
    let keys = keys::source(table, name);
    let algorithms = algorithms(table, keys.as_ref());
    let types = table.take("types").and_then(|value| types(&value));
    let policy = Issuer {
        issuer: Arc::from(name.unwrap_or_default()),
        audience: audience.unwrap_or(Audience::OneOf(Vec::new())),
        algorithms: algorithms.unwrap_or_default(),
        types: types.unwrap_or_else(|| vec!["at+jwt".to_owned()]),
        clock_skew: table.duration("clock_skew", Duration::from_secs(30), Duration::ZERO..=MAX_CLOCK_SKEW),
        max_lifetime: table.duration("max_lifetime", DAY, ONE_SECOND..=366 * DAY),
        require_subject: table.flag("require_subject", true),
        own: false,
    };
    let keys = keys?;
    if let KeySource::File(file) = &keys.value
        && let Err(fault) = keys::fit(file, &policy)
    {
        table.reading().record(fault.at(&keys.place));
    }
    let place = table.place("issuer");
    (!policy.issuer.is_empty()).then_some(Placed { value: ForeignIssuer { policy, keys: keys.value }, place })
}

/// Compared with `iss` byte for byte, so nothing is normalised and little is refused.
fn name(text: &str) -> Result<&str, Fault> {
    match !text.is_empty() && !text.chars().any(|character| character.is_whitespace() || character.is_control()) {
        true => Ok(text),
        false => Err(Fault::new("no token can name this issuer", "expected the `iss` of its tokens, byte for byte")),
    }
}

/// Of `tokens` and of `issuer` alike: a token is for somebody, or it is for everybody.
pub(super) fn audience(value: &Value<'_>) -> Option<Vec<String>> {
    some_of(value, "[\"https://api.example\"]", "the `aud` of the tokens")
}

fn audience_or_any(value: &Value<'_>) -> Option<Audience> {
    match value.is_text().then(|| value.text()).flatten() {
        Some("any") => Some(Audience::Any),
        _ => audience(value).map(Audience::OneOf),
    }
}

fn types(value: &Value<'_>) -> Option<Vec<String>> {
    some_of(value, "[\"at+jwt\"]", "the `typ` of the tokens")
}

fn some_of(value: &Value<'_>, example: &str, what: &str) -> Option<Vec<String>> {
    let list = value.list_of(example, |text| match text {
        "" => Err(Fault::new("this is empty", format!("expected {what}"))),
        text => Ok(text.to_owned()),
    })?;
    if list.is_empty() && value.list(example)?.is_empty() {
        value.wrong(Fault::new("the list is empty", format!("expected {what}, as {example}")));
    }
    Some(list)
}

fn algorithms(table: &mut Table<'_>, keys: Option<&Placed<KeySource>>) -> Option<Vec<Algorithm>> {
    let example = "[\"ES256\"]";
    let value = table.required("algorithms", example)?;
    let algorithms = value.list_of(example, algorithm)?;
    if value.list(example)?.is_empty() {
        value.wrong(Fault::new("no algorithm is accepted", format!("expected at least one, as {example}")));
        return None;
    }
    let hmac = algorithms.iter().any(|algorithm| is_hmac(*algorithm));
    let public = algorithms.iter().any(|algorithm| !is_hmac(*algorithm));
    let keys = keys.map(|keys| &keys.value);
    // CVE-2016-10555 and its kin: a public key, which everybody has, taken as the secret of an HMAC.
    let fault = if hmac && public {
        Fault::new("HMAC and public-key algorithms are mixed", "expected HS… alone, or none of them")
            .help("with both, a public key could be used as the secret that signs a token")
    } else if hmac && matches!(keys, Some(KeySource::File(KeyFile::Pem(_)))) {
        Fault::new("HMAC has no public key", "expected algorithms of public keys with `pem_file`")
    } else if hmac && matches!(keys, Some(KeySource::Remote(_))) {
        Fault::new("a secret that can be fetched is none", "expected algorithms of public keys")
            .help("for HMAC, share a secret with the issuer and name it with `secret_file`")
    } else if public && matches!(keys, Some(KeySource::File(KeyFile::Secret(_)))) {
        Fault::new("a secret serves HMAC alone", "expected HS256, HS384 or HS512 with `secret_file`")
    } else {
        return Some(algorithms);
    };
    value.wrong(fault);
    None
}

fn algorithm(text: &str) -> Result<Algorithm, Fault> {
    match text.eq_ignore_ascii_case("none") {
        true => Err(Fault::new("`none` means unsigned tokens", "expected an algorithm that signs")
            .help("anybody could make such a token")),
        false => choose(text, ALGORITHMS),
    }
}
