//! The place of the database, and the settings of its use.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::store::postgres::primary::Primary;

/// Maximum length of a name in PostgreSQL.
const MAX_NAME: usize = 63;
const DEFAULT_PORT: u16 = 5432;

/// `[store]` with PostgreSQL.
#[derive(Clone, Debug, PartialEq)]
pub struct PostgresSettings {
    pub target: PostgresTarget,
    pub password: Option<PasswordSource>,
    /// `store.postgres_ca_file`. `None`: the CA certificates of the system.
    pub ca_file: Option<PathBuf>,
    /// `store.schema`: contains the tables. One that [`is_schema_name`] accepts.
    pub schema: String,
    /// `store.pool`: connections for changes. Each gateway has three more: see `connections`.
    pub pool: usize,
    /// `store.prepared`: false behind a connection pooler that forgets prepared statements.
    pub prepared: bool,
    /// `timeouts.store`: how long a call waits for its result, and so how long it may be repeated.
    pub timeout: Duration,
    /// `store.max_staleness`: how old the knowledge of revocations may be.
    pub max_staleness: Duration,
    /// `store.on_stale`
    pub on_stale: OnStale,
    /// `store.strict`: a revocation waits for all gateways.
    pub strict: bool,
}

/// What happens to a request while the knowledge of revocations is too old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStale {
    /// It gets 503.
    #[default]
    Deny,
    /// It is served. A token that was revoked in the meantime is accepted.
    Serve,
}

/// Where the password comes from. It is read for each new connection, so that it can be changed without a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    File(PathBuf),
    Environment(String),
}

impl fmt::Display for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PasswordSource::File(path) => write!(f, "{}", path.display()),
            PasswordSource::Environment(name) => write!(f, "the environment variable {name}"),
        }
    }
}

/// `store.postgres`: the servers, of which one is the primary, and the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresTarget {
    /// At least one.
    pub hosts: Vec<Host>,
    pub user: String,
    pub database: String,
    /// False only if the URL says `sslmode=disable`.
    pub tls: bool,
    /// `channel_binding=require`
    pub needs_channel_binding: bool,
    /// For one server, until the session is usable.
    pub connect_timeout: Duration,
    /// Which of the hosts is the primary. The copies of a target share it.
    pub(super) primary: Arc<Primary>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Tcp {
        name: String,
        port: u16,
    },
    /// The folder of a Unix socket, which is never encrypted.
    Unix {
        folder: PathBuf,
        port: u16,
    },
}

impl Host {
    /// Returns true if what is sent to this host does not leave the machine.
    pub fn is_local(&self) -> bool {
        match self {
            Host::Unix { .. } => true,
            Host::Tcp { name, .. } => {
                name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Host::Tcp { name, port } => write!(f, "{name}:{port}"),
            Host::Unix { folder, port } => write!(f, "{}/.s.PGSQL.{port}", folder.display()),
        }
    }
}

/// Without the user, and never with a password: the URL has none.
impl fmt::Display for PostgresTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        write!(f, "PostgreSQL database \"{}\" at {}", self.database, hosts.join(", "))
    }
}

/// Names that need no quotes, so that they can stand in session settings.
pub fn is_schema_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let first = name.bytes().next().is_some_and(letter);
    let rest = name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit());
    first
        && rest
        && name.len() <= MAX_NAME
        && !name.starts_with("pg_")
        && name != "public"
        && name != "information_schema"
}

/// What is wrong with a URL: what was found, what is expected, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError {
    pub found: String,
    pub expected: &'static str,
    pub help: Option<&'static str>,
    /// If true, the URL contains a password and must not be shown.
    pub has_password: bool,
}

impl UrlError {
    fn new(found: impl Into<String>, expected: &'static str) -> Self {
        UrlError { found: found.into(), expected, help: None, has_password: false }
    }

    fn help(self, help: &'static str) -> Self {
        UrlError { help: Some(help), ..self }
    }
}

const EXAMPLE: &str = "expected a URL such as \"postgres://bearward@db.example:5432/bearward\"";

impl PostgresTarget {
    /// Without a host, a user and a database.
    pub fn empty() -> PostgresTarget {
        PostgresTarget {
            hosts: Vec::new(),
            user: String::new(),
            database: String::new(),
            tls: true,
            needs_channel_binding: false,
            connect_timeout: Duration::from_secs(2),
            primary: Arc::default(),
        }
    }

    /// Reads `postgres://user@host:5432,host2:5432/database?key=value`. Reads only what the gateway can promise: a key
    /// that would weaken the encryption or the session is an error.
    pub fn parse(url: &str) -> Result<PostgresTarget, UrlError> {
        let has_password = seems_to_have_password(url);
        Self::read(url).map_err(|error| UrlError { has_password, ..error })
    }

