//! `[identity]`: the headers that tell the upstream who is asking.

use http::HeaderName;

use crate::auth::identity::Identity;
use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::placed::Placed;
use crate::config::sections::rules;
use crate::tokens::jwt::pointer::Pointer;

/// Headers with a meaning of their own, which an identity must not overwrite: those of one connection (RFC 9110 section
/// 7.6.1), of the message's framing and content, the credentials, and what else the gateway tells the upstream.
const RESERVED: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "expect",
    "authorization",
    "cookie",
    "forwarded",
    "via",
    "x-real-ip",
    "x-request-id",
    "x-auth-observed",
];

const DEFAULTS: [(&str, HeaderName); 4] = [
    ("subject", HeaderName::from_static("x-auth-subject")),
    ("scope", HeaderName::from_static("x-auth-scope")),
    ("token_id", HeaderName::from_static("x-auth-token-id")),
    ("issuer", HeaderName::from_static("x-auth-issuer")),
];

pub(super) fn read(table: &mut Table<'_>) -> Identity {
    let headers = DEFAULTS.map(|(key, default)| match table.take(key) {
        None => Some(default),
        Some(value) => value.parse(header_or_off).flatten(),
    });
    let claims: Vec<_> = table.tables("claim", claim).into_iter().flatten().collect();
    report_duplicates(table, &headers);
    report_duplicate_claims(table, &headers, &claims);
    let [subject, scope, token_id, issuer] = headers;
    Identity { subject, scope, token_id, issuer, claims: claims.into_iter().map(|claim| claim.value).collect() }
}

/// `[[identity.claim]]`; `None` without both of its keys.
fn claim(table: &mut Table<'_>) -> Option<Placed<(Pointer, HeaderName)>> {
    let pointer = table.required("pointer", "\"/tenant\"").and_then(|value| value.parse(rules::pointer));
    let name = table.required("header", "\"X-Auth-Tenant\"").and_then(|value| value.parse(header));
    Some(Placed { value: (pointer?, name?), place: table.place("header") })
}

/// The empty string switches a header off.
fn header_or_off(text: &str) -> Result<Option<HeaderName>, ConfigError> {
    if text.is_empty() { Ok(None) } else { header(text).map(Some) }
}

pub(super) fn header(text: &str) -> Result<HeaderName, ConfigError> {
    let expected = "expected the name of a header of its own, as \"X-Auth-Subject\"";
    let name: HeaderName = text
        .parse()
        .map_err(|_| ConfigError::new(format!("\"{}\" is not the name of a header", text.escape_debug()), expected))?;
    let normalized = normalized(&name);
    if RESERVED.contains(&normalized.as_str()) || normalized.starts_with("x-forwarded-") {
        return Err(ConfigError::new(format!("{text} has a meaning of its own"), expected));
    }
    Ok(name)
}

/// As many backends see it: CGI and its heirs make the same variable of `X-Auth`, `x_auth` and `x.auth`.
pub(super) fn normalized(name: &HeaderName) -> String {
    name.as_str().replace(|character: char| !character.is_ascii_alphanumeric(), "-")
}

pub(super) const SAME_HEADER: &str = "names are compared without case, and with `_` equal to `-`, as backends do";

fn report_duplicates(table: &Table<'_>, headers: &[Option<HeaderName>; 4]) {
    for (index, header) in headers.iter().enumerate() {
        let Some(header) = header else { continue };
        let same =
            |first: &&Option<HeaderName>| first.as_ref().is_some_and(|first| normalized(first) == normalized(header));
        let Some(first) = headers[..index].iter().position(|first| same(&first)) else { continue };
        let [first, second] = [first, index].map(|index| DEFAULTS[index].0);
        // One of the two was written, or there would be no collision.
        let (at, other) = if table.has(second) { (second, first) } else { (first, second) };
        let error = ConfigError::new(format!("`{at}` and `{other}` have the same header"), "expected another name")
            .help(SAME_HEADER);
        table.reject(
            at,
            match table.has(other) {
                true => error.related(&table.place(other), "the other one is here"),
                false => error,
            },
        );
    }
}

fn report_duplicate_claims(
    table: &Table<'_>,
    headers: &[Option<HeaderName>; 4],
    claims: &[Placed<(Pointer, HeaderName)>],
) {
    for (index, Placed { value: (_, name), place }) in claims.iter().enumerate() {
        let same = |other: &HeaderName| normalized(other) == normalized(name);
        let taken = headers.iter().position(|header| header.as_ref().is_some_and(same));
        let error = if let Some(taken) = taken {
            let key = DEFAULTS[taken].0;
            ConfigError::new(format!("`{key}` has the same header"), "expected another name")
        } else if let Some(first) = claims[..index].iter().find(|first| same(&first.value.1)) {
            ConfigError::new("two claims have the same header", "expected another name")
                .related(&first.place, "the first one is here")
        } else {
            continue;
        };
        table.report().add(error.help(SAME_HEADER).at(place));
    }
}
