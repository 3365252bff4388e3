//! `[[event_stream]]`: security events of identity providers (Shared Signals Framework 1.0).

use std::sync::Arc;
use std::time::Duration;

use crate::auth::keyring::{KeySource, Location, OnStale, Remote, Startup};
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::choose;
use crate::config::sections::event_delivery::{self, Access};
use crate::config::sections::placed::{Placed, report_duplicates};
use crate::config::sections::{issuer, keys, pem};
use crate::config::settings::{EventStream, ForeignIssuer};
use crate::gateway::route::Route;
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::{ALGORITHMS, Algorithm, Audience, Confirmation, Issuer, is_hmac};
use crate::tokens::provider_events::EffectSettings;
use crate::tokens::provider_events::security_event::EventPolicy;

const DAY: Duration = Duration::from_hours(24);
const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

/// A name in logs and metrics. Also for `provider.name`.
const NAME: &str = "^[A-Za-z0-9_-]{1,64}$";

/// Each stream, and the path of each that is pushed.
pub(super) fn event_streams(
    root: &mut Table<'_>,
    own_issuer: &str,
    routes: &[Route],
) -> (Vec<EventStream>, Vec<Placed<String>>) {
    let mut pushed = Vec::new();
    let streams = root.tables("event_stream", |table| {
        let stream = event_stream(table, own_issuer, routes);
        let path = stream.as_ref().and_then(|stream| stream.value.path());
        pushed.extend(path.map(|path| Placed { value: path.to_owned(), place: table.place("path") }));
        stream
    });
    let streams: Vec<_> = streams.into_iter().flatten().collect();
    let message = "two event streams have the same name";
    report_duplicates(root.report(), &streams, message, "expected a different name", |stream| &stream.name);
    (streams.into_iter().map(|stream| stream.value).collect(), pushed)
}

/// `None` if one of its keys is missing or wrong.
fn event_stream(table: &mut Table<'_>, own_issuer: &str, routes: &[Route]) -> Option<Placed<EventStream>> {
    let name = table.required("name", Shape::Pattern(NAME), "\"corp\"").and_then(|value| value.parse(name));
    let written = table.required("issuer", Shape::Pattern(r"^\S+$"), "\"https://login.example\"");
    let issuer = written.and_then(|value| value.parse(issuer::name));
    let audience = table
        .required("audience", Shape::Pattern("."), "\"https://gateway.example/events\"")
        .and_then(|value| value.parse(text));
    let algorithms = algorithms(table);
    let keys = transmitter_keys(table, issuer);
    let effects = effects(table, issuer);
    if effects.subject_issuers.iter().any(|subjects| subjects == own_issuer) {
        let key = if table.has("subject_issuers") { "subject_issuers" } else { "issuer" };
        let error = ConfigError::new("this is the issuer of the gateway itself", "expected another issuer");
        table.reject(
            key,
            error.help("revoke sessions of the gateway itself with `bearward token revoke` or the admin API"),
        );
    }
    let access = Access {
        issuer: issuer.unwrap_or_default(),
        allow_http: table.boolean("allow_http", false),
        ca_file: keys.as_ref().and_then(|keys| keys.ca_file.clone()),
    };
    let delivery = event_delivery::read(table, &access, effects.stream_id.as_deref(), routes);
    let policy = EventPolicy {
        issuer: issuer.unwrap_or_default().to_owned(),
        audience: audience.unwrap_or_default(),
        max_age: table.duration("max_event_age", 7 * DAY, MINUTE..=31 * DAY),
        legacy_subjects: table.boolean("legacy_subjects", false),
    };
    let transmitter = ForeignIssuer {
        policy: key_policy(issuer?, algorithms?),
        keys: KeySource::Remote(Box::new(keys?)),
        introspection: None,
    };
    let (delivery, verification) = delivery?;
    let stream = EventStream { name: name?, policy, effects, transmitter, delivery, verification };
    Some(Placed { value: stream, place: table.place("name") })
}

