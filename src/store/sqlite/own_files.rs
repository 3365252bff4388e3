//! Notices that a file of the open database was removed or replaced.
//!
//! The system keeps a removed file until the gateway closes it. What the gateway writes there is lost with the process.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::store::error::StoreError;

/// The database, and the files that SQLite and the gateway keep beside it while it is open.
const ENDINGS: [&str; 4] = ["", "-wal", "-shm", ".lock"];

/// The files as they were when they were opened.
pub(super) struct OwnFiles {
    files: Vec<OwnFile>,
    /// Whether the last check has failed, so that the log tells of it once.
    is_lost: Cell<bool>,
}

struct OwnFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// `bearward.db-wal` and others.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

impl OwnFiles {
    /// Those of the open database at `path` that exist.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        for ending in ENDINGS {
            let name = beside(path, ending);
            match fs::metadata(&name) {
                Ok(found) => files.push(OwnFile { path: name, device: found.dev(), inode: found.ino() }),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(OwnFiles { files, is_lost: Cell::new(false) })
    }

    /// Fails if a path no longer leads to the open file.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let lost = self.files.iter().find(|file| !file.is_there());
        let was_lost = self.is_lost.replace(lost.is_some());
        let Some(file) = lost else {
            if was_lost {
                tracing::info!("the files of the database are back");
            }
            return Ok(());
        };
        let error = StoreError::new(format!(
            "{} was removed or replaced while the gateway uses it; move the same file back, or stop the gateway and \
             restore a backup",
            file.path.display()
        ));
        if !was_lost {
            tracing::error!(%error, "the gateway writes no change any more");
        }
        Err(error)
    }
}

impl OwnFile {
    /// Any other error, such as a folder that the gateway may not search any more, does not say that the file is gone.
    fn is_there(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(found) => found.dev() == self.device && found.ino() == self.inode,
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_another_one_now_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for ending in ENDINGS {
            fs::write(path(&format!("own.db{ending}")), "").expect("written");
        }
        let files = OwnFiles::of(&path("own.db")).expect("it is there");
        for ending in ENDINGS {
            let own = path(&format!("own.db{ending}"));
            assert!(files.check().is_ok());
            fs::rename(&own, path("elsewhere")).expect("moved");
            let error = files.check().err().map(|error| error.message).unwrap_or_default();
            assert!(error.starts_with(&format!("{} was removed", own.display())), "{error}");
            fs::write(&own, "").expect("written");
            assert!(files.check().is_err(), "a new file with the same name");
            fs::rename(path("elsewhere"), &own).expect("moved back");
        }
        assert!(files.check().is_ok());
    }
}
