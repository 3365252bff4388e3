//! Errors of SQLite, with advice for the operator.

use rusqlite::ErrorCode;

use crate::store::error::{FailureKind, StoreError};

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let code = error.sqlite_error_code();
        let message = match code.and_then(advice) {
            Some(advice) => format!("{advice} (SQLite: {error})"),
            None => format!("SQLite: {error}"),
        };
        match code {
            Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::SystemIoFailure) => {
                StoreError::new(message).of_kind(FailureKind::Disk)
            }
            _ => StoreError::new(message),
        }
    }
}

/// What failed and what to do, for errors with a cause outside the program.
fn advice(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::DiskFull => "the disk of the database is full; free some space, no restart is needed",
        ErrorCode::ReadOnly => {
            "the database, its folder or its disk is read-only; make it writable for the gateway's user"
        }
        ErrorCode::SystemIoFailure => "the disk of the database failed to read or write; check the system log",
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            "another program has locked the database; close open transactions, for example in an sqlite3 shell"
        }
        ErrorCode::DatabaseCorrupt => "the database is damaged; stop the gateway and restore a backup",
        ErrorCode::NotADatabase => "the file is not an SQLite database; correct store.sqlite, or restore the database",
        ErrorCode::CannotOpen => "the database cannot be opened; check the permissions of the file and its folder",
        ErrorCode::PermissionDenied => {
            "permission to open the database is denied; check the permissions of the file and its folder"
        }
        ErrorCode::OutOfMemory => "there is not enough memory for the database",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn each_cause_outside_the_program_has_its_advice() {
        for (code, expected) in [
            (ffi::SQLITE_FULL, "free some space"),
            (ffi::SQLITE_READONLY, "make it writable"),
            (ffi::SQLITE_IOERR, "check the system log"),
            (ffi::SQLITE_BUSY, "another program has locked"),
            (ffi::SQLITE_LOCKED, "another program has locked"),
            (ffi::SQLITE_CORRUPT, "restore a backup"),
            (ffi::SQLITE_NOTADB, "is not an SQLite database"),
            (ffi::SQLITE_CANTOPEN, "cannot be opened"),
            (ffi::SQLITE_PERM, "permission to open"),
            (ffi::SQLITE_NOMEM, "not enough memory"),
        ] {
            let error = StoreError::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).to_string();
            assert!(error.contains(expected) && error.contains("(SQLite: "), "{code}: {error}");
        }
        let other = StoreError::from(rusqlite::Error::InvalidQuery).to_string();
        assert!(other.starts_with("SQLite: "), "{other}");
    }
}
