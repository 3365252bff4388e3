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
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("{}: cannot open {database}", .database.key())]
    OpenStore { database: Database, source: Cause },
    #[error("{}: cannot read {database}", .database.key())]
    ReadStore { database: Database, source: Cause },
    /// Of `store sweep`.
    #[error("{}: cannot delete all expired rows of {database}; deleted rows stay deleted", .database.key())]
    SweepStore { database: Database, source: Cause },
    /// Of `store sweep`.
    #[error(fmt = nothing_to_sweep)]
    NothingToSweep(Database),
    /// Of `store migrate` with `--owner`.
    #[error(
        "cannot change the tables of {database} as {owner}, the user of --owner with the password of \
         --owner-password-file"
    )]
    Migrate { database: Database, owner: String, source: Cause },
    /// `store copy` with a configuration that has no PostgreSQL.
    #[error("store.postgres is not set; set it to the database to which the rows are copied")]
    NotShared,
    /// The database has other rows than those that were written to it.
    // `r#` because a field named `source` would be taken for the cause of the error.
    #[error(
        "the copy differs from its source: {source} {} became {target}; check that nothing else writes to the \
         database, and copy again",
        .part.name()
    )]
    CopyDiffers { part: Part, r#source: u64, target: u64 },
    /// The CA certificates for `store.postgres`.
    #[error("store.postgres_ca_file: cannot use the CA certificates for the database")]
    DatabaseCertificates(#[source] Cause),
    #[error("cannot load the signing keys")]
    SigningKeys(#[source] Cause),
    #[error("cannot use tokens.signing_key_file {file}")]
    SigningKeyFile { file: PathBuf, source: Cause },
    #[error("cannot read the keys of issuer {issuer}")]
    IssuerKeys { issuer: String, source: Cause },
    /// Only of a reload: the store removes revocations by the maximum lifetime at the start.
    #[error("issuer.max_lifetime is longer than any at the start; restart the gateway to use it")]
    MaxLifetime,
    #[error("cannot use upstream {name}")]
    Upstream { name: String, source: Cause },
    #[error("cannot use the certificate of a listener")]
    Certificate(#[source] Cause),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot listen on admin.socket {socket}")]
    AdminSocket { socket: PathBuf, source: io::Error },
    #[error("cannot use a listening socket of another process")]
    InheritedSocket(#[source] io::Error),
    /// systemd listens on an address that the configuration does not have.
    #[error(
        "systemd listens on {address}, which is neither a [[listener]] address ({}) nor admin.address ({admin}); set \
         ListenStream= in the .socket unit to the addresses of the configuration",
        .listeners.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
    )]
    UnknownSocket { address: SocketAddr, listeners: Vec<SocketAddr>, admin: SocketAddr },
    #[error("cannot take over from the gateway at {socket} (stop it, and start without --take-over)")]
    TakeOver { socket: PathBuf, source: io::Error },
    #[error("cannot deliver audit events (see [audit] in the configuration)")]
    Audit(#[source] Cause),
    #[error("cannot open the access log ({target})")]
    AccessLog { target: String, source: io::Error },
    #[error("cannot create an async runtime")]
    Runtime(#[source] io::Error),
    #[error("cannot start the thread {name}")]
    Thread { name: String, source: io::Error },
}

fn nothing_to_sweep(database: &Database, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match database {
        Database::Sqlite(_) => write!(
            f,
            "store.sqlite: there is no database {database}; correct store.sqlite, or name the configuration of the \
             gateway with --config"
        ),
        Database::Postgres(_) => write!(
            f,
            "{}: no gateway has used {database}, so that there is nothing to delete; correct store.postgres or \
             store.schema",
            database.key()
        ),
    }
}
