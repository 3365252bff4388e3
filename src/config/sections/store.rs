//! `[store]`: the database and the root secret.

use std::time::Duration;

use crate::config::document::table::Table;
use crate::config::sections::files;
use crate::config::settings::StoreSettings;

/// `timeout`: `timeouts.store`.
pub(super) fn read(table: &mut Table<'_>, timeout: Duration) -> StoreSettings {
    let sqlite = table.path("sqlite").unwrap_or_else(|| table.report().base().join("bearward.db"));
    table.accept("sqlite", files::can_create(&sqlite));
    let secret = files::secret(table, "secret_file", "secret_env", "bearward.secret");
    StoreSettings { sqlite, secret, timeout }
}
