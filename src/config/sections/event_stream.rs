//! `[[event_stream]]`: security events of identity providers (Shared Signals Framework 1.0).

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use crate::auth::keyring::{KeySource, Location, OnStale, Remote, Startup};
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::choose;
use crate::config::sections::placed::Placed;
use crate::config::sections::{files, issuer, keys, oauth, pem};
use crate::config::settings::{EventDelivery, EventStream, ForeignIssuer, LOGOUT_PREFIX};
use crate::gateway::endpoints::Endpoints;
use crate::gateway::forward_auth;
use crate::gateway::route::Route;
use crate::gateway::route_table::{KEYS_PATH, REFRESH_PATH, REVOKE_PREFIX};
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::{ALGORITHMS, Algorithm, Audience, Confirmation, Issuer, is_hmac};
use crate::tokens::provider_events::EffectSettings;
use crate::tokens::provider_events::security_event::EventPolicy;

const DAY: Duration = Duration::from_hours(24);
const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

/// A name in logs and metrics. Also for `provider.name`.
const NAME: &str = "^[A-Za-z0-9_-]{1,64}$";

pub(super) fn event_streams(
    root: &mut Table<'_>,
    own_issuer: &str,
    routes: &[Route],
    endpoints: &Endpoints,
    forward_auth: Option<&forward_auth::Settings>,
) -> Vec<EventStream> {
    let own = |path: &str| reserved(path, routes, endpoints, forward_auth);
    let streams: Vec<_> =
        root.tables("event_stream", |table| event_stream(table, own_issuer, &own)).into_iter().flatten().collect();
    for (index, Placed { value, place }) in streams.iter().enumerate() {
        let earlier = || streams[..index].iter();
        let first = earlier().find(|first| first.value.name == value.name).map(|first| (first, "name"));
        let same_path = |first: &&Placed<EventStream>| value.path().is_some() && first.value.path() == value.path();
        let first = first.or_else(|| earlier().find(same_path).map(|first| (first, "path")));
        if let Some((first, what)) = first {
            let error = ConfigError::new(
                format!("two event streams have the same {what}"),
                format!("expected a different {what}"),
            );
            root.report().add(error.related(&first.place, "first used here").at(place));
        }
    }
    streams.into_iter().map(|stream| stream.value).collect()
}

/// `None` if one of its keys is missing or wrong. `reserved`: what else has this path.
fn event_stream(
    table: &mut Table<'_>,
    own_issuer: &str,
    reserved: &dyn Fn(&str) -> Option<String>,
) -> Option<Placed<EventStream>> {
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
    let authorization = table.required("authorization_file", Shape::Path, "\"events.authorization\"");
    let authorization = authorization.and_then(|value| value.path());
    let authorization = authorization.and_then(|path| table.accept("authorization_file", authorization_value(&path)));
    let delivery = delivery(table, keys.as_ref().and_then(|keys| keys.ca_file.clone()), reserved);
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
    let stream =
        EventStream { name: name?, policy, effects, transmitter, authorization: authorization?, delivery: delivery? };
    Some(Placed { value: stream, place: table.place("name") })
}

/// Also for `provider.name`.
fn name(text: &str) -> Result<Arc<str>, ConfigError> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match (1..=64).contains(&text.len()) && text.bytes().all(is_name) {
        true => Ok(text.into()),
        false => Err(ConfigError::new("this is not a name", "expected up to 64 letters, digits, `-` and `_`")),
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
        .and_then(|value| value.list_of("[\"https://login.example\"]", |text| issuer::name(text).map(str::to_owned)));
    EffectSettings {
        subject_issuers: issuers.unwrap_or_else(|| issuer.into_iter().map(str::to_owned).collect()),
        stream_id: table.take("stream_id", Shape::Text).and_then(|value| value.string().map(str::to_owned)),
        credential_change: table.boolean("credential_change", true),
    }
}

/// The whole value, because SSF does not say whether a scheme is part of it.
fn authorization_value(path: &std::path::Path) -> Result<HeaderValue, ConfigError> {
    let content = files::secret_contents(path)?;
    let value = HeaderValue::from_bytes(content.trim_ascii()).ok().filter(|value| value.len() >= MIN_AUTHORIZATION);
    let mut value = value.ok_or_else(|| {
        let shown = path.display();
        ConfigError::new(
            format!(
                "the content of {shown} is not a value of Authorization with {MIN_AUTHORIZATION} or more characters"
            ),
            "expected the whole value, for example `Bearer` and a random secret",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Minimum length of the value in characters. A shorter one can be guessed.
const MIN_AUTHORIZATION: usize = 32;

fn delivery(
    table: &mut Table<'_>,
    ca_file: Option<std::path::PathBuf>,
    reserved: &dyn Fn(&str) -> Option<String>,
) -> Option<EventDelivery> {
    let path = table.take("path", Shape::Pattern("^/")).and_then(|value| value.parse(push_path));
    let url = table.take("poll_url", Shape::URL);
    let allow_http = table.boolean("allow_http", false);
    let url = url.and_then(|value| value.parse(|text| keys::key_url(text, allow_http)));
    let interval = table.duration("poll_interval", 5 * SECOND, SECOND..=HOUR);
    match (table.has("path"), table.has("poll_url")) {
        (true, false) => {}
        (false, true) => return url.map(|url| EventDelivery::Poll { url, ca_file, interval }),
        (true, true) => {
            let error = ConfigError::new("this stream is pushed and polled", "expected `path` or `poll_url`");
            table.reject("poll_url", error.related(&table.place("path"), "it is pushed to this path"));
            return None;
        }
        (false, false) => {
            let error = ConfigError::new("this stream has no delivery", "expected `path` or `poll_url`");
            table.reject(
                "path",
                error.help("the transmitter pushes events to `path`, or offers them at `poll_url`").missing(),
            );
            return None;
        }
    }
    if table.has("poll_interval") {
        let error = ConfigError::new("`poll_interval` has no effect without `poll_url`", "expected `poll_url`");
        table.reject("poll_interval", error);
    }
    let path = path?;
    if let Some(other) = reserved(&path) {
        table.reject("path", ConfigError::new(other, "expected a different path"));
    }
    Some(EventDelivery::Push(path))
}

fn push_path(text: &str) -> Result<String, ConfigError> {
    let missing = || ConfigError::new("this is empty", "expected a path such as \"/events/corp\"");
    oauth::path_or_off(text)?.ok_or_else(missing)
}

/// What else has this path.
fn reserved(
    path: &str,
    routes: &[Route],
    endpoints: &Endpoints,
    forward_auth: Option<&forward_auth::Settings>,
) -> Option<String> {
    if routes.iter().any(|route| route.path == path) {
        return Some(format!("a route has the same path, {path}"));
    }
    let is_own = [REFRESH_PATH, KEYS_PATH].contains(&path)
        || [REVOKE_PREFIX, LOGOUT_PREFIX].iter().any(|prefix| path.starts_with(prefix));
    if is_own || endpoints.enabled().any(|(_, own)| own == path) {
        return Some(format!("{path} is a path of the gateway itself"));
    }
    forward_auth.is_some_and(|settings| settings.is_call(path)).then(|| format!("forward_auth.path contains {path}"))
}
