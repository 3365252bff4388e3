//! `[login]`: the headers in which a backend names the user who logged in.

use http::HeaderName;

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::identity::{HEADER, OPTIONAL_HEADER, SAME_HEADER, header, normalized};
use crate::tokens::login::{LoginHeaders, LoginSettings};

const SUBJECT: HeaderName = HeaderName::from_static("x-bearward-subject");
const SCOPE: HeaderName = HeaderName::from_static("x-bearward-scope");
const CLAIMS: HeaderName = HeaderName::from_static("x-bearward-claims");

/// Headers of responses that have another purpose. As login headers they would be lost.
const RESERVED_IN_RESPONSES: &[&str] = &[
    "set-cookie",
    "location",
    "date",
    "server",
    "allow",
    "vary",
    "etag",
    "last-modified",
    "expires",
    "cache-control",
    "retry-after",
    "www-authenticate",
    "access-control-allow-origin",
    "access-control-allow-credentials",
];

pub(super) fn read(table: &mut Table<'_>) -> LoginSettings {
    let subject = table.take("subject", HEADER);
    table.default("subject", "X-Bearward-Subject");
    let subject = subject.and_then(|value| value.parse(response_header)).unwrap_or(SUBJECT);
    let scope = optional(table, "scope", SCOPE, "X-Bearward-Scope");
    let claims = optional(table, "claims", CLAIMS, "X-Bearward-Claims");
    let headers = LoginHeaders { subject, scope, claims };
    report_duplicates(table, &headers);
    let max_response_size = table.size("max_response_size", 64 << 10, 1 << 10..=16 << 20);
    LoginSettings { headers, max_response_size: max_response_size as u64 }
}

/// `shown`: the default, as the reference writes it.
fn optional(table: &mut Table<'_>, key: &'static str, default: HeaderName, shown: &str) -> Option<HeaderName> {
    let value = table.take(key, OPTIONAL_HEADER);
    table.default(key, shown);
    match value {
        None => Some(default),
        Some(value) => {
            value.parse(|text| if text.is_empty() { Ok(None) } else { response_header(text).map(Some) }).flatten()
        }
    }
}

fn response_header(text: &str) -> Result<HeaderName, ConfigError> {
    let name = header(text)?;
    if RESERVED_IN_RESPONSES.contains(&name.as_str()) {
        let expected = "expected the name of a header, for example \"X-Bearward-Subject\"";
        return Err(ConfigError::new(format!("{text} is reserved for another purpose"), expected));
    }
    Ok(name)
}

fn report_duplicates(table: &Table<'_>, headers: &LoginHeaders) {
    let named =
        [("subject", Some(&headers.subject)), ("scope", headers.scope.as_ref()), ("claims", headers.claims.as_ref())];
    for (index, (key, name)) in named.iter().enumerate() {
        let same = |(_, other): &&(&str, Option<&HeaderName>)| {
            name.zip(*other).is_some_and(|(name, other)| normalized(name) == normalized(other))
        };
        let Some((first, _)) = named[..index].iter().find(same) else { continue };
        // At least one of the two is in the file: the defaults differ.
        let at = if table.has(key) { key } else { first };
        table.reject(
            at,
            ConfigError::new(format!("`{first}` and `{key}` have the same header"), "expected a different name")
                .help(SAME_HEADER),
        );
    }
}
