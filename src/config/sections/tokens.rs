//! `[tokens]`: the tokens this gateway issues.

use std::time::Duration;

use http::Uri;

use crate::config::TokenSettings;
use crate::config::document::error::Fault;
use crate::config::document::table::Table;
use crate::config::document::units::spell_duration;
use crate::config::sections::{issuer, pem};
use crate::tokens::family::Lifetimes;
use crate::tokens::jwt::Algorithm;

/// What the default listener is called on the machine itself: good for a first run, and plainly not for the next.
const DEFAULT_ISSUER: &str = "https://localhost:8443";

/// The algorithms the gateway signs with. Accepting is another matter: see `issuer.algorithms`.
const SIGNING: &[(&str, Algorithm)] = &[
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
    ("RS256", Algorithm::RS256),
];

const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);
const TEN_YEARS: Duration = Duration::from_hours(24 * 3650);

pub(super) fn read(table: &mut Table<'_>, sessions_per_subject: usize) -> TokenSettings {
    let issuer = table.take("issuer").and_then(|value| value.parse(issuer_url));
    let issuer = issuer.unwrap_or_else(|| DEFAULT_ISSUER.to_owned());
    let audience = table.take("audience").and_then(|value| issuer::audience(&value));
    let algorithm = table.choice("algorithm", Algorithm::ES256, SIGNING);
    let signing_key_file = table.path("signing_key_file");
    if let Some(path) = &signing_key_file {
        table.accept("signing_key_file", pem::signing_key(path, algorithm));
    }
    let (key_lifetime, key_ahead) = rotation(table);
    TokenSettings {
        audience: audience.unwrap_or_else(|| vec![issuer.clone()]),
        issuer,
        algorithm,
        signing_key_file,
        key_lifetime,
        key_ahead,
        lifetimes: lifetimes(table),
        clock_skew: table.duration("clock_skew", Duration::from_secs(5), Duration::ZERO..=issuer::MAX_CLOCK_SKEW),
        expires_at_milliseconds: table.choice("expires_at", false, &[("seconds", false), ("milliseconds", true)]),
        extra_fields: table.flag("extra_fields", false),
        sessions_per_subject,
    }
}

/// An `iss` of our own is a URL without query and fragment (RFC 8414 section 2). Cleartext passes: the URL is a name
/// here, and a gateway behind a TLS balancer may be known by it inside.
fn issuer_url(text: &str) -> Result<String, Fault> {
    let fault = || Fault::new("this is not a URL that can name an issuer", "expected https:// and a host");
    let uri: Uri = text.parse().map_err(|_| fault())?;
    if !matches!(uri.scheme_str(), Some("https" | "http")) || uri.host().is_none_or(str::is_empty) {
        return Err(fault().help("write the address by which clients reach this gateway"));
    }
    if text.contains('@') {
        return Err(fault().help("leave out the user name and password").confidential());
    }
    if text.contains(['?', '#']) {
        return Err(fault().help("leave out what follows `?` or `#`"));
    }
    Ok(text.to_owned())
}

/// `key_lifetime` and `key_ahead`. Below a minute ahead, what others may cache of `jwks.json` would expire all the time.
fn rotation(table: &mut Table<'_>) -> (Duration, Duration) {
    let lifetime = table.duration("key_lifetime", 90 * DAY, Duration::from_hours(1)..=TEN_YEARS);
    let ahead = table.duration("key_ahead", DAY, MINUTE..=TEN_YEARS);
    if ahead > lifetime {
        let [ahead, lifetime] = [ahead, lifetime].map(spell_duration);
        let message = format!("key_ahead ({ahead}) is longer than key_lifetime ({lifetime})");
        let at = if table.has("key_ahead") { "key_ahead" } else { "key_lifetime" };
        let fault = Fault::new(message, "expected a key to be published while the one before it signs");
        table.wrong(at, fault.help("make key_ahead shorter than key_lifetime"));
    }
    (lifetime, ahead)
}

fn lifetimes(table: &mut Table<'_>) -> Lifetimes {
    let lifetimes = Lifetimes {
        access: table.duration("access_lifetime", 15 * MINUTE, MINUTE..=Lifetimes::MOST_ACCESS),
        idle: table.duration("refresh_idle", 7 * DAY, MINUTE..=TEN_YEARS),
        absolute: table.duration("refresh_absolute", 30 * DAY, MINUTE..=TEN_YEARS),
        grace: table.duration("refresh_grace", Duration::from_secs(10), Duration::ZERO..=MINUTE),
    };
    in_order(table, ("access_lifetime", lifetimes.access), ("refresh_idle", lifetimes.idle));
    in_order(table, ("refresh_idle", lifetimes.idle), ("refresh_absolute", lifetimes.absolute));
    lifetimes
}

/// A shorter life within a longer one. The fault points at whichever was written; a default alone is never wrong.
fn in_order(table: &Table<'_>, (inner, shorter): (&str, Duration), (outer, longer): (&str, Duration)) {
    if shorter <= longer {
        return;
    }
    let [shorter, longer] = [shorter, longer].map(spell_duration);
    let message = format!("{inner} ({shorter}) is longer than {outer} ({longer})");
    let (at, other, expected) = match table.has(inner) {
        true => (inner, outer, format!("expected at most {longer}")),
        false => (outer, inner, format!("expected at least {shorter}")),
    };
    let fault = Fault::new(message, expected).help("access_lifetime ≤ refresh_idle ≤ refresh_absolute must hold");
    table.wrong(
        at,
        match table.has(other) {
            true => fault.related(&table.place(other), "the other one is here"),
            false => fault,
        },
    );
}
