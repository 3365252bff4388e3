//! `[store]` with PostgreSQL.

use std::time::Duration;

use bearward::config::{self, Database, Probe};
use bearward::store::postgres::{Host, OnStale, PostgresSettings};
use bearward::types::secret;
use tempfile::TempDir;

use super::{check, parse, with_upstream};

fn settings(store: &str) -> PostgresSettings {
    let text = with_upstream(&format!("[store]\n{store}"));
    let config = parse(&text).unwrap_or_else(|errors| panic!("{store}: {errors}"));
    match config.store.database {
        Database::Postgres(settings) => *settings,
        Database::Sqlite(file) => panic!("{store}: {}", file.display()),
    }
}

fn tcp(name: &str, port: u16) -> Host {
    Host::Tcp { name: name.into(), port }
}

#[test]
fn a_url_without_more_is_encrypted_and_verified() {
    let settings = settings("postgres = \"postgres://app@db.internal/tokens\"");
    assert_eq!(settings.target.hosts, [tcp("db.internal", 5432)]);
    assert_eq!((settings.target.user.as_str(), settings.target.database.as_str()), ("app", "tokens"));
    assert!(settings.target.tls && settings.password.is_none() && settings.ca_file.is_none());
    assert_eq!((settings.schema.as_str(), settings.pool, settings.prepared), ("bearward", 4, true));
    assert_eq!((settings.max_staleness, settings.on_stale), (Duration::from_secs(30), OnStale::Deny));
    assert!(!settings.strict);
}

#[test]
fn a_url_names_hosts_and_sockets_in_each_form() {
    for (url, hosts) in [
        ("postgresql://a@h1:1,h2,[::1]:3/d", vec![tcp("h1", 1), tcp("h2", 5432), tcp("::1", 3)]),
        ("postgres://a@%2Frun%2Fpg:7/d", vec![Host::Unix { folder: "/run/pg".into(), port: 7 }]),
        ("postgres://a@/d?host=/run/pg", vec![Host::Unix { folder: "/run/pg".into(), port: 5432 }]),
        ("postgres://a@h/d?sslmode=require&target_session_attrs=read-write&connect_timeout=3", vec![tcp("h", 5432)]),
    ] {
        let target = settings(&format!("postgres = \"{url}\"")).target;
        assert_eq!(target.hosts, hosts, "{url}");
        assert!(target.tls, "{url}");
    }
    let target = settings("postgres = \"postgres://a%40b@h/d%2De?sslmode=disable\"").target;
    assert!(!target.tls);
    assert_eq!((target.user.as_str(), target.database.as_str()), ("a@b", "d-e"));
}

#[test]
fn channel_binding_is_required_only_if_the_url_says_so() {
    for (query, is_required) in [
        ("", false),
        ("?channel_binding=require", true),
        ("?channel_binding=prefer", false),
        ("?channel_binding=require&channel_binding=prefer", false),
    ] {
        let target = settings(&format!("postgres = \"postgres://a@h/d{query}\"")).target;
        assert_eq!(target.needs_channel_binding, is_required, "{query}");
    }
}

