//! `bearward store` with SQLite.

use bearward::types::secret::write_private;

use super::{complaint, folder_with, printed};
use crate::support::Gateway;
use crate::support::files::names;
use crate::support::program::bearward;

/// A script can run it before each upgrade, whatever the store is.
#[test]
fn sqlite_needs_no_migration() {
    let folder = folder_with(&Gateway::config_text("127.0.0.1:9", ""));
    let said = printed(&bearward(folder.path(), &["store", "migrate"]));
    assert!(said.contains("store.sqlite needs no migration") && said.contains("nothing was changed"), "{said}");
    assert_eq!(names(folder.path()), ["gateway.toml"]);
}

#[test]
fn a_sweep_needs_a_database() {
    let folder = folder_with(&Gateway::config_text("127.0.0.1:9", ""));
    for content in [None, Some("")] {
        if let Some(content) = content {
            write_private(&folder.path().join("bearward.db"), content.as_bytes()).expect("written");
        }
        let message = complaint(&bearward(folder.path(), &["store", "sweep"]), 1);
        assert!(message.contains("store.sqlite: there is no database bearward.db"), "{message}");
    }
}

#[test]
fn a_copy_needs_the_database_to_which_it_copies() {
    let folder = folder_with(&Gateway::config_text("127.0.0.1:9", ""));
    let message = complaint(&bearward(folder.path(), &["store", "copy", "--from", "sqlite"]), 1);
    assert!(message.contains("store.postgres is not set; set it to the database"), "{message}");
}