    fn read(url: &str) -> Result<PostgresTarget, UrlError> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| UrlError::new("this is not the URL of a PostgreSQL database", EXAMPLE))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        if user.contains(':') {
            return Err(password_in_url());
        }
        let mut target = PostgresTarget {
            hosts: hosts.split(',').filter(|host| !host.is_empty()).map(host).collect::<Result<_, _>>()?,
            user: decoded(user)?,
            database: decoded(database)?,
            ..PostgresTarget::empty()
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            target.set(key, &decoded(value)?)?;
        }
        target.complete()
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), UrlError> {
        match (key, value) {
            ("host", _) => self.hosts = value.split(',').map(host_name).collect::<Result<_, _>>()?,
            // The gateway verifies the certificate and the name in all of these modes.
            ("sslmode", "verify-full" | "verify-ca" | "require") => self.tls = true,
            ("sslmode", "disable") => self.tls = false,
            ("sslmode", _) => {
                return Err(UrlError::new(
                    format!("sslmode={value} can fall back to cleartext"),
                    "expected sslmode=verify-full, which is the default, or sslmode=disable",
                ));
            }
            ("target_session_attrs", "read-write" | "primary") => {}
            ("target_session_attrs", _) => {
                return Err(UrlError::new(
                    format!("target_session_attrs={value} finds servers that cannot write"),
                    "expected target_session_attrs=read-write, which is the default",
                ));
            }
            ("channel_binding", "require") => self.needs_channel_binding = true,
            ("channel_binding", "prefer") => self.needs_channel_binding = false,
            ("connect_timeout", _) => {
                let seconds = value.parse().ok().filter(|seconds| (1..=60).contains(seconds));
                let invalid = || UrlError::new(format!("connect_timeout={value}"), "expected seconds from 1 to 60");
                self.connect_timeout = Duration::from_secs(seconds.ok_or_else(invalid)?);
            }
            ("password", _) => return Err(password_in_url()),
            ("sslrootcert", _) => {
                return Err(UrlError::new("`sslrootcert` is not read", "expected `postgres_ca_file` in [store]"));
            }
            ("options" | "application_name", _) => {
                return Err(UrlError::new(
                    format!("`{key}` is set by the gateway itself"),
                    "expected a URL without it",
                )
                .help("set further settings on the user, with ALTER ROLE … SET"));
            }
            _ => {
                return Err(UrlError::new(
                    format!("`{key}` is not supported here"),
                    "expected host, sslmode, channel_binding, connect_timeout or target_session_attrs",
                ));
            }
        }
        Ok(())
    }

    fn complete(self) -> Result<PostgresTarget, UrlError> {
        if self.hosts.is_empty() {
            return Err(UrlError::new("the URL has no host", EXAMPLE)
                .help("for a Unix socket: \"postgres://bearward@/bearward?host=/run/postgresql\""));
        }
        if self.user.is_empty() {
            return Err(UrlError::new("the URL has no user", EXAMPLE));
        }
        if self.database.is_empty() || self.database.contains('/') {
            return Err(UrlError::new("the URL has no name of a database", EXAMPLE));
        }
        if self.needs_channel_binding && !self.tls {
            return Err(UrlError::new(
                "channel_binding=require needs TLS, and sslmode=disable excludes it",
                "expected one of them",
            ));
        }
        Ok(self)
    }
}

/// Also in a text that is no valid URL, so that no report shows it.
fn seems_to_have_password(url: &str) -> bool {
    let user = url.rsplit_once('@').map_or("", |(before, _)| before);
    user.rsplit('/').next().is_some_and(|user| user.contains(':')) || url.contains("password")
}

fn password_in_url() -> UrlError {
    UrlError::new("the URL contains a password", "expected a URL without a password")
        .help("write the password to a file that only the gateway can read, and name it in `postgres_password_file`")
}

/// A host with an optional port, as between `@` and `/`.
fn host(text: &str) -> Result<Host, UrlError> {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':')),
        None => text.rsplit_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let invalid = || UrlError::new(format!("\"{}\" is no port", port.unwrap_or_default()), "expected 1 to 65535");
    let port = port.map(|port| port.parse().ok().filter(|port| *port > 0).ok_or_else(invalid)).transpose()?;
    let port = port.unwrap_or(DEFAULT_PORT);
    Ok(match host_name(&decoded(name)?)? {
        Host::Tcp { name, .. } => Host::Tcp { name, port },
        Host::Unix { folder, .. } => Host::Unix { folder, port },
    })
}

fn host_name(name: &str) -> Result<Host, UrlError> {
    if name.starts_with('/') {
        return Ok(Host::Unix { folder: name.into(), port: DEFAULT_PORT });
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'%');
    if name.is_empty() || !name.bytes().all(allowed) {
        return Err(UrlError::new(format!("{name:?} is no name of a host"), EXAMPLE));
    }
    Ok(Host::Tcp { name: name.to_owned(), port: DEFAULT_PORT })
}

/// Replaces `%2F` and its like.
fn decoded(text: &str) -> Result<String, UrlError> {
    let invalid = || UrlError::new("the URL has an invalid % sequence", "expected % and two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(invalid);
                let value = digit()? * 16 + digit()?;
                u8::try_from(value).ok().filter(|byte| *byte != 0).ok_or_else(invalid)?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_shown_with_its_servers_and_without_its_user() {
        let shown = |url| PostgresTarget::parse(url).expect("valid").to_string();
        assert_eq!(
            shown("postgres://alice@[::1]:5433,db.example/d"),
            "PostgreSQL database \"d\" at [::1]:5433, db.example:5432"
        );
        assert_eq!(
            shown("postgres://alice@/d?host=/run/postgresql"),
            "PostgreSQL database \"d\" at /run/postgresql/.s.PGSQL.5432"
        );
    }

    #[test]
    fn an_invalid_url_is_shown_unless_it_has_a_password() {
        for (url, has_password) in [
            ("postgres://db.example/d", false),
            ("postgres://alice@db.example:none/d", false),
            ("postgres://alice:secret@db.example/d", true),
            ("alice:secret@db.example", true),
            ("postgres://alice@db.example/d?password=secret", true),
        ] {
            assert_eq!(PostgresTarget::parse(url).expect_err(url).has_password, has_password, "{url}");
        }
    }
}