#[test]
fn an_unusable_url_is_rejected() {
    check(&[
        ("[store]\npostgres = \"db\"", "store.postgres", (2, 12), "postgres://bearward@db.example:5432/bearward"),
        ("[store]\npostgres = \"mysql://a@h/d\"", "store.postgres", (2, 12), "not the URL of a PostgreSQL database"),
        ("[store]\npostgres = \"postgres://h/d\"", "store.postgres", (2, 12), "has no user"),
        ("[store]\npostgres = \"postgres://a@/d\"", "store.postgres", (2, 12), "has no host"),
        ("[store]\npostgres = \"postgres://a@h\"", "store.postgres", (2, 12), "has no name of a database"),
        ("[store]\npostgres = \"postgres://a@h:0/d\"", "store.postgres", (2, 12), "1 to 65535"),
        ("[store]\npostgres = \"postgres://a@h:x/d\"", "store.postgres", (2, 12), "1 to 65535"),
        ("[store]\npostgres = \"postgres://a@h h/d\"", "store.postgres", (2, 12), "no name of a host"),
        ("[store]\npostgres = \"postgres://a@h/%zz\"", "store.postgres", (2, 12), "hexadecimal"),
        ("[store]\npostgres = \"postgres://a@h/d?x=1\"", "store.postgres", (2, 12), "`x` is not supported"),
        ("[store]\npostgres = \"postgres://a@h/d?options=-c\"", "store.postgres", (2, 12), "ALTER ROLE"),
        ("[store]\npostgres = \"postgres://a@h/d?sslrootcert=f\"", "store.postgres", (2, 12), "postgres_ca_file"),
        ("[store]\npostgres = \"postgres://a@h/d?connect_timeout=0\"", "store.postgres", (2, 12), "1 to 60"),
        (
            "[store]\npostgres = \"postgres://a@h/d?target_session_attrs=any\"",
            "store.postgres",
            (2, 12),
            "target_session_attrs=read-write",
        ),
        (
            "[store]\npostgres = \"postgres://a@h/d?sslmode=disable&channel_binding=require\"",
            "store.postgres",
            (2, 12),
            "needs TLS",
        ),
    ]);
}

#[test]
fn no_mode_can_fall_back_to_cleartext() {
    check(&[
        (
            "[store]\npostgres = \"postgres://a@h/d?sslmode=prefer\"",
            "store.postgres",
            (2, 12),
            "fall back to cleartext",
        ),
        ("[store]\npostgres = \"postgres://a@h/d?sslmode=allow\"", "store.postgres", (2, 12), "fall back to cleartext"),
        ("[store]\npostgres = \"postgres://a@h/d?sslmode=\"", "store.postgres", (2, 12), "sslmode=disable"),
    ]);
}

