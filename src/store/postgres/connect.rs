//! Opens one connection to the primary. `session_check` decides whether it is used.
//!
//! Each host is tried in turn, beginning with the last one that worked. tokio-postgres could do that too, but it would
//! wait without a limit for a host that accepts connections and then sends nothing. A server is not used if another one
//! was promoted after it: all hosts are asked before one of them is used, and by `watch` from then on.

use std::future::{Future, poll_fn};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::{AsyncMessage, Config, Connection, Socket};

use crate::store::error::{FailureKind, StoreError};
use crate::store::postgres::error::{ConnectError, QueryError, kind, silent, text};
use crate::store::postgres::primary::{Answer, Primary, SUPERSEDED};
use crate::store::postgres::session::Session;
use crate::store::postgres::session_check::{check, timeline};
use crate::store::postgres::settings::{Host, PasswordSource, PostgresSettings};
use crate::store::postgres::timeline::Timeline;
use crate::store::postgres::tls::{Encryption, Tls, TlsStream};
use crate::types::private_file::{self, FileCreator};

/// Opens connections, one after the other.
pub(super) struct Connector {
    settings: PostgresSettings,
    encryption: Encryption,
    /// `application_name` in `pg_stat_activity`.
    name: String,
    /// Number of the next connection.
    next: AtomicU64,
}

type Driven = Connection<Socket, TlsStream<Socket>>;

impl Connector {
    /// `tls` may only be `None` if `settings.target` has no TLS. `replica` is the name of this gateway.
    pub(super) fn new(settings: PostgresSettings, tls: Option<Tls>, replica: &str) -> Self {
        let name = format!("bearward/{replica}");
        Connector { settings, encryption: Encryption(tls), name, next: AtomicU64::new(1) }
    }

    pub(super) fn settings(&self) -> &PostgresSettings {
        &self.settings
    }

    fn hosts(&self) -> &[Host] {
        &self.settings.target.hosts
    }

    fn primary(&self) -> &Primary {
        &self.settings.target.primary
    }

    /// A session, and the task that drives it. The task ends with the connection.
    pub(super) async fn connect(&self) -> Result<(Session, impl Future<Output = ()> + Send + use<>), ConnectError> {
        self.look_first().await;
        let hosts = self.hosts();
        let mut errors = Vec::new();
        let mut is_permanent = true;
        let mut last = FailureKind::Unreachable;
        let first = self.primary().host();
        for index in first..first + hosts.len() {
            let index = index % hosts.len();
            let Some(host) = hosts.get(index) else { continue };
            // For the TCP connection, the handshakes and the first statements together.
            let limit = 2 * self.settings.target.connect_timeout;
            let connected = timeout(limit, self.connect_to(index)).await;
            let late = |_| Err(ConnectError { error: silent(limit), is_permanent: false });
            match connected.unwrap_or_else(late) {
                Ok(connected) => {
                    self.primary().set_host(index);
                    return Ok(connected);
                }
                Err(failed) => {
                    is_permanent &= failed.is_permanent;
                    last = failed.error.kind;
                    errors.push(format!("{host}: {}", failed.error));
                }
            }
        }
        Err(ConnectError { error: StoreError::new(errors.join("; ")).of_kind(last), is_permanent })
    }

    /// Asks all hosts before one of them is used: the first one that accepts changes may have been the primary before.
    async fn look_first(&self) {
        // With one host, the operator or a proxy has decided which server it is.
        if self.hosts().len() > 1 {
            // Side by side, so that hosts that hang take no longer than one of them.
            let answers = join_all((0..self.hosts().len()).map(|host| Box::pin(self.ask(host))));
            let look = async { self.primary().begin(self.hosts(), &answers.await) };
            self.primary().look_once(look).await;
        }
    }

    /// Over a connection that ends with the answer.
    async fn ask(&self, host: usize) -> Answer {
        let limit = self.settings.target.connect_timeout;
        let answer = async {
            let opened = self.connection(host).await;
            let (session, mut connection) = opened.map_err(|failed| QueryError::Lost(failed.error))?;
            let closed = StoreError::new(HAS_CLOSED).of_kind(FailureKind::Unreachable);
            tokio::select! {
                () = drive_until_closed(&mut connection, &session, false) => Err(QueryError::Lost(closed)),
                answer = timeline(&session, limit) => answer,
            }
        };
        timeout(limit, answer).await.unwrap_or_else(|_| Err(QueryError::Lost(silent(limit))))
    }

    async fn connect_to(
        &self,
        index: usize,
    ) -> Result<(Session, impl Future<Output = ()> + Send + use<>), ConnectError> {
        let (session, mut connection) = self.connection(index).await?;
        // Notices before the first statement concern the server, not a change.
        tokio::select! {
            () = drive_until_closed(&mut connection, &session, false) => {
                return Err(ConnectError::transient(HAS_CLOSED));
            }
            checked = self.check(index, &session) => checked?,
        }
        Ok((session.clone(), drive(connection, session)))
    }

