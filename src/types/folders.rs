//! The folders on the way of a path, and whether other users can change what is in them.
//!
//! A user who can write to a folder can replace every file and every folder in it, whatever their own modes are. So all
//! folders on the way count, up to the root, and those of each symbolic link as well.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::types::owner::{self, User};
use crate::types::process::{self, ROOT};

/// As the kernel (path_resolution(7)). A path with more links cannot be opened.
const MAX_LINKS: usize = 40;

/// The users that may change a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trusted {
    /// The user of the process and root. A process of root trusts every owner and group: it may check the files of a
    /// gateway that runs as another user.
    Own,
    /// All owners and groups: the operator has chosen them.
    Chosen,
}

/// A folder in which other users can replace files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenFolder {
    folder: PathBuf,
    to: OpenTo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenTo {
    Owner { owner: u32, user: u32 },
    Group { group: u32, mode: u32 },
    All { mode: u32 },
}

impl fmt::Display for OpenFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        match self.to {
            OpenTo::Owner { owner, .. } => {
                write!(f, "{folder} belongs to {}, who can replace files in it", User(owner))
            }
            OpenTo::Group { group, mode } => {
                write!(f, "the users of group {group} can replace files in {folder} (mode {mode:04o})")
            }
            OpenTo::All { mode } => {
                write!(f, "every user of this machine can replace files in {folder} (mode {mode:04o})")
            }
        }
    }
}

impl OpenFolder {
    /// What to do. `quoted`: writes a path as one word for a shell.
    pub(super) fn advice(&self, quoted: impl FnOnce(&Path) -> String) -> String {
        let folder = quoted(&self.folder);
        match self.to {
            OpenTo::Owner { owner, user } => owner::of_another(owner, user, &format!("chown {user} {folder}")),
            OpenTo::Group { .. } => format!("run: chmod g-w {folder}"),
            OpenTo::All { .. } => format!("run: chmod o-w {folder}"),
        }
    }
}

/// What the rules about a file or folder depend on.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// The effective user of the process.
    pub(super) user: u32,
    pub(super) owner: u32,
    pub(super) mode: u32,
    pub(super) group: u32,
    /// Returns true if the process is a member of `group`.
    pub(super) is_member: bool,
}

impl Facts {
    pub(super) fn of(found: &Metadata) -> Facts {
        let group = found.gid();
        let user = process::user();
        let is_member = process::is_in_group(group);
        Facts { user, owner: found.uid(), mode: found.mode(), group, is_member }
    }

    /// Returns true if another user than that of the process, or root, has the file. A process of root accepts any.
    pub(super) fn is_of_another(&self) -> bool {
        self.owner != self.user && self.owner != ROOT && self.user != ROOT
    }

    /// The process is a member of the group with the number of its user.
    #[cfg(test)]
    pub(super) fn example(user: u32, owner: u32, group: u32, mode: u32) -> Facts {
        Facts { user, owner, mode, group, is_member: group == user }
    }
}

/// Fails if other users can replace this file, or a folder or link on the way to it. The file may be missing.
pub(super) fn check(path: &Path, trusted: Trusted) -> Result<(), OpenFolder> {
    for folder in on_the_way(path) {
        let Ok(found) = fs::metadata(&folder) else { continue };
        // Kubernetes mounts a ConfigMap as a folder for all users that is read-only.
        if let Some(to) = open_to(&Facts::of(&found), trusted)
            && !process::is_read_only(&folder)
        {
            return Err(OpenFolder { folder, to });
        }
    }
    Ok(())
}

fn open_to(facts: &Facts, trusted: Trusted) -> Option<OpenTo> {
    let &Facts { user, owner, group, .. } = facts;
    let mode = facts.mode & 0o7777;
    let checks_own = trusted == Trusted::Own && user != ROOT;
    if checks_own && owner != user && owner != ROOT {
        return Some(OpenTo::Owner { owner, user });
    }
    // With the sticky bit, as in /tmp, only the owner of a file can remove it.
    if mode & 0o1000 != 0 {
        return None;
    }
    if mode & 0o002 != 0 {
        return Some(OpenTo::All { mode });
    }
    (checks_own && mode & 0o020 != 0 && group != ROOT && !facts.is_member).then_some(OpenTo::Group { group, mode })
}

