//! Opens one connection to the primary, and checks that its session keeps the promises of the store.
//!
//! Each host is tried in turn, beginning with the last one that worked. tokio-postgres could do that too, but it would
//! wait without a limit for a host that accepts connections and then sends nothing.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::{AsyncMessage, Config, Connection, Socket};

use crate::store::error::StoreError;
use crate::store::postgres::error::{QueryError, text};
use crate::store::postgres::session::Session;
use crate::store::postgres::settings::{Host, PasswordSource, Settings};
use crate::store::postgres::tls::{Encryption, Tls, TlsStream};
use crate::types::private_file::{self, Origin};

/// PostgreSQL 13 ended in 2025.
const MIN_VERSION: i32 = 140_000;

/// Read back after each connect, because a pooler or the settings of the role can override what was asked for.
const SESSION: &str = "select current_setting('server_version_num')::int4, current_setting('server_version'),
    current_setting('transaction_read_only') = 'on', current_setting('server_encoding'),
    current_setting('synchronous_commit'), current_setting('default_transaction_isolation'),
    current_setting('search_path'), current_setting('statement_timeout') <> '0'
    and current_setting('lock_timeout') <> '0' and current_setting('idle_in_transaction_session_timeout') <> '0'";

/// Why no connection could be opened.
#[derive(Clone, Debug)]
pub(super) struct ConnectError {
    pub(super) error: StoreError,
    /// If true, it will fail again until an operator has changed something.
    pub(super) is_permanent: bool,
}

/// Opens connections, one after the other.
pub(super) struct Connector {
    settings: Settings,
    encryption: Encryption,
    /// `application_name` in `pg_stat_activity`.
    name: String,
    /// Number of the next connection.
    next: AtomicU64,
    /// Index of the host that worked last.
    good: AtomicUsize,
}

type Driven = Connection<Socket, TlsStream<Socket>>;

impl Connector {
    /// `tls` may only be `None` if `settings.target` has no TLS. `replica` is the name of this gateway.
    pub(super) fn new(settings: Settings, tls: Option<Tls>, replica: &str) -> Self {
        let name = format!("bearward/{replica}");
        Connector { settings, encryption: Encryption(tls), name, next: AtomicU64::new(1), good: AtomicUsize::new(0) }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A session, and the task that drives it. The task ends with the connection.
    pub(super) async fn connect(&self) -> Result<(Session, impl Future<Output = ()> + Send + use<>), ConnectError> {
        let hosts = &self.settings.target.hosts;
        let (mut errors, mut is_permanent) = (Vec::new(), true);
        for index in self.good.load(Ordering::Relaxed)..self.good.load(Ordering::Relaxed) + hosts.len() {
            let index = index % hosts.len();
            let Some(host) = hosts.get(index) else { continue };
            // For the TCP connection, the handshakes and the first statement together.
            let limit = 2 * self.settings.target.connect_timeout;
            let connected = timeout(limit, self.connect_to(host)).await.unwrap_or_else(|_| {
                let late = format!("no response within {limit:?}");
                Err(ConnectError { error: StoreError::new(late), is_permanent: false })
            });
            match connected {
                Ok(connected) => {
                    self.good.store(index, Ordering::Relaxed);
                    return Ok(connected);
                }
                Err(failed) => {
                    is_permanent &= failed.is_permanent;
                    errors.push(format!("{host}: {}", failed.error));
                }
            }
        }
        Err(ConnectError { error: StoreError::new(errors.join("; ")), is_permanent })
    }

    async fn connect_to(
        &self,
        host: &Host,
    ) -> Result<(Session, impl Future<Output = ()> + Send + use<>), ConnectError> {
        let config = self.config(host)?;
        let (client, connection) = config.connect(self.encryption.clone()).await.map_err(refused)?;
        let session = Session::new(client, self.next.fetch_add(1, Ordering::Relaxed), self.settings.prepared);
        let mut connection = connection;
        // Notices before the first statement concern the server, not a change.
        tokio::select! {
            () = drive_until_closed(&mut connection, &session, false) => {
                return Err(transient("the server closed the connection"));
            }
            checked = self.check(&session) => checked?,
        }
        let driven = session.clone();
        Ok((session, async move {
            tokio::select! {
                () = drive_until_closed(&mut connection, &driven, true) => {}
                () = driven.closing() => {}
            }
            driven.close();
        }))
    }

    fn config(&self, host: &Host) -> Result<Config, ConnectError> {
        let (settings, target) = (&self.settings, &self.settings.target);
        let mut config = Config::new();
        match host {
            Host::Tcp { name, port } => config.host(name).port(*port),
            Host::Unix { folder, port } => config.host_path(folder).port(*port),
        };
        config.user(&target.user).dbname(&target.database).application_name(&self.name);
        config.ssl_mode(if target.tls { SslMode::Require } else { SslMode::Disable });
        if matches!(host, Host::Unix { .. }) {
            config.ssl_mode(SslMode::Disable);
        } else if target.needs_channel_binding {
            config.channel_binding(ChannelBinding::Require);
        }
        config.connect_timeout(target.connect_timeout).tcp_user_timeout(Duration::from_secs(5));
        config.keepalives_idle(Duration::from_secs(10)).keepalives_interval(Duration::from_secs(3));
        config.keepalives_retries(3);
        if let Some(source) = &settings.password {
            config.password(password(source)?);
        }
        config.options(options(&settings.schema));
        Ok(config)
    }

    /// Fails if the server or the session cannot keep the promises of the store.
    async fn check(&self, session: &Session) -> Result<(), ConnectError> {
        let rows = session.first_query(SESSION, 2 * self.settings.target.connect_timeout).await;
        let rows = rows.map_err(|error| ConnectError {
            is_permanent: matches!(error, QueryError::Rejected(_)),
            error: error.into_store_error(),
        })?;
        let row = rows.first().ok_or_else(|| transient("the server did not report its settings"))?;
        let checked = Reported::read(row).map_err(|error| transient(&error.message))?;
        checked.check(&self.settings.schema)
    }
}

/// What the server reports about a session.
struct Reported {
    version: i32,
    version_text: String,
    is_read_only: bool,
    encoding: String,
    synchronous_commit: String,
    isolation: String,
    search_path: String,
    has_timeouts: bool,
}

impl Reported {
    fn read(row: &tokio_postgres::Row) -> Result<Reported, StoreError> {
        Ok(Reported {
            version: row.try_get(0)?,
            version_text: row.try_get(1)?,
            is_read_only: row.try_get(2)?,
            encoding: row.try_get(3)?,
            synchronous_commit: row.try_get(4)?,
            isolation: row.try_get(5)?,
            search_path: row.try_get(6)?,
            has_timeouts: row.try_get(7)?,
        })
    }

