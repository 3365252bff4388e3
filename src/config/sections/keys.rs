//! `[[issuer]]`: where the keys of the issuer come from, and how they are refreshed.

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::auth::keyring::{KeyFile, KeySource, Location, OnStale, Remote, Startup};
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::units::format_duration;
use crate::config::sections::placed::Placed;
use crate::config::sections::{files, pem};
use crate::protocols::url::{SecureUrl, UrlError};
use crate::tokens::jwt::Issuer;
use crate::types::private_file::FileCreator;
use crate::types::reject::with_causes;

const DAY: Duration = Duration::from_hours(24);
const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

/// Keys that need `jwks_url` or `discover`.
const REMOTE_ONLY: &[&str] = &[
    "allow_http",
    "jwks_hosts",
    "ca_file",
    "refresh_min",
    "refresh_max",
    "refetch_cooldown",
    "max_age",
    "on_stale",
    "startup",
];

/// Keys that name a source, besides `discover`.
const SOURCES: [&str; 4] = ["jwks_file", "pem_file", "secret_file", "jwks_url"];

/// The source of the keys: exactly one of five keys. `issuer`: the name of the issuer, where discovery starts. `asks`:
/// its tokens are introspected, so that it needs no keys.
pub(super) fn source(table: &mut Table<'_>, issuer: Option<&str>, asks: bool) -> Option<Placed<KeySource>> {
    // All are read, even if the first is set: an unread key would be reported as unknown.
    let files = [
        ("jwks_file", table.path("jwks_file").map(KeyFile::Jwks)),
        ("pem_file", table.path("pem_file").map(KeyFile::Pem)),
        ("secret_file", table.path("secret_file").map(KeyFile::Secret)),
    ];
    let allow_http = table.boolean("allow_http", false);
    let jwks_url = table.take("jwks_url", Shape::URL).and_then(|value| value.parse(|text| key_url(text, allow_http)));
    let discover = table.take("discover", Shape::Boolean);
    table.default("discover", false);
    let discover = discover.map_or(Some(false), |value| value.boolean());
    let jwks_hosts =
        table.take("jwks_hosts", Shape::list(Shape::Text)).and_then(|value| value.list_of("[\"keys.internal\"]", host));
    table.default("jwks_hosts", Vec::<String>::new());
    let refresh = RefreshSettings::read(table);

    if asks && discover == Some(false) && !SOURCES.iter().any(|key| table.has(key)) {
        reject_refresh_settings(table, "introspection");
        return Some(Placed { value: KeySource::None, place: table.place("introspection") });
    }
    let key = key_source_key(table, discover?)?;
    let source = match key {
        "jwks_url" => {
            if table.has("jwks_hosts") {
                let error =
                    ConfigError::new("`jwks_hosts` has no effect without discovery", "expected `discover = true`");
                table.reject("jwks_hosts", error.help("remove this key: the host in `jwks_url` is always allowed"));
            }
            jwks_url.map(|url| refresh.remote(Location::Jwks(url), allow_http, Vec::new()))
        }
        "discover" => {
            let location = discovery(table, issuer, allow_http);
            location.map(|location| refresh.remote(location, allow_http, jwks_hosts.unwrap_or_default()))
        }
        _ => {
            reject_refresh_settings(table, key);
            files.into_iter().find(|(file, _)| *file == key).and_then(|(_, file)| file).map(KeySource::File)
        }
    };
    source.map(|value| Placed { value, place: table.place(key) })
}

