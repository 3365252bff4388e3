//! The claims that all reports of providers have.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::tokens::jwt::json::{optional_str, quoted};

/// How far the clocks of a provider and of the gateway may differ.
pub(super) const CLOCK_SKEW: Duration = Duration::from_mins(1);

/// Maximum size of an identifier in bytes. OpenID Connect allows 255 for `sub`.
const MAX_ID: usize = 1024;

/// Maximum size of a `jti` in bytes.
const MAX_JTI: usize = 256;

/// A string that is not empty, if the member is there. The error is for the log.
pub(super) fn optional_id(object: &Map<String, Value>, name: &'static str) -> Result<Option<String>, String> {
    match optional_str(object, name).map_err(|error| error.to_string())? {
        None => Ok(None),
        Some("") => Err(format!("{name} is empty")),
        Some(id) if id.len() > MAX_ID => Err(format!("{name} has more than {MAX_ID} bytes")),
        Some(id) => Ok(Some(id.to_owned())),
    }
}

pub(super) fn required_id(object: &Map<String, Value>, name: &'static str) -> Result<String, String> {
    optional_id(object, name)?.ok_or_else(|| format!("{name} is missing"))
}

/// Without a `jti`, a token could be used again.
pub(super) fn jti(claims: &Map<String, Value>) -> Result<String, String> {
    let jti = required_id(claims, "jti")?;
    if jti.len() > MAX_JTI { Err(format!("jti has more than {MAX_JTI} bytes")) } else { Ok(jti) }
}

/// `aud` contains `expected`, and nothing but strings.
pub(super) fn check_audience(claims: &Map<String, Value>, expected: &str) -> Result<(), String> {
    let is_for_us = match claims.get("aud") {
        Some(Value::Array(several)) => {
            several.iter().all(Value::is_string) && several.iter().any(|aud| aud.as_str() == Some(expected))
        }
        Some(one) => one.as_str() == Some(expected),
        None => false,
    };
    if is_for_us { Ok(()) } else { Err(format!("aud is missing or has no {}", quoted(Some(expected)))) }
}

/// Returns true if `typ` of the header is this type, with or without `application/`, in any case (RFC 7515 section
/// 4.1.9).
pub(super) fn has_type(header: &Map<String, Value>, expected: &str) -> bool {
    let Some(typ) = header.get("typ").and_then(Value::as_str) else { return false };
    let short = match typ.split_at_checked("application/".len()) {
        Some((media, rest)) if media.eq_ignore_ascii_case("application/") => rest,
        _ => typ,
    };
    short.eq_ignore_ascii_case(expected)
}

/// `typ` of the header, for the log.
pub(super) fn shown_type(header: &Map<String, Value>) -> String {
    match header.get("typ") {
        None => "typ is missing".to_owned(),
        Some(Value::String(typ)) => format!("typ is {}", quoted(Some(typ))),
        Some(_) => "typ is not a string".to_owned(),
    }
}
