//! Secrets from outside the store, and the admin token. A missing secret file is created once.

use std::io;
use std::path::{Path, PathBuf};

use crate::admin::{MAX_TOKEN_SIZE, SecretSource};
use crate::auth::bearer;
use crate::config::Database;
use crate::types::ids::to_base62;
use crate::types::private_file::{self, FileCreator};
use crate::types::secret::{self, Secret};

/// Minimum size of an admin token in bytes.
const MIN_TOKEN_SIZE: usize = 32;

/// What to do without the root secret of a database.
const RESTORE: &str = "restore the file from its backup (deploy/backup.md)";

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read the secret {secret}")]
    Read { secret: SecretSource, source: io::Error },
    #[error("cannot write the secret {file}")]
    Write { file: PathBuf, source: io::Error },
    #[error("{0} is not set; set it to the secret")]
    NotSet(SecretSource),
    /// A line of the root secrets is not valid.
    #[error("{secret}, line {line}: expected a number and a root secret of 43 letters and digits; {RESTORE}")]
    InvalidRoot { secret: SecretSource, line: usize },
    /// Tokens name their root secret by its number, so each number is used once.
    #[error("{secret}, line {line}: the number {number} is used twice; {RESTORE}")]
    DuplicateRoot { secret: SecretSource, line: usize, number: u8 },
    #[error("{0} has no root secret; {RESTORE}")]
    NoRoot(SecretSource),
    #[error("{0} uses every number from 1 to 255; remove a root secret that is no longer needed")]
    NoFreeNumber(SecretSource),
    #[error("cannot write to {0}; add a line with a new number and a new root secret to its value")]
    NotAFile(SecretSource),
    /// The file is a credential of systemd.
    // 42 characters after the zero are 250 random bits, and less than 32 bytes hold.
    #[error(
        "cannot write to {file}: credentials of systemd are read-only; append a line to the file or the encrypted \
         credential that LoadCredential= or LoadCredentialEncrypted= names, and restart the gateway: \
         echo \"{number} 0$(tr -dc A-Za-z0-9 < /dev/urandom | head -c 42)\""
    )]
    Credential { file: PathBuf, number: u8 },
    /// The database exists and its root secret does not.
    #[error(
        "store.secret_file: {file} does not exist, and the database {database} cannot be used without it; {RESTORE}, \
         or correct store.secret_file. If the file is lost, {}: the gateway then creates both again, and all users \
         must log in again",
        removal(.database)
    )]
    RootLost { file: PathBuf, database: Database },
    /// The database that several gateways share was used with another secret of this number.
    #[error(
        "{secret}: root secret {number} is not the one that the database is used with; copy the root secrets of a \
         gateway that uses this database, or restore them from their backup"
    )]
    OtherRoot { secret: SecretSource, number: u8 },
    /// The other gateways use a root secret that this one does not have.
    #[error(
        "{secret} lacks root secret {number}, which other gateways use with this database; copy their root secrets"
    )]
    RootMissing { secret: SecretSource, number: u8 },
    #[error(
        "{0}: the admin token must have {MIN_TOKEN_SIZE} to {MAX_TOKEN_SIZE} characters, each a letter, a digit or one \
         of -._~+/="
    )]
    InvalidAdminToken(SecretSource),
}

/// How the operator removes a database.
fn removal(database: &Database) -> String {
    match database {
        Database::Sqlite(_) => format!("remove {database} with its -wal and -shm files"),
        Database::Postgres(settings) => format!("drop its schema: DROP SCHEMA {} CASCADE", settings.schema),
    }
}

pub(super) fn read_admin_token(source: &SecretSource) -> Result<Secret, SecretError> {
    let text = read_or_create(source, || format!("{}\n", new_secret_text()))?;
    let token = text.trim();
    if !(MIN_TOKEN_SIZE..=MAX_TOKEN_SIZE).contains(&token.len()) || !bearer::is_sendable(token) {
        return Err(SecretError::InvalidAdminToken(source.clone()));
    }
    Ok(Secret::new(token.as_bytes().to_vec()))
}

/// 256 random bits in base62.
pub(super) fn new_secret_text() -> String {
    to_base62(&secret::random::<32>(), 43)
}

/// Reads a secret that must exist.
pub(super) fn read(source: &SecretSource) -> Result<String, SecretError> {
    match source {
        SecretSource::Environment(name) => std::env::var(name).map_err(|_| SecretError::NotSet(source.clone())),
        SecretSource::File(file) => {
            let text = private_file::read_to_string(file, FileCreator::Gateway);
            text.map_err(|error| SecretError::Read { secret: source.clone(), source: error })
        }
    }
}

/// Reads a secret, or creates its file.
pub(super) fn read_or_create(source: &SecretSource, create: impl FnOnce() -> String) -> Result<String, SecretError> {
    match source {
        SecretSource::File(file) if is_missing(file) => create_file(source, file, &create()),
        _ => read(source),
    }
}

/// Returns false if it is not known whether the file exists: reading it then reports the error.
pub(super) fn is_missing(file: &Path) -> bool {
    matches!(file.try_exists(), Ok(false))
}

fn create_file(source: &SecretSource, file: &Path, text: &str) -> Result<String, SecretError> {
    match secret::create_private(file, text.as_bytes()) {
        Ok(_) => {
            tracing::info!(file = %file.display(), "created a secret");
            Ok(text.to_owned())
        }
        // Another start has created the file meanwhile, and both use its secret.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(source),
        Err(error) => Err(SecretError::Write { file: file.to_owned(), source: error }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_created_once_and_only_its_owner_reads_it() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("admin.token");
        let source = SecretSource::File(file.clone());
        let created = read_admin_token(&source).expect("it is created");
        assert_eq!(fs::metadata(&file).expect("it exists").permissions().mode() & 0o777, 0o600);
        assert!(read_admin_token(&source).expect("it is read").matches(created.expose()));
        assert!(secret::create_private(&file, b"another").is_err(), "an existing file is not overwritten");
        for token in ["", "short", "with a space in a token of thirty-two characters", &"x".repeat(1025)] {
            secret::write_private(&file, token.as_bytes()).expect("written");
            assert!(read_admin_token(&source).is_err(), "{token}");
        }
    }
}
