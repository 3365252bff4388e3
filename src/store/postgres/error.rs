//! Errors of statements: what they mean for the operation, with advice for the operator.

use std::io;
use std::time::Duration;

use tokio_postgres::error::{DbError, SqlState};

use crate::store::error::{FailureKind, StoreError};

/// Why a statement failed, and so whether the operation may run again.
#[derive(Clone, Debug)]
pub(super) enum QueryError {
    /// The connection is lost. The statement may have been committed.
    Lost(StoreError),
    /// Another transaction was faster. Nothing was written.
    Conflict(StoreError),
    /// The server is read-only: another one is the primary now. Nothing was written.
    NotPrimary(StoreError),
    /// Nothing was written, and the same operation would fail again.
    Rejected(StoreError),
}

impl QueryError {
    /// For the caller, after the last attempt.
    pub(super) fn into_store_error(self) -> StoreError {
        let (QueryError::Lost(error)
        | QueryError::Conflict(error)
        | QueryError::NotPrimary(error)
        | QueryError::Rejected(error)) = self;
        error
    }
}

/// Why no connection could be opened.
#[derive(Clone, Debug)]
pub(super) struct ConnectError {
    pub(super) error: StoreError,
    /// If true, it will fail again until an operator has changed something.
    pub(super) is_permanent: bool,
}

impl ConnectError {
    pub(super) fn transient(text: &str) -> Self {
        ConnectError { error: StoreError::new(text), is_permanent: false }
    }
}

/// Errors of reading rows and of decisions.
impl From<StoreError> for QueryError {
    fn from(error: StoreError) -> Self {
        QueryError::Rejected(error)
    }
}

/// A column with another type than expected.
impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        StoreError::new(text(&error)).of_kind(kind(&error))
    }
}

impl From<tokio_postgres::Error> for QueryError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(code) = error.code().cloned() else {
            // Without a code, the client failed: the connection is closed, or a parameter has the wrong type.
            let closed = error.is_closed() || is_io(&error);
            let message = StoreError::from(error);
            return if closed { QueryError::Lost(message) } else { QueryError::Rejected(message) };
        };
        let message = StoreError::from(error);
        match &code {
            &SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED => QueryError::Conflict(message),
            // A prepared statement does not fit any more, after a migration or behind a pooler. The session drops it.
            &SqlState::FEATURE_NOT_SUPPORTED | &SqlState::INVALID_SQL_STATEMENT_NAME => QueryError::Conflict(message),
            &SqlState::READ_ONLY_SQL_TRANSACTION => QueryError::NotPrimary(message),
            code if code.code().starts_with("08") || code.code().starts_with("57P") => QueryError::Lost(message),
            _ => QueryError::Rejected(message),
        }
    }
}

