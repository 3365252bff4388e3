//! The barrier between the process and a file: the file itself, or a folder on the way to it. For an operator who runs
//! a command as the wrong user.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::types::folders::on_the_way;
use crate::types::owner::User;
use crate::types::process::{self, ROOT};

#[derive(Debug, PartialEq, Eq)]
pub struct Barrier {
    pub path: PathBuf,
    pub owner: User,
}

/// The barrier on the way to a file that the process has no permission to use, also behind links. `None` if the file
/// does not exist.
pub fn barrier(path: &Path) -> Option<Barrier> {
    let path = std::path::absolute(path).ok()?;
    let mut parts = on_the_way(&path);
    parts.reverse();
    parts.push(path);
    let mut reached: Option<Barrier> = None;
    for part in parts {
        match fs::metadata(&part) {
            Ok(found) => reached = Some(Barrier { path: part, owner: User(found.uid()) }),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return reached,
            Err(_) => return None,
        }
    }
    reached
}

/// What to do without permission to use a file.
pub fn advice(path: &Path) -> String {
    const MODE: &str = "change the owner or mode of the file, and of its folders";
    match barrier(path) {
        Some(Barrier { owner: User(owner), .. }) if owner == process::user() => MODE.to_owned(),
        Some(Barrier { path, owner: User(ROOT) }) => format!(
            "{} belongs to user root; run this as root or as the user of the gateway, or {MODE}",
            path.display()
        ),
        Some(Barrier { path, owner }) => format!(
            "{} belongs to {owner}; run this as its user: {}; if the gateway runs as another user, {MODE}",
            path.display(),
            owner.command()
        ),
        None => MODE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_barrier_is_the_last_part_that_can_be_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        assert_eq!(barrier(&file), None, "it does not exist");
        fs::write(&file, "").expect("written");
        let link = folder.path().join("link");
        symlink("file", &link).expect("a link");
        for path in [file, link] {
            let reached = barrier(&path);
            assert_eq!(reached, Some(Barrier { path, owner: User(process::user()) }));
        }
    }
}
