//! `[[issuer]]`: others whose tokens are accepted, by which keys and on which terms.

use std::sync::Arc;
use std::time::Duration;

use crate::config::check::{Placed, files};
use crate::config::fault::Fault;
use crate::config::read::Table;
use crate::config::value::{Value, choose};
use crate::config::{ForeignIssuer, KeyFile};
use crate::token::{ALGORITHMS, Algorithm, Issuer};

/// More than clocks can honestly differ: beyond, leeway is a longer lifetime by another name.
pub(super) const MOST_LEEWAY: Duration = Duration::from_mins(5);

const DAY: Duration = Duration::from_hours(24);
const ONE_SECOND: Duration = Duration::from_secs(1);

pub(super) fn issuers(root: &mut Table<'_>, own: &str) -> Vec<ForeignIssuer> {
    let own_place = root.place("tokens");
    let issuers: Vec<_> = root.tables("issuer", issuer).into_iter().flatten().collect();
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
    issuers.into_iter().map(|issuer| issuer.value).collect()
}

/// `None` if it has no name or no keys to go by; the rest was checked all the same.
fn issuer(table: &mut Table<'_>) -> Option<Placed<ForeignIssuer>> {
    let name = table.required("issuer", "\"https://login.example\"").and_then(|value| value.parse(name));
    let audience = table.required("audience", "[\"https://api.example\"]").and_then(|value| self::audience(&value));
    let keys = key_file(table);
    let algorithms = algorithms(table, keys.as_ref().map(|(_, keys)| keys));
    let types = table.take("types").and_then(|value| types(&value));
    let policy = Issuer {
        issuer: Arc::from(name.unwrap_or_default()),
        audience: audience.unwrap_or_default(),
        algorithms: algorithms.unwrap_or_default(),
        types: types.unwrap_or_else(|| vec!["at+jwt".to_owned()]),
        leeway: table.duration("leeway", Duration::from_secs(30), Duration::ZERO..=MOST_LEEWAY),
        max_lifetime: table.duration("max_lifetime", DAY, ONE_SECOND..=366 * DAY),
        own: false,
    };
    let (key, keys) = keys?;
    table.accept(key, fits(&keys, &policy));
    let place = table.place("issuer");
    (!policy.issuer.is_empty()).then_some(Placed { value: ForeignIssuer { policy, keys }, place })
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

/// The one key of three that says where the issuer's keys are, and its name.
fn key_file(table: &mut Table<'_>) -> Option<(&'static str, KeyFile)> {
    // All three are asked for, also when the first is there: each is a known key.
    let files = [
        ("jwks_file", table.path("jwks_file").map(KeyFile::Jwks)),
        ("pem_file", table.path("pem_file").map(KeyFile::Pem)),
        ("secret_file", table.path("secret_file").map(KeyFile::Secret)),
    ];
    let mut named = files.into_iter().filter(|(key, _)| table.has(key));
    let Some((key, keys)) = named.next() else {
        let fault = Fault::new("this issuer has no keys", "expected `jwks_file`, `pem_file` or `secret_file`");
        table.wrong("jwks_file", fault.of_absence());
        return None;
    };
    for (other, _) in named {
        let fault = Fault::new("the keys come from two places", "expected one file of keys");
        table.wrong(other, fault.related(&table.place(key), "the first one is here"));
    }
    keys.map(|keys| (key, keys))
}

fn algorithms(table: &mut Table<'_>, keys: Option<&KeyFile>) -> Option<Vec<Algorithm>> {
    let example = "[\"ES256\"]";
    let value = table.required("algorithms", example)?;
    let algorithms = value.list_of(example, algorithm)?;
    if value.list(example)?.is_empty() {
        value.wrong(Fault::new("no algorithm is accepted", format!("expected at least one, as {example}")));
        return None;
    }
    let hmac = algorithms.iter().any(|algorithm| is_hmac(*algorithm));
    let public = algorithms.iter().any(|algorithm| !is_hmac(*algorithm));
    // CVE-2016-10555 and its kin: a public key, which everybody has, taken as the secret of an HMAC.
    let fault = if hmac && public {
        Fault::new("HMAC and public-key algorithms are mixed", "expected HS… alone, or none of them")
            .help("with both, a public key could be used as the secret that signs a token")
    } else if hmac && matches!(keys, Some(KeyFile::Pem(_))) {
        Fault::new("HMAC has no public key", "expected algorithms of public keys with `pem_file`")
    } else if public && matches!(keys, Some(KeyFile::Secret(_))) {
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

fn is_hmac(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
}

fn key_file_form(keys: &KeyFile) -> &'static str {
    match keys {
        KeyFile::Jwks(_) => "expected a JWKS: { \"keys\": [ … ] }",
        KeyFile::Pem(_) => "expected PEM with BEGIN PUBLIC KEY or BEGIN CERTIFICATE",
        KeyFile::Secret(_) => "expected a file with the HMAC secret",
    }
}

fn fits(keys: &KeyFile, policy: &Issuer) -> Result<(), Fault> {
    let content = files::contents(keys.path())?;
    // Without algorithms, whose fault is reported already, no key can be judged.
    if policy.algorithms.is_empty() {
        return Ok(());
    }
    let named = |fault| format!("{}: {fault}", keys.path().display());
    keys.admit(&content, policy).map(drop).map_err(|fault| Fault::new(named(fault), key_file_form(keys)))
}
