//! SQLite's errors, in an operator's words.

use rusqlite::ErrorCode;

use crate::store::StoreError;

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code().and_then(what_to_do) {
            Some(advice) => StoreError::new(format!("{advice} (SQLite: {error})")),
            None => StoreError::new(format!("SQLite: {error}")),
        }
    }
}

/// What happened and what helps, for the errors that come from outside the program.
fn what_to_do(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::DiskFull => "the disk of the database is full; the store works again as soon as there is room",
        ErrorCode::ReadOnly => "the database, or the disk or folder that it lies in, is read-only",
        ErrorCode::SystemIoFailure => "the disk of the database failed to read or write; look into the system's log",
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            "another program holds the database locked; is a transaction open in an sqlite3 shell?"
        }
        ErrorCode::DatabaseCorrupt => "the database is damaged; stop the gateway and restore a backup",
        ErrorCode::NotADatabase => {
            "the file is not an SQLite database; name another one, or put the database back in its place"
        }
        ErrorCode::CannotOpen => "the database cannot be opened; look at the rights of its file and its folder",
        ErrorCode::PermissionDenied => "the database may not be opened; look at the rights of its file and its folder",
        ErrorCode::OutOfMemory => "there is not enough memory for the database",
        _ => return None,
    })
}
