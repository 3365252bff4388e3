//! `[store]`: the database and the root secret.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::files;
use crate::config::settings::StoreSettings;
use crate::types::private_file::Origin;

/// `timeout`: `timeouts.store`.
pub(super) fn read(table: &mut Table<'_>, timeout: Duration) -> StoreSettings {
    let sqlite = database(table);
    table.accept("sqlite", can_use(&sqlite));
    let secret = files::secret(table, "secret_file", "secret_env", "bearward.secret");
    StoreSettings { sqlite, secret, timeout }
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
        files::private(Path::new(&file), Origin::Gateway)?;
    }
    files::in_private_folder(database)
}

pub(super) fn database(table: &mut Table<'_>) -> PathBuf {
    table.path("sqlite").unwrap_or_else(|| table.report().base().join("bearward.db"))
}