fn key_source_key(table: &Table<'_>, discover: bool) -> Option<&'static str> {
    let named = SOURCES.into_iter().filter(|key| table.has(key));
    let mut named = named.chain(discover.then_some("discover"));
    let Some(key) = named.next() else {
        let error = ConfigError::new(
            "this issuer has no source of keys",
            "expected `jwks_url`, `discover = true`, `jwks_file`, `pem_file`, `secret_file` or [issuer.introspection]",
        );
        table.reject("jwks_file", error.missing());
        return None;
    };
    for other in named {
        let error = ConfigError::new("this issuer has two sources of keys", "expected one source");
        table.reject(other, error.related(&table.place(key), "the first source is here"));
    }
    Some(key)
}

/// `source`: the key that names another source.
fn reject_refresh_settings(table: &Table<'_>, source: &str) {
    for key in REMOTE_ONLY.iter().filter(|key| table.has(key)) {
        let (without, related) = match source {
            "introspection" => ("without keys", "the issuer is only asked about its tokens"),
            _ => ("on keys from a file", "the keys come from this file"),
        };
        let error = ConfigError::new(format!("`{key}` has no effect {without}"), "expected keys that are fetched");
        let error = error.related(&table.place(source), related);
        table.reject(key, error.help("remove this key, or write `jwks_url` or `discover = true`"));
    }
}

pub(super) fn key_url(text: &str, allow_http: bool) -> Result<SecureUrl, ConfigError> {
    SecureUrl::parse(text, allow_http).map_err(explain)
}

/// A host as in a URL. An IPv6 address has no brackets.
pub(super) fn host(text: &str) -> Result<String, ConfigError> {
    let is_name = SecureUrl::parse(&format!("https://{text}/"), false).is_ok_and(|url| url.host == text);
    if is_name || text.parse::<Ipv6Addr>().is_ok() {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(ConfigError::new("this is not a host", "expected a host name or an address, without a port"))
    }
}

pub(super) fn explain(error: UrlError) -> ConfigError {
    let described = ConfigError::new(error.to_string(), "expected https:// and a host");
    match error {
        UrlError::Invalid => {
            described.help("write the complete URL, for example \"https://login.example/.well-known/jwks.json\"")
        }
        UrlError::Credentials => {
            described.help("remove the user name and password; public keys need none").confidential()
        }
        UrlError::Fragment => described.help("remove `#` and the text after it"),
        UrlError::Cleartext => described.help(
            "use https://; on a trusted network, set `allow_http = true` \
             (an attacker on the network could replace the keys and forge tokens)",
        ),
    }
}

fn discovery(table: &Table<'_>, issuer: Option<&str>, allow_http: bool) -> Option<Location> {
    let places = SecureUrl::well_known(issuer?, allow_http).map_err(|error| match error {
        UrlError::Invalid => ConfigError::new("discovery needs the URL of the issuer", "expected `issuer` to be a URL")
            .related(&table.place("issuer"), "this is not a URL")
            .help("set `jwks_url` instead"),
        error => explain(error),
    });
    table.accept("discover", places).map(Location::Discovery)
}

/// How keys are fetched and kept, for `jwks_url` and `discover`.
struct RefreshSettings {
    ca_file: Option<std::path::PathBuf>,
    refresh_min: Duration,
    refresh_max: Duration,
    refetch_cooldown: Duration,
    max_age: Duration,
    on_stale: OnStale,
    startup: Startup,
}

impl RefreshSettings {
    fn read(table: &mut Table<'_>) -> Self {
        let ca_file = table.path("ca_file");
        if let Some(path) = &ca_file {
            table.accept("ca_file", pem::certificates(path));
        }
        let settings = RefreshSettings {
            ca_file,
            refresh_min: table.duration("refresh_min", MINUTE, SECOND..=DAY),
            refresh_max: table.duration("refresh_max", 15 * MINUTE, SECOND..=DAY),
            refetch_cooldown: table.duration("refetch_cooldown", Duration::from_secs(30), SECOND..=HOUR),
            max_age: table.duration("max_age", DAY, MINUTE..=366 * DAY),
            on_stale: table.choice("on_stale", OnStale::Keep, &[("keep", OnStale::Keep), ("reject", OnStale::Reject)]),
            startup: table.choice(
                "startup",
                Startup::Wait,
                &[("wait", Startup::Wait), ("continue", Startup::Continue)],
            ),
        };
        in_order(table, "refresh_min", settings.refresh_min, "refresh_max", settings.refresh_max);
        in_order(table, "refresh_max", settings.refresh_max, "max_age", settings.max_age);
        settings
    }

    fn remote(self, location: Location, allow_http: bool, jwks_hosts: Vec<String>) -> KeySource {
        KeySource::Remote(Box::new(Remote {
            location,
            allow_http,
            jwks_hosts,
            ca_file: self.ca_file,
            refresh: self.refresh_min..=self.refresh_max,
            refetch_cooldown: self.refetch_cooldown,
            max_age: self.max_age,
            on_stale: self.on_stale,
            startup: self.startup,
        }))
    }
}

/// The error points at a key in the file, never at a default.
fn in_order(table: &Table<'_>, lower: &str, less: Duration, upper: &str, more: Duration) {
    if less <= more {
        return;
    }
    let [less, more] = [less, more].map(format_duration);
    let (at, expected) = if table.has(upper) {
        (upper, format!("expected at least {less}, which is {lower}"))
    } else {
        (lower, format!("expected at most {more}, which is {upper}"))
    };
    let error = ConfigError::new(format!("{lower} ({less}) is longer than {upper} ({more})"), expected);
    table.reject(at, error.help("change one of them: refresh_min ≤ refresh_max ≤ max_age"));
}

/// Checks that the file contains keys for the algorithms of the issuer.
pub(super) fn keys_match(file: &KeyFile, policy: &Issuer) -> Result<(), ConfigError> {
    let content = match file {
        KeyFile::Secret(path) => files::secret_contents(path)?,
        KeyFile::Jwks(path) | KeyFile::Pem(path) => files::trusted_contents(path)?,
    };
    if file.is_secret(&content) {
        files::private(file.path(), FileCreator::Operator)?;
    }
    // Wrong algorithms have their own error.
    if policy.algorithms.is_empty() {
        return Ok(());
    }
    let error = |error| ConfigError::new(with_causes(&error), form(file));
    file.admit(&content, policy).map(drop).map_err(error)
}

fn form(file: &KeyFile) -> &'static str {
    match file {
        KeyFile::Jwks(_) => "expected a JWKS: { \"keys\": [ … ] }",
        KeyFile::Pem(_) => "expected PEM with BEGIN PUBLIC KEY or BEGIN CERTIFICATE",
        KeyFile::Secret(_) => "expected a file with the HMAC secret",
    }
}