#[test]
fn a_password_in_the_url_is_rejected_and_never_shown() {
    for url in
        ["postgres://a:hunter2@h/d", "postgres://a@h/d?password=hunter2", "postgres:/a:hunter2@h/d", "a:hunter2@h"]
    {
        let errors = parse(&with_upstream(&format!("[store]\npostgres = \"{url}\""))).expect_err(url);
        assert_eq!(errors.all()[0].place.key, "store.postgres");
        for shown in [errors.render(false), errors.to_string(), errors.json()] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
    check(&[
        ("[store]\npostgres = \"postgres://a:b@h/d\"", "store.postgres", (2, 12), "`postgres_password_file`"),
        ("[store]\npostgres = \"postgres://a@h/d?password=b\"", "store.postgres", (2, 12), "`postgres_password_file`"),
    ]);
}

#[test]
fn invalid_values_beside_the_url_are_rejected() {
    check(&[
        ("[store]\npostgres = \"postgres://a@h/d\"\nsqlite = \"a.db\"", "store.sqlite", (3, 10), "two databases"),
        ("[store]\npostgres = \"postgres://a@h/d\"\nschema = \"public\"", "store.schema", (3, 10), "the gateway alone"),
        ("[store]\npostgres = \"postgres://a@h/d\"\nschema = \"pg_x\"", "store.schema", (3, 10), "lower-case letters"),
        ("[store]\npostgres = \"postgres://a@h/d\"\nschema = \"a b\"", "store.schema", (3, 10), "lower-case letters"),
        ("[store]\npostgres = \"postgres://a@h/d\"\nschema = \"1a\"", "store.schema", (3, 10), "lower-case letters"),
        ("[store]\npostgres = \"postgres://a@h/d\"\npool = 0", "store.pool", (3, 8), "from 1 to 64"),
        ("[store]\npostgres = \"postgres://a@h/d\"\npool = 65", "store.pool", (3, 8), "from 1 to 64"),
        (
            "[store]\npostgres = \"postgres://a@h/d\"\nmax_staleness = \"999ms\"",
            "store.max_staleness",
            (3, 17),
            "1s to 1h",
        ),
        (
            "[store]\npostgres = \"postgres://a@h/d\"\nmax_staleness = \"61m\"",
            "store.max_staleness",
            (3, 17),
            "1s to 1h",
        ),
        (
            "[store]\npostgres = \"postgres://a@h/d\"\non_stale = \"x\"",
            "store.on_stale",
            (3, 12),
            "\"deny\", \"serve\"",
        ),
        (
            "[store]\npostgres = \"postgres://a@h/d\"\non_stale = \"serve\"\nstrict = true",
            "store.strict",
            (4, 10),
            "no gateway accepts a revoked token",
        ),
        (
            "[store]\npostgres = \"postgres://a@h/d\"\npostgres_password_file = \"no.txt\"",
            "store.postgres_password_file",
            (3, 26),
            "does not exist",
        ),
        (
            "[store]\npostgres = \"postgres://a@h/d\"\npostgres_password_env = \"NO_SUCH_VARIABLE\"",
            "store.postgres_password_env",
            (3, 25),
            "is not set",
        ),
        (
            "[store]\npostgres = \"postgres://a@h/d\"\npostgres_password_env = \"PATH\"\n\
             postgres_password_file = \"Cargo.toml\"",
            "store.postgres_password_env",
            (3, 25),
            "two sources",
        ),
        (
            "[store]\npostgres = \"postgres://a@h/d\"\npostgres_ca_file = \"no.pem\"",
            "store.postgres_ca_file",
            (3, 20),
            "does not exist",
        ),
        (
            "[store]\npostgres = \"postgres://a@localhost/d?sslmode=disable\"\npostgres_ca_file = \"Cargo.toml\"",
            "store.postgres_ca_file",
            (3, 20),
            "uses no certificates",
        ),
    ]);
}

#[test]
fn keys_of_postgresql_need_its_url() {
    check(&[
        ("[store]\nschema = \"a\"", "store.schema", (2, 10), "expected `postgres`"),
        ("[store]\nstrict = true", "store.strict", (2, 10), "expected `postgres`"),
        ("[store]\npostgres_password_env = \"PATH\"", "store.postgres_password_env", (2, 25), "expected `postgres`"),
        ("[[route]]\npath = \"/\"\non_stale = \"serve\"", "route[0].on_stale", (3, 12), "expected `postgres`"),
    ]);
}

#[test]
fn a_route_can_serve_while_the_store_is_stale() {
    let text = |store: &str, route: &str| {
        with_upstream(&format!("[store]\npostgres = \"postgres://a@h/d\"\n{store}\n[[route]]\npath = \"/\"\n{route}"))
    };
    for (route, expected) in
        [("", None), ("on_stale = \"serve\"", Some(OnStale::Serve)), ("on_stale = \"deny\"", Some(OnStale::Deny))]
    {
        assert_eq!(parse(&text("", route)).expect("valid").routes[0].on_stale, expected);
    }
    let errors = parse(&text("strict = true", "on_stale = \"serve\"")).expect_err("strict excludes it");
    assert_eq!(errors.all()[0].place.key, "route[0].on_stale");
    parse(&text("strict = true", "on_stale = \"deny\"")).expect("valid");
}

#[test]
fn cleartext_over_a_network_is_warned_about() {
    let folder = TempDir::new().expect("a folder");
    for (host, warned) in [("127.0.0.1", false), ("localhost,[::1]", false), ("%2Frun", false), ("10.0.0.1", true)] {
        let text = with_upstream(&format!("[store]\npostgres = \"postgres://a@{host}/d?sslmode=disable\""));
        let (_, warnings) = config::parse_with_warnings(&text, folder.path(), Probe::None).expect("valid");
        assert_eq!(warnings.all().iter().any(|warning| warning.place.key == "store.postgres"), warned, "{host}");
    }
}

/// With SQLite, both are beside the database.
#[test]
fn files_of_this_gateway_are_beside_the_configuration() {
    let folder = TempDir::new().expect("a folder");
    secret::write_private(&folder.path().join("password"), b"secret\n").expect("written");
    let text = "[store]\npostgres = \"postgres://a@h/d\"\npostgres_password_file = \"password\"";
    let config = config::parse(&with_upstream(text), folder.path(), Probe::None).expect("valid");
    assert_eq!(config.admin.socket, folder.path().join("bearward.admin"));
    let audit = bearward::telemetry::audit_log::AuditLogTarget::File(folder.path().join("audit.jsonl"));
    assert_eq!(config.audit.target, audit);
}
