//! The delivery of the events of `[[event_stream]]`, and the credentials of the gateway at the transmitter.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;

use crate::auth::credentials::{ClientToken, Credentials};
use crate::auth::oauth_client::{ClientAuthentication, Endpoint};
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::{files, keys, oauth_client, route_path, rules};
use crate::config::settings::{EventDelivery, EventVerification};
use crate::gateway::route::Route;
use crate::protocols::url::SecureUrl;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// Minimum length of the value of `Authorization` in characters. A shorter one can be guessed.
const MIN_AUTHORIZATION: usize = 32;

/// How the transmitter is called.
pub(super) struct Access<'c> {
    /// `event_stream.issuer`
    pub(super) issuer: &'c str,
    pub(super) allow_http: bool,
    pub(super) ca_file: Option<PathBuf>,
}

/// What the file says about the delivery. An inner `None`: the key has an error.
struct Keys {
    path: Option<String>,
    poll: Option<SecureUrl>,
    poll_interval: Duration,
    authorization: Option<HeaderValue>,
    client: Option<ClientToken>,
}

/// `None` after an error.
pub(super) fn read(
    table: &mut Table<'_>,
    access: &Access<'_>,
    stream_id: Option<&str>,
    routes: &[Route],
) -> Option<(EventDelivery, Option<EventVerification>)> {
    let authorization = table.path("authorization_file");
    let keys = Keys {
        path: table.take("path", Shape::Pattern("^/")).and_then(|value| value.parse(push_path)),
        poll: url(table, "poll_url", access),
        poll_interval: table.duration("poll_interval", 5 * SECOND, SECOND..=HOUR),
        authorization: authorization.and_then(|path| table.accept("authorization_file", authorization_value(&path))),
        client: table.optional_table("client", |table| client(table, access)).flatten(),
    };
    let verification = verification(table, access, stream_id);
    let delivery = delivery(table, keys, access)?;
    if let EventDelivery::Push { path, .. } = &delivery
        && routes.iter().any(|route| route.path == *path)
    {
        let error = ConfigError::new(format!("a route has the same path, {path}"), "expected a different path");
        table.reject("path", error);
    }
    let has_credentials = delivery.credentials().is_some();
    if table.has("client") && matches!(delivery, EventDelivery::Push { .. }) && !table.has("verification_url") {
        let error = ConfigError::new("`client` has no effect on a pushed stream", "expected `verification_url`");
        table.reject("client", error.help("the gateway gets tokens for polls and for verifications"));
    }
    if table.has("verification_url") && !has_credentials && !table.has("client") {
        let error = ConfigError::new("the gateway has no credentials for this URL", "expected [event_stream.client]");
        table.reject("verification_url", error.help("`authorization_file` is what the transmitter sends"));
    }
    Some((delivery, verification?))
}

fn url(table: &mut Table<'_>, key: &'static str, access: &Access<'_>) -> Option<SecureUrl> {
    let url = table.take(key, Shape::URL);
    url.and_then(|value| value.parse(|text| keys::key_url(text, access.allow_http)))
}

fn delivery(table: &Table<'_>, keys: Keys, access: &Access<'_>) -> Option<EventDelivery> {
    let has_client = table.has("client");
    match (table.has("path"), table.has("poll_url")) {
        (true, false) => {}
        (false, true) => {
            let credentials = poll_credentials(table, keys.authorization, keys.client);
            let url = keys.poll?;
            let ca_file = access.ca_file.clone();
            return Some(EventDelivery::Poll { url, ca_file, interval: keys.poll_interval, credentials: credentials? });
        }
        (true, true) => {
            let error = ConfigError::new("this stream is pushed and polled", "expected `path` or `poll_url`");
            table.reject("poll_url", error.related(&table.place("path"), "it is pushed to this path"));
            return None;
        }
        (false, false) => {
            let error = ConfigError::new("this stream has no delivery", "expected `path` or `poll_url`");
            let help = "the transmitter pushes events to `path`, or offers them at `poll_url`";
            table.reject("path", error.help(help).missing());
            return None;
        }
    }
    if table.has("poll_interval") {
        let error = ConfigError::new("`poll_interval` has no effect without `poll_url`", "expected `poll_url`");
        table.reject("poll_interval", error);
    }
    require_authorization(table);
    let client = keys.client.map(|client| Credentials::Client(Box::new(client)));
    if has_client && client.is_none() {
        None
    } else {
        Some(EventDelivery::Push { path: keys.path?, authorization: keys.authorization?, client })
    }
}