/// Also for `provider.name`.
fn name(text: &str) -> Result<Arc<str>, ConfigError> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=64).contains(&text.len()) && text.bytes().all(is_name) {
        Ok(text.into())
    } else {
        Err(ConfigError::new("this is not a name", "expected up to 64 letters, digits, `-` and `_`"))
    }
}

fn text(text: &str) -> Result<String, ConfigError> {
    match text {
        "" => Err(ConfigError::new("this is empty", "expected the `aud` of the events")),
        text => Ok(text.to_owned()),
    }
}

fn algorithms(table: &mut Table<'_>) -> Option<Vec<Algorithm>> {
    let public = || ALGORITHMS.iter().filter(|(_, algorithm)| !is_hmac(*algorithm)).copied().collect::<Vec<_>>();
    let value = table.take("algorithms", Shape::some(Shape::choice(&public())));
    table.default("algorithms", ["RS256"].as_slice());
    let Some(value) = value else { return Some(vec![Algorithm::RS256]) };
    let algorithms = value.list_of("[\"RS256\"]", |text| choose(text, &public()))?;
    if value.list("[\"RS256\"]")?.is_empty() {
        value.reject(ConfigError::new("the list is empty", "expected at least one algorithm, for example [\"RS256\"]"));
        return None;
    }
    Some(algorithms)
}

/// Only for its signature: what the claims must be is decided elsewhere.
fn key_policy(issuer: &str, algorithms: Vec<Algorithm>) -> Issuer {
    Issuer {
        issuer: issuer.into(),
        audience: Audience::Any,
        resources: Vec::new(),
        algorithms,
        types: Vec::new(),
        clock_skew: Duration::ZERO,
        max_lifetime: Duration::ZERO,
        require_subject: false,
        confirmation: Confirmation::Reject,
        own: false,
    }
}

/// `jwks_url`, or the configuration of the transmitter, which names it.
fn transmitter_keys(table: &mut Table<'_>, issuer: Option<&str>) -> Option<Remote> {
    let allow_http = table.boolean("allow_http", false);
    let jwks_url =
        table.take("jwks_url", Shape::URL).and_then(|value| value.parse(|text| keys::key_url(text, allow_http)));
    let jwks_hosts = table
        .take("jwks_hosts", Shape::list(Shape::Text))
        .and_then(|value| value.list_of("[\"keys.internal\"]", keys::host));
    table.default("jwks_hosts", Vec::<String>::new());
    let ca_file = table.path("ca_file");
    if let Some(path) = &ca_file {
        table.accept("ca_file", pem::certificates(path));
    }
    let location = match jwks_url {
        Some(url) => Location::Jwks(url),
        None if table.has("jwks_url") => return None,
        None => {
            let url = SecureUrl::event_transmitter(issuer?, allow_http).map_err(keys::explain);
            Location::EventTransmitter(table.accept("issuer", url)?)
        }
    };
    Some(Remote {
        location,
        allow_http,
        jwks_hosts: jwks_hosts.unwrap_or_default(),
        ca_file,
        refresh: MINUTE..=15 * MINUTE,
        refetch_cooldown: 30 * SECOND,
        max_age: DAY,
        on_stale: OnStale::Keep,
        startup: Startup::Continue,
    })
}

fn effects(table: &mut Table<'_>, issuer: Option<&str>) -> EffectSettings {
    let issuers = table
        .take("subject_issuers", Shape::some(Shape::Pattern(r"^\S+$")))
        .and_then(|value| value.some_of("[\"https://login.example\"]", |text| issuer::name(text).map(str::to_owned)));
    EffectSettings {
        subject_issuers: issuers.unwrap_or_else(|| issuer.into_iter().map(str::to_owned).collect()),
        stream_id: table.take("stream_id", Shape::Text).and_then(|value| value.string().map(str::to_owned)),
        credential_change: table.boolean("credential_change", true),
    }
}