    /// A session at this host, whatever its server is, for questions alone. And the task that drives it.
    pub(super) async fn open(
        &self,
        index: usize,
    ) -> Result<(Session, impl Future<Output = ()> + Send + use<>), ConnectError> {
        let (session, connection) = self.connection(index).await?;
        Ok((session.clone(), drive(connection, session)))
    }

    async fn connection(&self, index: usize) -> Result<(Session, Driven), ConnectError> {
        let host = self.hosts().get(index);
        let config = self.config(host.ok_or_else(|| ConnectError::transient("there is no such host"))?)?;
        let (client, connection) = config.connect(self.encryption.clone()).await.map_err(refused)?;
        Ok((Session::new(client, self.next.fetch_add(1, Ordering::Relaxed), self.settings.prepared), connection))
    }

    async fn check(&self, index: usize, session: &Session) -> Result<(), ConnectError> {
        check(session, &self.settings).await?;
        if self.hosts().len() == 1 {
            return Ok(());
        }
        let timeline = match timeline(session, self.settings.target.connect_timeout).await {
            Ok(Some(timeline)) => timeline,
            // Of a server that does not say what it writes, nothing else is known. The journal has its reason.
            Ok(None) | Err(QueryError::Rejected(_) | QueryError::Conflict(_)) => return Ok(()),
            Err(error) => return Err(ConnectError { error: error.into_store_error(), is_permanent: false }),
        };
        session.set_timeline(timeline);
        self.found(index, timeline);
        if self.is_superseded(session) { Err(ConnectError::transient(SUPERSEDED)) } else { Ok(()) }
    }

    /// The server at this host accepts changes.
    pub(super) fn found(&self, index: usize, timeline: Timeline) {
        if let Some(host) = self.hosts().get(index) {
            self.primary().found(index, host, timeline);
        }
    }

    /// What the server at this host was asked and said, for the journal.
    pub(super) fn note(&self, index: usize, answer: &Answer) {
        if let Some(host) = self.hosts().get(index) {
            self.primary().note(index, host, answer);
        }
    }

    /// Returns true if another server was promoted after the one of this session.
    pub(super) fn is_superseded(&self, session: &Session) -> bool {
        session.timeline().is_some_and(|timeline| self.primary().is_after(timeline))
    }

    fn config(&self, host: &Host) -> Result<Config, ConnectError> {
        let settings = &self.settings;
        let target = &settings.target;
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
}

const HAS_CLOSED: &str = "the server closed the connection";

/// The task of a connection that is in use.
async fn drive(mut connection: Driven, session: Session) {
    tokio::select! {
        () = drive_until_closed(&mut connection, &session, true) => {}
        () = session.closing() => {}
    }
    session.close();
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

/// The settings of each session. `synchronous_commit` is not among them, so that an operator can raise it. The last one
/// is ours: a session without it goes through a pooler that ignores these settings.
///
/// Each statement finds its rows by an index and is planned once: a plan of its own for each execution takes as long as
/// the execution, and a plan that was made while a table was small would read the whole table when it has grown.
/// Without `jit=off`, the server would compile each statement that must read a whole table.
fn options(schema: &str) -> String {
    format!(
        "-c search_path={schema},pg_temp -c default_transaction_isolation=read\\ committed -c statement_timeout=4000 \
         -c lock_timeout=2000 -c idle_in_transaction_session_timeout=2000 -c timezone=UTC \
         -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off -c bearward.direct=on"
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
        error: StoreError::new(format!("cannot read the password from {source}: {error}")).of_kind(FailureKind::Login),
        is_permanent: true,
    })
}

/// Read at each connect, so each time others must not be able to read or replace the file. The line end after the
/// password does not belong to it.
fn read_password(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = private_file::read(path, FileCreator::Operator).map_err(|error| error.to_string())?;
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    Ok(bytes.get(..end).unwrap_or_default().to_vec())
}

/// The server or the network rejected the connection.
fn refused(error: tokio_postgres::Error) -> ConnectError {
    // Wrong passwords, users, databases and rights; a wrong certificate is none of these, because it may be renewed.
    let is_permanent = error.code().is_some_and(|code| matches!(code.code().get(..2), Some("28" | "3D" | "42" | "08")));
    let message = if has_closed(&error) { format!("{CLOSED} ({})", text(&error)) } else { text(&error) };
    ConnectError { error: StoreError::new(message).of_kind(kind(&error)), is_permanent }
}

const CLOSED: &str =
    "the server has closed the connection at once; check that PostgreSQL listens at this port, and read its log";

fn has_closed(error: &tokio_postgres::Error) -> bool {
    let kind =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    error.is_closed() || matches!(kind, Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof))
}

#[cfg(test)]
mod tests {
    use super::*;

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