/// The folders in which the names of the path are looked up, from the nearest to the root.
pub(super) fn on_the_way(path: &Path) -> Vec<PathBuf> {
    let Ok(path) = std::path::absolute(path) else { return Vec::new() };
    let mut names: VecDeque<_> = path.components().map(|name| name.as_os_str().to_owned()).collect();
    let mut folders = Vec::new();
    let mut at = PathBuf::new();
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::ParentDir) => {
                at.pop();
                continue;
            }
            Some(Component::Normal(_)) => {}
            _ => {
                at = PathBuf::from("/");
                continue;
            }
        }
        if !folders.contains(&at) {
            folders.push(at.clone());
        }
        let next = at.join(&name);
        match fs::read_link(&next) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                for part in target.components().rev().filter(|part| *part != Component::CurDir) {
                    names.push_front(part.as_os_str().to_owned());
                }
            }
            _ => at = next,
        }
    }
    folders.reverse();
    folders
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const OWN: u32 = 1000;

    #[test]
    fn a_folder_may_be_changed_by_its_user_and_root() {
        let open = |user, owner, group, mode, trusted| {
            let to = open_to(&Facts::example(user, owner, group, mode), trusted);
            to.map(|to| match to {
                OpenTo::Owner { .. } => "owner",
                OpenTo::Group { .. } => "group",
                OpenTo::All { .. } => "all",
            })
        };
        for (user, owner, group, mode, secret, chosen) in [
            (OWN, OWN, OWN, 0o700, None, None),
            (OWN, ROOT, ROOT, 0o755, None, None),
            (OWN, ROOT, ROOT, 0o1777, None, None),
            (OWN, ROOT, OWN, 0o2775, None, None),
            (OWN, ROOT, ROOT, 0o775, None, None),
            (OWN, ROOT, ROOT, 0o777, Some("all"), Some("all")),
            (OWN, ROOT, 2000, 0o775, Some("group"), None),
            (OWN, 2000, OWN, 0o755, Some("owner"), None),
            (OWN, 2000, OWN, 0o1777, Some("owner"), None),
            (ROOT, OWN, OWN, 0o775, None, None),
            (ROOT, OWN, OWN, 0o777, Some("all"), Some("all")),
        ] {
            let found = [Trusted::Own, Trusted::Chosen].map(|trusted| open(user, owner, group, mode, trusted));
            assert_eq!(found, [secret, chosen], "user {user}: {owner}:{group} {mode:o}");
        }
    }

    #[test]
    fn the_folders_of_links_count_too() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let root = folder.path().canonicalize().expect("it exists");
        for name in ["config", "data", "keys"] {
            fs::create_dir(root.join(name)).expect("created");
        }
        symlink("../data/./key", root.join("config/key")).expect("linked");
        symlink(root.join("keys/real"), root.join("data/key")).expect("linked");
        let on_the_way = on_the_way(&root.join("config/key"));
        let inside: Vec<_> = on_the_way.iter().filter_map(|folder| folder.strip_prefix(&root).ok()).collect();
        assert_eq!(inside, [Path::new("keys"), Path::new("data"), Path::new("config"), Path::new("")]);
        assert_eq!(on_the_way.last().map(PathBuf::as_path), Some(Path::new("/")));
    }

    #[test]
    fn a_circle_of_links_ends() {
        let folder = tempfile::TempDir::new().expect("a folder");
        symlink("b", folder.path().join("a")).expect("linked");
        symlink("a", folder.path().join("b")).expect("linked");
        assert!(on_the_way(&folder.path().join("a")).contains(&folder.path().to_owned()));
    }
}