/// What kind of failure it is, also if no connection came about.
pub(super) fn kind(error: &tokio_postgres::Error) -> FailureKind {
    let Some(code) = error.code() else {
        let is_away = error.is_closed() || is_io(error) && !is_invalid(error);
        return if is_away { FailureKind::Unreachable } else { FailureKind::Other };
    };
    match code.code() {
        "53100" | "58030" => FailureKind::Disk,
        "53300" => FailureKind::NoConnection,
        "25006" => FailureKind::ReadOnly,
        "57014" => FailureKind::Silent,
        "28000" | "28P01" | "3D000" | "42501" => FailureKind::Login,
        code if code.starts_with("57P") => FailureKind::Starting,
        _ => FailureKind::Other,
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    io_error(error).is_some()
}

/// The server was reached, but TLS does not accept it: its certificate has ended or is that of another host.
fn is_invalid(error: &tokio_postgres::Error) -> bool {
    io_error(error).is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

fn io_error(error: &tokio_postgres::Error) -> Option<&io::Error> {
    std::error::Error::source(error)?.downcast_ref::<io::Error>()
}

/// One line: what failed, what to do, and the text of PostgreSQL.
pub(super) fn text(error: &tokio_postgres::Error) -> String {
    let Some(from_server) = error.as_db_error() else {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
        return match advice_on_connecting(error, &cause) {
            Some(advice) => format!("{advice} (PostgreSQL: {error}{cause})"),
            None => format!("PostgreSQL: {error}{cause}"),
        };
    };
    let shown = shown(from_server);
    if from_server.constraint() == Some("audit_pkey") {
        return format!("{SEQUENCE_BEHIND} (PostgreSQL: {shown})");
    }
    match advice(from_server.code()) {
        Some(advice) => format!("{advice} (PostgreSQL: {shown})"),
        None => format!("PostgreSQL: {shown}"),
    }
}

/// `sequences` advances it, if the user may.
const SEQUENCE_BEHIND: &str = "a sequence is behind its table, as after a switch to a logically replicated copy; run as \
     its owner: SELECT setval(pg_get_serial_sequence('audit', 'sequence'), (SELECT max(sequence) FROM audit))";

fn shown(error: &DbError) -> String {
    format!("{} {}", error.code().code(), error.message().replace(['\n', '\r'], " "))
}

/// What failed before the server could say it, and what to do. Some causes have only a text.
fn advice_on_connecting(error: &tokio_postgres::Error, cause: &str) -> Option<&'static str> {
    let advice_on_text = |(part, advice): &(&str, &'static str)| cause.contains(part).then_some(*advice);
    if let Some(advice) = BY_TEXT.iter().find_map(advice_on_text) {
        return Some(advice);
    }
    advice_on_kind(io_error(error)?.kind())
}

fn advice_on_kind(kind: io::ErrorKind) -> Option<&'static str> {
    Some(match kind {
        io::ErrorKind::ConnectionRefused => {
            "no server listens at this address; start it, correct the host or port in store.postgres, or add the address \
             to listen_addresses of the server"
        }
        io::ErrorKind::NotFound => {
            "there is no such socket; start the server, or correct the folder or port in store.postgres"
        }
        io::ErrorKind::PermissionDenied => "the gateway may not open the socket; give its user the right to it",
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => UNREACHABLE,
        _ => return None,
    })
}

/// No packet comes back.
const UNREACHABLE: &str =
    "the server cannot be reached; correct the host in store.postgres, or check the network and its firewalls";

/// The server has sent nothing for this time.
pub(super) fn silent(limit: Duration) -> StoreError {
    StoreError::new(format!("{UNREACHABLE} (no response within {limit:?})")).of_kind(FailureKind::Silent)
}

/// Causes that have no kind of their own.
const BY_TEXT: [(&str, &str); 4] = [
    (
        "failed to lookup address",
        "no name server knows this host; correct it in store.postgres, or check the name servers of this machine",
    ),
    (
        "server does not support TLS",
        "the server has no TLS; set ssl = on there, or say sslmode=disable in store.postgres if the network is private",
    ),
    (
        "invalid peer certificate",
        "the certificate of the server is not accepted; correct the host in store.postgres, or name the CA that signed \
         it in store.postgres_ca_file",
    ),
    (
        "password missing",
        "the server asks for a password; correct the user in store.postgres, or set store.postgres_password_file",
    ),
];

/// What failed and what to do, for errors with a cause outside the program.
fn advice(code: &SqlState) -> Option<&'static str> {
    Some(match code.code() {
        "28P01" => {
            "the user or its password is wrong; correct the user in store.postgres, or store.postgres_password_file or \
             store.postgres_password_env"
        }
        "28000" => {
            "the server does not let this user in; correct the user in store.postgres, create its role, add a line for it \
             to pg_hba.conf, or use TLS if the server asks for it"
        }
        "3D000" => "there is no such database; create it with CREATE DATABASE, or correct store.postgres",
        "42501" => "the user of store.postgres lacks a right; grant it, or let the user own the schema",
        "42P01" | "3F000" | "42703" => {
            "a table of the gateway is missing; restore the database, or start with an empty schema in store.schema"
        }
        "53100" => "the disk of the database is full; free some space, no restart is needed",
        "53200" => "the database has not enough memory",
        "53300" => "the database has no free connection; raise its max_connections, or lower store.pool",
        "55P03" => "another transaction holds a lock; close open transactions, for example in a psql shell",
        "57014" => "the database took too long for one statement; check its load and its disk",
        "25006" => "the server is read-only; name the primary in store.postgres, or several hosts",
        "57P03" => "the database is starting or shutting down",
        "26000" => "a connection pooler lost a prepared statement; set store.prepared = false",
        "08P01" => {
            "the server or a connection pooler rejects the connection; see \"connection poolers\" in deploy/replicas.md"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread;

    use rustls::{ClientConfig, RootCertStore};
    use tokio_postgres::{Config, NoTls};

    use super::*;
    use crate::store::postgres::tls::{Encryption, Tls};

    #[test]
    fn an_error_of_the_network_is_not_one_of_the_text() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // Port 1 has no server.
        let network = runtime.block_on(tokio_postgres::connect("host=127.0.0.1 port=1 user=a", NoTls));
        let network = network.err().expect("it fails");
        assert!(is_io(&network));
        assert_eq!(kind(&network), FailureKind::Unreachable);
        assert!(!is_io(&"port=none".parse::<Config>().expect_err("it fails")));
    }

    #[test]
    fn a_server_that_tls_rejects_was_reached() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = server.local_addr().expect("bound").port();
        thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a client");
            // It accepts TLS, and then sends something else.
            stream.read_exact(&mut [0; 8]).expect("the question for TLS");
            stream.write_all(b"Sthis is no TLS").expect("sent");
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let tls = Tls { config: Arc::new(config), end_point: |_| None };
        let target: Config = format!("host=127.0.0.1 port={port} user=a sslmode=require").parse().expect("valid");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let rejected = runtime.block_on(target.connect(Encryption(Some(tls)))).err().expect("it fails");
        assert_eq!(kind(&rejected), FailureKind::Other, "{}", text(&rejected));
    }

    #[test]
    fn each_kind_of_failed_connection_has_its_own_advice() {
        for (kind, expected) in [
            (io::ErrorKind::ConnectionRefused, "no server listens at this address"),
            (io::ErrorKind::NotFound, "there is no such socket"),
            (io::ErrorKind::PermissionDenied, "may not open the socket"),
            (io::ErrorKind::TimedOut, "cannot be reached"),
            (io::ErrorKind::HostUnreachable, "cannot be reached"),
            (io::ErrorKind::NetworkUnreachable, "cannot be reached"),
        ] {
            let advice = advice_on_kind(kind).unwrap_or_default();
            assert!(advice.contains(expected), "{kind}: {advice}");
        }
        assert_eq!(advice_on_kind(io::ErrorKind::ConnectionReset), None);
    }
}
