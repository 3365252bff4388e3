//! `[identity]`: the headers that tell the upstream who is asking.

use http::HeaderName;

use crate::config::fault::Fault;
use crate::config::read::Table;
use crate::headers::Identity;

/// Headers with a meaning of their own, which an identity must not overwrite: those of one connection (RFC 9110 section
/// 7.6.1), of the message's framing and content, the credentials, and what else the gateway tells the upstream.
const TAKEN: &[&str] = &[
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
        Some(value) => value.parse(header).flatten(),
    });
    report_collisions(table, &headers);
    let [subject, scope, token_id, issuer] = headers;
    Identity { subject, scope, token_id, issuer }
}

/// The empty string switches a header off.
fn header(text: &str) -> Result<Option<HeaderName>, Fault> {
    if text.is_empty() {
        return Ok(None);
    }
    let expected = "expected the name of a header of its own, as \"X-Auth-Subject\"";
    let name: HeaderName = text
        .parse()
        .map_err(|_| Fault::new(format!("\"{}\" is not the name of a header", text.escape_debug()), expected))?;
    let folded = folded(&name);
    if TAKEN.contains(&folded.as_str()) || folded.starts_with("x-forwarded-") {
        return Err(Fault::new(format!("{text} has a meaning of its own"), expected));
    }
    Ok(Some(name))
}

/// As many backends see it: CGI and its heirs make the same variable of `X-Auth` and `x_auth`.
fn folded(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}

fn report_collisions(table: &Table<'_>, headers: &[Option<HeaderName>; 4]) {
    for (index, header) in headers.iter().enumerate() {
        let Some(header) = header else { continue };
        let same = |first: &&Option<HeaderName>| first.as_ref().is_some_and(|first| folded(first) == folded(header));
        let Some(first) = headers[..index].iter().position(|first| same(&first)) else { continue };
        let [first, second] = [first, index].map(|index| DEFAULTS[index].0);
        // One of the two was written, or there would be no collision.
        let (at, other) = if table.has(second) { (second, first) } else { (first, second) };
        let fault = Fault::new(format!("`{at}` and `{other}` have the same header"), "expected another name")
            .help("names are compared without case, and with `_` equal to `-`, as backends do");
        table.wrong(
            at,
            match table.has(other) {
                true => fault.related(&table.place(other), "the other one is here"),
                false => fault,
            },
        );
    }
}