    fn check(&self, schema: &str) -> Result<(), ConnectError> {
        let permanent = |text: String| Err(ConnectError { error: StoreError::new(text), is_permanent: true });
        if self.version < MIN_VERSION {
            return permanent(format!("PostgreSQL {} is too old; the gateway needs 14 or later", self.version_text));
        }
        if self.is_read_only {
            return Err(transient("this server is read-only, so it is not the primary"));
        }
        if self.encoding != "UTF8" {
            return permanent(format!(
                "the database has the encoding {}; create it with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
                self.encoding
            ));
        }
        if matches!(self.synchronous_commit.as_str(), "off" | "local") {
            return permanent(format!(
                "synchronous_commit is {} for this user, so that a crash can lose revocations; \
                 set it with ALTER ROLE … SET synchronous_commit = on",
                self.synchronous_commit
            ));
        }
        if self.isolation != "read committed" {
            return permanent(self.overridden("default_transaction_isolation", &self.isolation, "'read committed'"));
        }
        if self.search_path.split(',').next().map(|first| first.trim().trim_matches('"')) != Some(schema) {
            return permanent(self.overridden("search_path", &self.search_path, schema));
        }
        if !self.has_timeouts {
            return permanent(self.overridden("statement_timeout or lock_timeout", "0", "5000"));
        }
        Ok(())
    }

    /// The session has another value than the gateway has asked for.
    fn overridden(&self, name: &str, value: &str, wanted: &str) -> String {
        format!(
            "a connection pooler ignores the settings of the gateway: {name} is {value}; \
             set it with ALTER ROLE … SET {name} = {wanted}"
        )
    }
}

/// Ends when the connection is closed, or when a change may not be durable.
async fn drive_until_closed(connection: &mut Driven, session: &Session, is_in_use: bool) {
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(_))) => session.notify(),
            // The server has stopped waiting for a standby and then reports success. The change may be lost with this
            // server, so its outcome is unknown.
            Some(Ok(AsyncMessage::Notice(notice)))
                if is_in_use && matches!(notice.code().code(), "01000" | "57P01") =>
            {
                tracing::warn!(notice = notice.message(), "the database does not promise that a change is durable");
                return;
            }
            Some(Ok(AsyncMessage::Notice(notice))) => {
                tracing::debug!(severity = notice.severity(), notice = notice.message(), "a notice of the database");
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(error = text(&error), "a connection to the database failed");
                return;
            }
            None => return,
        }
    }
}

