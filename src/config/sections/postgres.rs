//! `[store]` with PostgreSQL: how to reach it, and how the gateways that share it work together.

use std::time::Duration;

use crate::admin::SecretSource;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::files;
use crate::store::postgres::{OnStale, PasswordSource, PostgresSettings, PostgresTarget, UrlError, is_schema_name};

pub(super) const STALE: &[(&str, OnStale)] = &[("deny", OnStale::Deny), ("serve", OnStale::Serve)];

const DEFAULT_SCHEMA: &str = "bearward";

/// Keys that need `postgres`.
const POSTGRES_ONLY: &[&str] = &[
    "postgres_password_file",
    "postgres_password_env",
    "postgres_ca_file",
    "schema",
    "pool",
    "prepared",
    "max_staleness",
    "on_stale",
    "strict",
];

/// `None` without the key `postgres`.
pub(super) fn read(table: &mut Table<'_>, timeout: Duration) -> Option<PostgresSettings> {
    let target = table.take("postgres", Shape::Pattern("^postgres(ql)?://")).and_then(|value| value.parse(target));
    let settings = PostgresSettings {
        target: target.unwrap_or_else(PostgresTarget::empty),
        password: password(table),
        ca_file: table.path("postgres_ca_file"),
        schema: schema_name(table),
        pool: table.integer("pool", 4, 1..=64),
        prepared: table.boolean("prepared", true),
        timeout,
        max_staleness: table.duration(
            "max_staleness",
            Duration::from_secs(30),
            Duration::from_secs(1)..=Duration::from_hours(1),
        ),
        on_stale: table.choice("on_stale", OnStale::Deny, STALE),
        strict: table.boolean("strict", false),
    };
    if !table.has("postgres") {
        for key in POSTGRES_ONLY.iter().filter(|key| table.has(key)) {
            let error = ConfigError::new(format!("`{key}` has no effect on SQLite"), "expected `postgres` beside it");
            table.reject(key, error.help("set `postgres`, or remove this key"));
        }
        return None;
    }
    check(table, &settings);
    Some(settings)
}

fn check(table: &Table<'_>, settings: &PostgresSettings) {
    if let Some(file) = &settings.ca_file {
        table.accept("postgres_ca_file", files::trusted_contents(file));
        if !settings.target.tls {
            let error = ConfigError::new("`sslmode=disable` uses no certificates", "expected one of these keys");
            table.reject("postgres_ca_file", error.related(&table.place("postgres"), "TLS is disabled here"));
        }
    }
    if !settings.target.tls && !settings.target.hosts.iter().all(|host| host.is_local()) {
        let warning = ConfigError::new(
            "the connection to the database is not encrypted: who reads it can read sessions and their keys",
            "expected a URL without `sslmode=disable`",
        );
        table.warn(
            "postgres",
            warning.help("enable ssl in the server, and set `postgres_ca_file` if its CA is your own"),
        );
    }
    if settings.strict && settings.on_stale == OnStale::Serve {
        let error = ConfigError::new(
            "`strict` promises that no gateway accepts a revoked token, and `on_stale = \"serve\"` breaks it",
            "expected `strict` or `on_stale = \"serve\"`",
        );
        table.reject("strict", error.related(&table.place("on_stale"), "stale gateways go on serving"));
    }
}

fn target(url: &str) -> Result<PostgresTarget, ConfigError> {
    PostgresTarget::parse(url).map_err(|UrlError { found, expected, help, has_password }| {
        let error = ConfigError::new(found, expected);
        let error = match help {
            Some(help) => error.help(help),
            None => error,
        };
        if has_password { error.confidential() } else { error }
    })
}

fn schema_name(table: &mut Table<'_>) -> String {
    let name = table.take("schema", Shape::Pattern("^[a-z0-9_]{1,63}$"));
    table.default("schema", DEFAULT_SCHEMA);
    name.and_then(|value| value.parse(schema)).unwrap_or_else(|| DEFAULT_SCHEMA.to_owned())
}

fn schema(text: &str) -> Result<String, ConfigError> {
    if is_schema_name(text) {
        return Ok(text.to_owned());
    }
    Err(ConfigError::new(
        format!("{text:?} cannot be the schema"),
        "expected 1 to 63 lower-case letters, digits and underscores, for example \"bearward\"",
    )
    .help("the schema belongs to the gateway alone, so it is neither \"public\" nor one of PostgreSQL"))
}

fn password(table: &mut Table<'_>) -> Option<PasswordSource> {
    let source = files::operator_secret(table, "postgres_password_file", "postgres_password_env")?;
    Some(match source {
        SecretSource::File(path) => PasswordSource::File(path),
        SecretSource::Environment(name) => PasswordSource::Environment(name),
    })
}

/// `route.on_stale`. `is_shared`: the store is PostgreSQL. `is_strict`: `store.strict`.
pub(super) fn of_route(table: &mut Table<'_>, store: Option<&PostgresSettings>) -> Option<OnStale> {
    table.take("on_stale", Shape::choice(STALE))?;
    let on_stale = table.choice("on_stale", OnStale::Deny, STALE);
    match store {
        None => {
            let error = ConfigError::new("`on_stale` has no effect on SQLite", "expected `postgres` under [store]");
            table.reject("on_stale", error.help("a gateway with SQLite is alone, so it is never behind"));
        }
        Some(store) if store.strict && on_stale == OnStale::Serve => {
            let error = ConfigError::new(
                "`store.strict` promises that no gateway accepts a revoked token, and this route breaks it",
                "expected `on_stale = \"deny\"`, or no `strict` under [store]",
            );
            table.reject("on_stale", error);
        }
        Some(_) => {}
    }
    Some(on_stale)
}
