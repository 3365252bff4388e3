//! `[store]`: the database and the root secret.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::{files, postgres};
use crate::config::settings::{Database, StoreSettings};
use crate::types::private_file::FileCreator;

/// How long a start waits for PostgreSQL.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// `timeout`: `timeouts.store`.
pub(super) fn read(table: &mut Table<'_>, timeout: Duration) -> StoreSettings {
    let beside = beside(table);
    let postgres = postgres::read(table, timeout);
    let database = match postgres {
        Some(settings) => {
            if table.has("sqlite") {
                let error = ConfigError::new("the store has two databases", "expected `sqlite` or `postgres`");
                table.reject("sqlite", error.related(&table.place("postgres"), "also set here"));
            }
            Database::Postgres(Box::new(settings))
        }
        None => {
            table.accept("sqlite", can_use(&beside));
            Database::Sqlite(beside.clone())
        }
    };
    let secret = files::secret(table, "secret_file", "secret_env", "bearward.secret", if_empty(&database));
    StoreSettings { database, beside, secret, timeout, start_patience: START_PATIENCE }
}

/// What to do if the file of the root secret is empty. A new one would make the data of the database useless.
fn if_empty(database: &Database) -> &'static str {
    match database {
        Database::Sqlite(file) if file.exists() => {
            "restore the file from its backup (deploy/backup.md): without it, the database is useless"
        }
        Database::Sqlite(_) => files::NEW_SECRET,
        Database::Postgres(_) => {
            "restore the file from its backup (deploy/backup.md), or copy that of another gateway on this database; \
             remove it only if no gateway has used the database"
        }
    }
}

/// SQLite keeps the newest data in the files with these endings.
fn can_use(database: &Path) -> Result<(), ConfigError> {
    files::can_create(database)?;
    for ending in ["", "-wal", "-shm"] {
        let mut file = database.as_os_str().to_owned();
        file.push(ending);
        if fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
            let what = format!("{} is not a regular file", Path::new(&file).display());
            return Err(ConfigError::new(what, "expected the path of a file"));
        }
        files::private(Path::new(&file), FileCreator::Gateway)?;
    }
    files::in_private_folder(database)
}

/// The SQLite database. With PostgreSQL, a path beside the configuration, for what is by default beside the database.
pub(super) fn beside(table: &mut Table<'_>) -> PathBuf {
    let default = if table.has("postgres") { "bearward" } else { "bearward.db" };
    let written = table.path("sqlite");
    let path = written.unwrap_or_else(|| table.report().base().join(default));
    if !table.has("postgres") {
        table.default("sqlite", path.display().to_string());
    }
    path
}