/// The settings of each session. `synchronous_commit` is not among them, so that an operator can raise it.
///
/// Each statement finds its rows by an index and is planned once: a plan of its own for each execution takes as long as
/// the execution, and a plan that was made while a table was small would read the whole table when it has grown.
/// Without `jit=off`, the server would compile each statement that must read a whole table.
fn options(schema: &str) -> String {
    format!(
        "-c search_path={schema},pg_temp -c default_transaction_isolation=read\\ committed -c statement_timeout=4000 \
         -c lock_timeout=2000 -c idle_in_transaction_session_timeout=2000 -c timezone=UTC \
         -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off"
    )
}

fn password(source: &PasswordSource) -> Result<Vec<u8>, ConnectError> {
    let read = match source {
        PasswordSource::File(path) => read_password(path),
        PasswordSource::Environment(name) => {
            std::env::var(name).map(String::into_bytes).map_err(|error| error.to_string())
        }
    };
    read.map_err(|error| ConnectError {
        error: StoreError::new(format!("cannot read the password from {source}: {error}")),
        is_permanent: true,
    })
}

/// Read at each connect, so each time others must not be able to read or replace the file. The line end after the
/// password does not belong to it.
fn read_password(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = private_file::read(path, Origin::Operator).map_err(|error| error.to_string())?;
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    Ok(bytes.get(..end).unwrap_or_default().to_vec())
}

fn transient(text: &str) -> ConnectError {
    ConnectError { error: StoreError::new(text), is_permanent: false }
}

/// The server or the network rejected the connection.
fn refused(error: tokio_postgres::Error) -> ConnectError {
    // Wrong passwords, users, databases and rights; a wrong certificate is none of these, because it may be renewed.
    let is_permanent = error.code().is_some_and(|code| matches!(code.code().get(..2), Some("28" | "3D" | "42" | "08")));
    ConnectError { error: StoreError::new(text(&error)), is_permanent }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported() -> Reported {
        Reported {
            version: MIN_VERSION,
            version_text: "14.0".into(),
            is_read_only: false,
            encoding: "UTF8".into(),
            synchronous_commit: "on".into(),
            isolation: "read committed".into(),
            search_path: "bearward, pg_temp".into(),
            has_timeouts: true,
        }
    }

    #[test]
    fn a_session_that_keeps_the_promises_is_used() {
        for usable in [
            reported(),
            Reported { search_path: "\"bearward\"".into(), ..reported() },
            Reported { synchronous_commit: "remote_apply".into(), ..reported() },
        ] {
            assert!(usable.check("bearward").is_ok());
        }
    }

    #[test]
    fn a_session_that_breaks_a_promise_is_rejected_with_advice() {
        for (broken, is_permanent, says) in [
            (Reported { version: MIN_VERSION - 1, version_text: "13.9".into(), ..reported() }, true, "13.9 is too old"),
            (Reported { is_read_only: true, ..reported() }, false, "not the primary"),
            (Reported { encoding: "LATIN1".into(), ..reported() }, true, "the encoding LATIN1"),
            (Reported { synchronous_commit: "off".into(), ..reported() }, true, "synchronous_commit is off"),
            (Reported { synchronous_commit: "local".into(), ..reported() }, true, "synchronous_commit is local"),
            (
                Reported { isolation: "serializable".into(), ..reported() },
                true,
                "default_transaction_isolation is serializable; set it with ALTER ROLE … SET \
                 default_transaction_isolation = 'read committed'",
            ),
            (Reported { search_path: "public, bearward".into(), ..reported() }, true, "search_path = bearward"),
            (Reported { has_timeouts: false, ..reported() }, true, "statement_timeout or lock_timeout is 0"),
        ] {
            let error = broken.check("bearward").expect_err(says);
            assert_eq!(error.is_permanent, is_permanent, "{says}");
            assert!(error.error.message.contains(says), "{}", error.error);
        }
    }

    #[test]
    fn a_password_that_cannot_be_read_is_named_by_its_place() {
        for (source, place) in [
            (PasswordSource::File("/no/such/password".into()), "/no/such/password"),
            (PasswordSource::Environment("NO_SUCH_PASSWORD".into()), "the environment variable NO_SUCH_PASSWORD"),
        ] {
            let error = password(&source).expect_err(place);
            assert!(error.is_permanent);
            let text = error.error.message;
            assert!(text.starts_with(&format!("cannot read the password from {place}: ")), "{text}");
        }
    }

    #[test]
    fn line_ends_after_a_password_do_not_belong_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        for (content, password) in [
            ("secret", "secret"),
            ("secret\n", "secret"),
            (" two words\r\n\n", " two words"),
            ("a\nb\n", "a\nb"),
            ("\n", ""),
        ] {
            let path = folder.path().join("password");
            crate::types::secret::write_private(&path, content.as_bytes()).expect("written");
            assert_eq!(read_password(&path), Ok(password.as_bytes().to_vec()), "{content:?}");
            std::fs::remove_file(&path).expect("removed");
        }
    }
}
