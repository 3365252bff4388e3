//! `[login]`: the headers in which a backend says who has logged in.

use http::HeaderName;

use crate::config::document::error::Fault;
use crate::config::document::table::Table;
use crate::config::sections::identity::{SAME, folded, header};
use crate::tokens::login::{LoginHeaders, Settings};

const SUBJECT: HeaderName = HeaderName::from_static("x-bearward-subject");
const SCOPE: HeaderName = HeaderName::from_static("x-bearward-scope");
const CLAIMS: HeaderName = HeaderName::from_static("x-bearward-claims");

/// Answers have these for other ends, and they would be lost.
const TAKEN_IN_ANSWERS: &[&str] = &[
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

pub(super) fn read(table: &mut Table<'_>) -> Settings {
    let subject = table.take("subject").and_then(|value| value.parse(answer_header)).unwrap_or(SUBJECT);
    let scope = optional(table, "scope", SCOPE);
    let claims = optional(table, "claims", CLAIMS);
    let headers = LoginHeaders { subject, scope, claims };
    report_collisions(table, &headers);
    let max_response_size = table.size("max_response_size", 64 << 10, 1 << 10..=16 << 20);
    Settings { headers, max_response_size: max_response_size as u64 }
}

fn optional(table: &mut Table<'_>, key: &'static str, default: HeaderName) -> Option<HeaderName> {
    match table.take(key) {
        None => Some(default),
        Some(value) => {
            value.parse(|text| if text.is_empty() { Ok(None) } else { answer_header(text).map(Some) }).flatten()
        }
    }
}

fn answer_header(text: &str) -> Result<HeaderName, Fault> {
    let name = header(text)?;
    if TAKEN_IN_ANSWERS.contains(&name.as_str()) {
        let expected = "expected the name of a header of its own, as \"X-Bearward-Subject\"";
        return Err(Fault::new(format!("{text} has a meaning of its own"), expected));
    }
    Ok(name)
}

fn report_collisions(table: &Table<'_>, headers: &LoginHeaders) {
    let named =
        [("subject", Some(&headers.subject)), ("scope", headers.scope.as_ref()), ("claims", headers.claims.as_ref())];
    for (index, (key, name)) in named.iter().enumerate() {
        let same = |(_, other): &&(&str, Option<&HeaderName>)| {
            name.zip(*other).is_some_and(|(name, other)| folded(name) == folded(other))
        };
        let Some((first, _)) = named[..index].iter().find(same) else { continue };
        // One of the two was written, or there would be no collision.
        let at = if table.has(key) { key } else { first };
        table.wrong(
            at,
            Fault::new(format!("`{first}` and `{key}` have the same header"), "expected another name").help(SAME),
        );
    }
}