fn poll_credentials(
    table: &Table<'_>,
    authorization: Option<HeaderValue>,
    client: Option<ClientToken>,
) -> Option<Credentials> {
    if !table.has("client") {
        require_authorization(table);
        return authorization.map(Credentials::Fixed);
    }
    if table.has("authorization_file") {
        let error = ConfigError::new("a poll has one `Authorization`", "expected `authorization_file` or `client`");
        table.reject("authorization_file", error.related(&table.place("client"), "the gateway gets tokens here"));
    }
    client.map(|client| Credentials::Client(Box::new(client)))
}

fn require_authorization(table: &Table<'_>) {
    if !table.has("authorization_file") {
        let expected = "expected `authorization_file = \"events.authorization\"`";
        table.reject("authorization_file", ConfigError::new("`authorization_file` is missing", expected).missing());
    }
}

/// `[event_stream.client]`
fn client(table: &mut Table<'_>, access: &Access<'_>) -> Option<ClientToken> {
    let endpoint = table.required("token_endpoint", Shape::URL, "\"https://login.example/token\"");
    let endpoint = endpoint.and_then(|value| value.parse(|text| keys::key_url(text, access.allow_http)));
    let server = table.take("issuer", Shape::Text).and_then(|value| value.string());
    let client = oauth_client::read(table, server.unwrap_or(access.issuer), access.ca_file.clone());
    let scopes = table.take("scopes", Shape::list(rules::SCOPE));
    table.default("scopes", vec!["ssf.read"]);
    let scopes = scopes.map_or(Some(vec!["ssf.read".to_owned()]), |value| value.list_of(SCOPES, rules::scope));
    let client = client?;
    if client.authentication == ClientAuthentication::Public {
        let error = ConfigError::new("a client without credentials gets no token of its own", "expected another one");
        table.reject("client_auth", error);
        return None;
    }
    Some(ClientToken::new(Endpoint::configured(endpoint?), client, scopes?.join(" ")))
}

const SCOPES: &str = "[\"ssf.read\"]";

/// The outer `None`: an error.
fn verification(
    table: &mut Table<'_>,
    access: &Access<'_>,
    stream_id: Option<&str>,
) -> Option<Option<EventVerification>> {
    let url = url(table, "verification_url", access);
    let interval = table.duration("verify_interval", HOUR, MINUTE..=168 * HOUR);
    if !table.has("verification_url") {
        if table.has("verify_interval") {
            let error = ConfigError::new(
                "`verify_interval` has no effect without `verification_url`",
                "expected `verification_url`",
            );
            table.reject("verify_interval", error);
        }
        return Some(None);
    }
    if stream_id.is_none() && !table.has("stream_id") {
        let error = ConfigError::new("`stream_id` is missing", "expected the id of the stream at the transmitter");
        table.reject("stream_id", error.help("the gateway requests the verification of this stream").missing());
    }
    Some(Some(EventVerification { url: url?, ca_file: access.ca_file.clone(), interval, stream_id: stream_id?.into() }))
}

/// The whole value, because SSF does not say whether a scheme is part of it.
fn authorization_value(path: &Path) -> Result<HeaderValue, ConfigError> {
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

fn push_path(text: &str) -> Result<String, ConfigError> {
    let missing = || ConfigError::new("this is empty", "expected a path such as \"/events/corp\"");
    route_path::path_or_off(text)?.ok_or_else(missing)
}
