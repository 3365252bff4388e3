//! `[identity]`: the headers with which the gateway identifies the client to the upstream.

use http::HeaderName;

use crate::auth::identity::{CertificateHeaders, DEFAULT_NAMES, Identity};
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::placed::{Placed, duplicates};
use crate::config::sections::rules;
use crate::tokens::jwt::pointer::Pointer;

/// Headers that identity headers must not overwrite: hop-by-hop headers (RFC 9110 section 7.6.1), headers about framing
/// and content, credentials, and other headers that the gateway sets.
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

/// The names of oauth2-proxy, which many backends expect. The gateway removes them from requests as all others with
/// this prefix.
const FORWARDED: [&str; 4] =
    ["x-forwarded-user", "x-forwarded-email", "x-forwarded-groups", "x-forwarded-preferred-username"];

/// [`DEFAULT_NAMES`], as the reference writes them.
const SHOWN_NAMES: [&str; 4] = ["X-Auth-Subject", "X-Auth-Scope", "X-Auth-Token-Id", "X-Auth-Issuer"];

pub(super) const HEADER: Shape = Shape::Pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$");
/// The empty string turns a header off.
pub(super) const OPTIONAL_HEADER: Shape = Shape::Pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]*$");

/// In the order of [`DEFAULT_NAMES`]. Those about the client's certificate are off by default.
const KEYS: [&str; 10] = [
    "subject",
    "scope",
    "token_id",
    "issuer",
    "certificate_subject",
    "certificate_dns",
    "certificate_uri",
    "certificate_ip",
    "certificate_email",
    "certificate_sha256",
];

pub(super) fn read(table: &mut Table<'_>) -> Identity {
    let headers = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|index| {
        let key = KEYS[index];
        let default = DEFAULT_NAMES.get(index);
        let value = table.take(key, OPTIONAL_HEADER);
        table.default(key, SHOWN_NAMES.get(index).copied().unwrap_or_default());
        value.map_or_else(|| default.cloned(), |value| value.parse(header_or_off).flatten())
    });
    let claims: Vec<_> = table.tables("claim", claim).into_iter().flatten().collect();
    report_duplicates(table, &headers);
    report_duplicate_claims(table, &headers, &claims);
    let [subject, scope, token_id, issuer, of_certificate, dns, uri, ip, email, sha256] = headers;
    let certificate = CertificateHeaders { subject: of_certificate, dns, uri, ip, email, sha256 };
    let claims = claims.into_iter().map(|claim| claim.value).collect();
    Identity { subject, scope, token_id, issuer, claims, certificate }
}

/// `[[identity.claim]]`. `None` if one of its keys is missing or wrong.
fn claim(table: &mut Table<'_>) -> Option<Placed<(Pointer, HeaderName)>> {
    let pointer =
        table.required("pointer", rules::POINTER, "\"/tenant\"").and_then(|value| value.parse(rules::pointer));
    let name = table.required("header", HEADER, "\"X-Auth-Tenant\"").and_then(|value| value.parse(header));
    Some(Placed { value: (pointer?, name?), place: table.place("header") })
}

/// The empty string turns a header off.
fn header_or_off(text: &str) -> Result<Option<HeaderName>, ConfigError> {
    if text.is_empty() { Ok(None) } else { header(text).map(Some) }
}

pub(super) fn header(text: &str) -> Result<HeaderName, ConfigError> {
    let expected = "expected the name of a header, for example \"X-Auth-Subject\"";
    let name: HeaderName = text
        .parse()
        .map_err(|_| ConfigError::new(format!("\"{}\" is not a header name", text.escape_debug()), expected))?;
    let normalized = normalized(&name);
    let is_origin = normalized.starts_with("x-forwarded-") && !FORWARDED.contains(&normalized.as_str());
    if RESERVED.contains(&normalized.as_str()) || is_origin {
        return Err(ConfigError::new(format!("{text} is reserved for another purpose"), expected));
    }
    Ok(name)
}

/// The name as many backends see it: CGI and similar interfaces use one variable for `X-Auth`, `x_auth` and `x.auth`.
pub(super) fn normalized(name: &HeaderName) -> String {
    name.as_str().replace(|character: char| !character.is_ascii_alphanumeric(), "-")
}

pub(super) const SAME_HEADER: &str =
    "choose another name; case is ignored, and `_` and `-` are equal, as in many backends";

fn report_duplicates(table: &Table<'_>, headers: &[Option<HeaderName>]) {
    for (index, header) in headers.iter().enumerate() {
        let Some(header) = header else { continue };
        let same =
            |first: &&Option<HeaderName>| first.as_ref().is_some_and(|first| normalized(first) == normalized(header));
        let Some(first) = headers[..index].iter().position(|first| same(&first)) else { continue };
        let [first, second] = [first, index].map(|index| KEYS[index]);
        // At least one of the two is in the file: the defaults differ.
        let (at, other) = if table.has(second) { (second, first) } else { (first, second) };
        let error = ConfigError::new(format!("`{at}` and `{other}` have the same header"), "expected a different name")
            .help(SAME_HEADER);
        table.reject(at, if table.has(other) { error.related(&table.place(other), "also set here") } else { error });
    }
}

fn report_duplicate_claims(
    table: &Table<'_>,
    headers: &[Option<HeaderName>],
    claims: &[Placed<(Pointer, HeaderName)>],
) {
    let taken_by = |claim: &Placed<(Pointer, HeaderName)>| {
        let name = normalized(&claim.value.1);
        headers.iter().position(|header| header.as_ref().is_some_and(|header| normalized(header) == name))
    };
    let report = |error: ConfigError, claim: &Placed<(Pointer, HeaderName)>| {
        table.report().add(error.help(SAME_HEADER).at(&claim.place));
    };
    for claim in claims {
        if let Some(key) = taken_by(claim).map(|taken| KEYS[taken]) {
            let message = format!("`{key}` has the same header");
            report(ConfigError::new(message, "expected a different name"), claim);
        }
    }
    let several = duplicates(claims, |(_, name)| normalized(name));
    for (first, claim) in several.into_iter().filter(|(_, claim)| taken_by(claim).is_none()) {
        let error = ConfigError::new("two claims have the same header", "expected a different name");
        report(error.related(&first.place, "first used here"), claim);
    }
}
