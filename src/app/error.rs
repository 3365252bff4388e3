//! Errors of a start and of a reload.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::secrets::SecretError;
use crate::config::Database;
use crate::store::copy::Part;

pub(super) type Cause = Box<dyn Error + Send + Sync>;

/// Why the gateway did not start, or a reload changed nothing. After a failed start nothing is left running.
#[derive(Debug)]
pub enum StartError {
    Secret(SecretError),
    OpenStore {
        database: Database,
        source: Cause,
    },
    ReadStore {
        database: Database,
        source: Cause,
    },
    /// Of `store sweep`.
    SweepStore {
        database: Database,
        source: Cause,
    },
    /// Of `store sweep`.
    NothingToSweep(Database),
    /// Of `store migrate` with `--owner`.
    Migrate {
        database: Database,
        owner: String,
        source: Cause,
    },
    /// `store copy` with a configuration that has no PostgreSQL.
    NotShared,
    /// The database has other rows than those that were written to it.
    CopyDiffers {
        part: Part,
        source: u64,
        target: u64,
    },
    /// The CA certificates for `store.postgres`.
    DatabaseCertificates(Cause),
    SigningKeys(Cause),
    SigningKeyFile {
        file: PathBuf,
        source: Cause,
    },
    IssuerKeys {
        issuer: String,
        source: Cause,
    },
    /// Only of a reload: the store removes revocations by the maximum lifetime at the start.
    MaxLifetime,
    Upstream {
        name: String,
        source: Cause,
    },
    Certificate(Cause),
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    AdminSocket {
        socket: PathBuf,
        source: io::Error,
    },
    InheritedSocket(io::Error),
    /// systemd listens on an address that the configuration does not have.
    UnknownSocket {
        address: SocketAddr,
        listeners: Vec<SocketAddr>,
        admin: SocketAddr,
    },
    TakeOver {
        socket: PathBuf,
        source: io::Error,
    },
    Audit(Cause),
    AccessLog {
        target: String,
        source: io::Error,
    },
    Runtime(io::Error),
    Thread {
        name: String,
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Secret(error) => error.fmt(f),
            StartError::OpenStore { database, .. } => write!(f, "{}: cannot open {database}", database.key()),
            StartError::ReadStore { database, .. } => write!(f, "{}: cannot read {database}", database.key()),
            StartError::SweepStore { database, .. } => {
                write!(f, "{}: cannot delete all expired rows of {database}; deleted rows stay deleted", database.key())
            }
            StartError::NothingToSweep(database @ Database::Sqlite(_)) => write!(
                f,
                "store.sqlite: there is no database {database}; correct store.sqlite, or name the configuration of the \
                 gateway with --config"
            ),
            StartError::NothingToSweep(database) => write!(
                f,
                "{}: no gateway has used {database}, so that there is nothing to delete; correct store.postgres or \
                 store.schema",
                database.key()
            ),
            StartError::Migrate { database, owner, .. } => write!(
                f,
                "cannot change the tables of {database} as {owner}, the user of --owner with the password of \
                 --owner-password-file"
            ),
            StartError::NotShared => {
                f.write_str("store.postgres is not set; set it to the database to which the rows are copied")
            }
            StartError::CopyDiffers { part, source, target } => write!(
                f,
                "the copy differs from its source: {} {} became {target}; check that nothing else writes to the \
                 database, and copy again",
                source,
                part.name()
            ),
            StartError::DatabaseCertificates(_) => {
                f.write_str("store.postgres_ca_file: cannot use the CA certificates for the database")
            }
            StartError::SigningKeys(_) => f.write_str("cannot load the signing keys"),
            StartError::SigningKeyFile { file, .. } => {
                write!(f, "cannot use tokens.signing_key_file {}", file.display())
            }
            StartError::IssuerKeys { issuer, .. } => write!(f, "cannot read the keys of issuer {issuer}"),
            StartError::MaxLifetime => {
                f.write_str("issuer.max_lifetime is longer than any at the start; restart the gateway to use it")
            }
            StartError::Upstream { name, .. } => write!(f, "cannot use upstream {name}"),
            StartError::Certificate(_) => f.write_str("cannot use the certificate of a listener"),
            StartError::Listen { address, .. } => write!(f, "cannot listen on {address}"),
            StartError::AdminSocket { socket, .. } => write!(f, "cannot listen on admin.socket {}", socket.display()),
            StartError::InheritedSocket(_) => f.write_str("cannot use a listening socket of another process"),
            StartError::UnknownSocket { address, listeners, admin } => {
                let listeners: Vec<_> = listeners.iter().map(SocketAddr::to_string).collect();
                let listeners = listeners.join(", ");
                write!(
                    f,
                    "systemd listens on {address}, which is neither a [[listener]] address ({listeners}) nor \
                     admin.address ({admin}); set ListenStream= in the .socket unit to the addresses of the \
                     configuration"
                )
            }
            StartError::TakeOver { socket, .. } => write!(
                f,
                "cannot take over from the gateway at {} (stop it, and start without --take-over)",
                socket.display()
            ),
            StartError::Audit(_) => f.write_str("cannot deliver audit events (see [audit] in the configuration)"),
            StartError::AccessLog { target, .. } => write!(f, "cannot open the access log ({target})"),
            StartError::Runtime(_) => f.write_str("cannot create an async runtime"),
            StartError::Thread { name, .. } => write!(f, "cannot start the thread {name}"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StartError::Secret(error) => error.source(),
            StartError::OpenStore { source, .. }
            | StartError::ReadStore { source, .. }
            | StartError::SweepStore { source, .. }
            | StartError::Migrate { source, .. }
            | StartError::DatabaseCertificates(source)
            | StartError::SigningKeys(source)
            | StartError::SigningKeyFile { source, .. }
            | StartError::IssuerKeys { source, .. }
            | StartError::Upstream { source, .. }
            | StartError::Certificate(source)
            | StartError::Audit(source) => Some(&**source),
            StartError::Listen { source, .. }
            | StartError::AdminSocket { source, .. }
            | StartError::InheritedSocket(source)
            | StartError::AccessLog { source, .. }
            | StartError::TakeOver { source, .. }
            | StartError::Runtime(source)
            | StartError::Thread { source, .. } => Some(source),
            StartError::MaxLifetime
            | StartError::UnknownSocket { .. }
            | StartError::NothingToSweep(_)
            | StartError::NotShared
            | StartError::CopyDiffers { .. } => None,
        }
    }
}

impl From<SecretError> for StartError {
    fn from(error: SecretError) -> Self {
        StartError::Secret(error)
    }
}
