//! `[tokens]`: the tokens that this gateway issues.

use std::net::IpAddr;
use std::time::Duration;

use http::Uri;

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::units::format_duration;
use crate::config::sections::placed::Placed;
use crate::config::sections::{issuer, pem};
use crate::config::settings::TokenSettings;
use crate::server::ListenerSettings;
use crate::tokens::family::Lifetimes;
use crate::tokens::jwt::Algorithm;

/// The address of the default listener on this machine: for trials only.
const DEFAULT_ISSUER: &str = "https://localhost:8443";

/// Algorithms for signing. `issuer.algorithms` accepts more.
const SIGNING: &[(&str, Algorithm)] = &[
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
    ("RS256", Algorithm::RS256),
];

const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);
const TEN_YEARS: Duration = Duration::from_hours(24 * 3650);

pub(super) fn read(
    table: &mut Table<'_>,
    listeners: &[Placed<ListenerSettings>],
    sessions_per_subject: usize,
) -> TokenSettings {
    let issuer = table.take("issuer", Shape::URL).and_then(|value| value.parse(issuer_url));
    table.default("issuer", DEFAULT_ISSUER);
    let issuer = issuer.unwrap_or_else(|| DEFAULT_ISSUER.to_owned());
    warn_of_localhost(table, &issuer, listeners);
    let audience = table.take("audience", issuer::texts()).and_then(|value| issuer::audience(&value));
    table.default("audience", [issuer.as_str()].as_slice());
    let algorithm = table.choice("algorithm", Algorithm::ES256, SIGNING);
    let signing_key_file = table.path("signing_key_file");
    if let Some(path) = &signing_key_file {
        table.accept("signing_key_file", pem::signing_key(path, algorithm));
    }
    let (key_lifetime, key_ahead) = rotation(table);
    TokenSettings {
        audience: audience.unwrap_or_else(|| vec![issuer.clone()]),
        // Known when the routes are read.
        resources: Vec::new(),
        gateway_resource: None,
        issuer,
        algorithm,
        signing_key_file,
        key_lifetime,
        key_ahead,
        lifetimes: lifetimes(table),
        lifetime_jitter: u8::try_from(table.integer("lifetime_jitter", 5, 0..=50)).unwrap_or_default(),
        clock_skew: table.duration("clock_skew", Duration::from_secs(5), Duration::ZERO..=issuer::MAX_CLOCK_SKEW),
        expires_at_milliseconds: table.choice("expires_at", false, &[("seconds", false), ("milliseconds", true)]),
        extra_fields: table.boolean("extra_fields", false),
        certificate_bound: table.boolean("certificate_bound", false),
        sessions_per_subject,
        proof_nonce: table.choice("proof_nonce", false, &[("off", false), ("required", true)]),
        proofs_in_store: proofs_in_store(table),
    }
}

/// `proof_replay`. Its default depends on the store.
fn proofs_in_store(table: &mut Table<'_>) -> Option<bool> {
    let words = [("process", false), ("store", true)];
    table.take("proof_replay", Shape::choice(&words)).and_then(|value| value.choice(&words))
}

/// The `iss` of the gateway is a URL without query and fragment (RFC 8414 section 2). http:// is allowed: the URL is
/// only a name, and a gateway behind a TLS load balancer may have such a name inside a network.
fn issuer_url(text: &str) -> Result<String, ConfigError> {
    let error = || ConfigError::new("this is not the URL of an issuer", "expected https:// and a host");
    let uri: Uri = text.parse().map_err(|_| error())?;
    if !matches!(uri.scheme_str(), Some("https" | "http")) || uri.host().is_none_or(str::is_empty) {
        return Err(error().help("write the URL at which clients reach this gateway"));
    }
    if text.contains('@') {
        return Err(error().help("remove the user name and password").confidential());
    }
    if text.contains(['?', '#']) {
        return Err(error().help("remove `?` or `#` and the text after it"));
    }
    Ok(text.to_owned())
}

/// A name that every gateway on trial has, so that their tokens differ only by their keys. A file without
/// `[[listener]]` is such a trial: its certificate is for localhost only.
fn warn_of_localhost(table: &Table<'_>, issuer: &str, listeners: &[Placed<ListenerSettings>]) {
    let is_public = |listener: &&Placed<ListenerSettings>| {
        !listener.value.address.ip().is_loopback() && listener.place.span.is_some()
    };
    let uri: Option<Uri> = issuer.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let is_local = is_loopback || host == "localhost" || host.ends_with(".localhost");
    if !is_local {
        return;
    }
    let Some(listener) = listeners.iter().find(is_public) else { return };
    let warning = ConfigError::new(
        format!("tokens name {issuer} as their issuer, which is another program on each machine"),
        "expected the URL at which clients reach this gateway",
    );
    let warning = warning.help("set `issuer` before the first token is issued: a change later rejects all tokens");
    table.warn("issuer", warning.related(&listener.place, "this listener is not only for this machine"));
}

/// `key_lifetime` and `key_ahead`. With less than a minute, services could not cache the key set.
fn rotation(table: &mut Table<'_>) -> (Duration, Duration) {
    let lifetime = table.duration("key_lifetime", 90 * DAY, Duration::from_hours(1)..=TEN_YEARS);
    let ahead = table.duration("key_ahead", DAY, MINUTE..=TEN_YEARS);
    if ahead > lifetime {
        let [ahead, lifetime] = [ahead, lifetime].map(format_duration);
        let message = format!("key_ahead ({ahead}) is longer than key_lifetime ({lifetime})");
        let at = if table.has("key_ahead") { "key_ahead" } else { "key_lifetime" };
        let error = ConfigError::new(message, "expected `key_ahead` to be at most `key_lifetime`");
        table.reject(at, error.help("lower key_ahead or raise key_lifetime"));
    }
    (lifetime, ahead)
}

fn lifetimes(table: &mut Table<'_>) -> Lifetimes {
    let lifetimes = Lifetimes {
        access: table.duration("access_lifetime", 15 * MINUTE, MINUTE..=Lifetimes::MAX_ACCESS),
        idle: table.duration("refresh_idle", 7 * DAY, MINUTE..=TEN_YEARS),
        absolute: table.duration("refresh_absolute", 30 * DAY, MINUTE..=TEN_YEARS),
        grace: table.duration("refresh_grace", Duration::from_secs(10), Duration::ZERO..=MINUTE),
    };
    in_order(table, "access_lifetime", lifetimes.access, "refresh_idle", lifetimes.idle);
    in_order(table, "refresh_idle", lifetimes.idle, "refresh_absolute", lifetimes.absolute);
    lifetimes
}

/// Checks that `inner` is not longer than `outer`. The error points at a key in the file, never at a default.
fn in_order(table: &Table<'_>, inner: &str, shorter: Duration, outer: &str, longer: Duration) {
    if shorter <= longer {
        return;
    }
    let [shorter, longer] = [shorter, longer].map(format_duration);
    let message = format!("{inner} ({shorter}) is longer than {outer} ({longer})");
    let (at, other, expected) = if table.has(inner) {
        (inner, outer, format!("expected at most {longer}"))
    } else {
        (outer, inner, format!("expected at least {shorter}"))
    };
    let error = ConfigError::new(message, expected)
        .help("change one of them: access_lifetime ≤ refresh_idle ≤ refresh_absolute");
    table.reject(at, if table.has(other) { error.related(&table.place(other), "also set here") } else { error });
}
