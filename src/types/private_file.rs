//! The modes and owners that a file may have: one with a secret, and one that only decides what the gateway trusts.
//!
//! A file with a secret:
//!
//! | part of the mode | accepted |
//! |---|---|
//! | owner | the user of the process, or root; a process of root accepts any owner |
//! | others | never |
//! | group, a file that the operator provides | root's group, or a group of the process; a process of root accepts any group that can only read |
//! | group, a file that the gateway creates | root's group, read-only (credentials of systemd), or a group of the process that also owns the folder with the setgid bit (`fsGroup` of Kubernetes) |
//!
//! For the folders of both, see [`super::folders`].

use std::fmt;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::types::folders::{self, Facts, OpenFolder, Trusted};
use crate::types::owner::{self, User};
use crate::types::process::{self, ROOT};
use crate::types::regular_file;

/// Who creates the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCreator {
    Gateway,
    Operator,
}

/// Other users than the gateway's own can read or replace a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {advice}")]
pub struct LaxFile {
    pub problem: String,
    /// What to do: mostly a command.
    pub advice: String,
}

/// Fails if other users can read, write or replace this file with a secret. A file that cannot be read has another
/// error, which reading it reports. Pipes and devices are not checked.
pub fn check(path: &Path, creator: FileCreator) -> Result<(), LaxFile> {
    match fs::metadata(path).ok().filter(Metadata::is_file) {
        Some(file) => check_found(path, &file, creator),
        None => Ok(()),
    }
}

fn check_found(path: &Path, file: &Metadata, creator: FileCreator) -> Result<(), LaxFile> {
    // The folder of the file itself, not of a link to it.
    let folder = fs::canonicalize(path).ok().and_then(|path| fs::metadata(path.parent()?).ok());
    let group_folder = folder.is_some_and(|folder| folder.mode() & 0o2000 != 0 && folder.gid() == file.gid());
    check_facts(path, creator, &Facts::of(file), group_folder)?;
    check_folder(path)
}

/// Fails if every user can write or replace this file. It has no secret, and decides what the gateway trusts: the
/// configuration, public keys and certificates. Its owner and group are those that the operator has chosen.
pub fn check_trusted(path: &Path) -> Result<(), LaxFile> {
    match fs::metadata(path).ok().filter(Metadata::is_file) {
        Some(file) => check_trusted_found(path, &file),
        None => Ok(()),
    }
}

fn check_trusted_found(path: &Path, file: &Metadata) -> Result<(), LaxFile> {
    let mode = file.mode() & 0o777;
    if mode & 0o002 != 0 {
        let problem = format!("every user of this machine can change {} (mode {mode:04o})", path.display());
        return Err(LaxFile { problem, advice: format!("run: chmod o-w {}", quoted(path)) });
    }
    folders::check(path, Trusted::Chosen).map_err(open_folder)
}

/// Fails if every user can add a file to this folder, of which all files are read. The sticky bit does not stop that.
pub fn check_listed(folder: &Path) -> Result<(), LaxFile> {
    let mode = fs::metadata(folder).map_or(0, |found| found.mode() & 0o7777);
    if mode & 0o002 == 0 || process::is_read_only(folder) {
        return Ok(());
    }
    let problem = format!("every user of this machine can add files to {} (mode {mode:04o})", folder.display());
    Err(LaxFile { problem, advice: format!("run: chmod o-w {}", quoted(folder)) })
}

/// Reads a file with a secret that passes [`check`].
pub fn read(path: &Path, creator: FileCreator) -> io::Result<Vec<u8>> {
    read_checked(path, |file, _| check_found(path, file, creator))
}

/// Reads a file of the operator that passes [`check_trusted`], and [`check`] if its content is a secret.
pub fn read_trusted(path: &Path, is_secret: impl FnOnce(&[u8]) -> bool) -> io::Result<Vec<u8>> {
    read_checked(path, |file, content| {
        check_trusted_found(path, file)?;
        if is_secret(content) { check_found(path, file, FileCreator::Operator) } else { Ok(()) }
    })
}

/// As [`read`], for text.
pub fn read_to_string(path: &Path, creator: FileCreator) -> io::Result<String> {
    String::from_utf8(read(path, creator)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// What is checked is the file that is read, also if another one gets its name meanwhile.
fn read_checked(path: &Path, check: impl FnOnce(&Metadata, &[u8]) -> Result<(), LaxFile>) -> io::Result<Vec<u8>> {
    let mut file = regular_file::open(path)?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let checked = check(&file.metadata()?, &content);
    checked.map_err(|lax| io::Error::new(io::ErrorKind::PermissionDenied, lax))?;
    Ok(content)
}

/// `group_folder`: the folder belongs to the group of the file and has the setgid bit.
fn check_facts(path: &Path, creator: FileCreator, facts: &Facts, group_folder: bool) -> Result<(), LaxFile> {
    let shown = path.display();
    let mode = facts.mode & 0o777;
    let lax = |problem: String| Err(LaxFile { problem, advice: advice(path, creator, facts) });
    if facts.is_of_another() {
        return lax(format!("{shown} belongs to {}, who can read it", User(facts.owner)));
    }
    if mode & 0o007 != 0 {
        return lax(format!("every user of this machine can use {shown} (mode {mode:04o})"));
    }
    if mode & 0o070 != 0 && !accepts_group(creator, facts, group_folder) {
        return lax(format!("the users of group {} can use {shown} (mode {mode:04o})", facts.group));
    }
    Ok(())
}

fn accepts_group(creator: FileCreator, facts: &Facts, group_folder: bool) -> bool {
    let only_reads = facts.mode & 0o030 == 0;
    let is_of_root = facts.group == ROOT && only_reads;
    match creator {
        FileCreator::Operator => is_of_root || facts.is_member || (facts.user == ROOT && only_reads),
        FileCreator::Gateway => is_of_root || (facts.is_member && group_folder),
    }
}

/// A command after which the process can still read the file.
fn advice(path: &Path, creator: FileCreator, facts: &Facts) -> String {
    let file = quoted(path);
    let take = format!("chown {} {file} && chmod 600 {file}", facts.user);
    if facts.owner == facts.user || facts.user == ROOT {
        format!("run: chmod 600 {file}")
    } else if facts.owner == ROOT && facts.is_member && creator == FileCreator::Operator {
        format!("run: chmod 640 {file}")
    } else if facts.is_of_another() {
        owner::of_another(facts.owner, facts.user, &take)
    } else {
        format!("run: {take}")
    }
}

/// Fails if other users can remove or replace this file, which may not exist yet.
pub fn check_folder(path: &Path) -> Result<(), LaxFile> {
    folders::check(path, Trusted::Own).map_err(open_folder)
}

fn open_folder(folder: OpenFolder) -> LaxFile {
    LaxFile { problem: folder.to_string(), advice: folder.advice(|path| quoted(path).to_string()) }
}

/// One word for a shell.
fn quoted(path: &Path) -> PathForShell<'_> {
    PathForShell(path)
}

struct PathForShell<'p>(&'p Path);

impl fmt::Display for PathForShell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.0.display().to_string();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
        if path.chars().all(is_plain) { f.write_str(&path) } else { write!(f, "'{}'", path.replace('\'', r"'\''")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 1000;

    fn mended(creator: FileCreator, facts: Facts, group_folder: bool) -> Option<String> {
        check_facts(Path::new("/etc/key.pem"), creator, &facts, group_folder).err().map(|lax| lax.advice)
    }

    #[test]
    fn a_secret_of_the_gateway_is_for_its_user_only() {
        let mend = |facts| mended(FileCreator::Gateway, facts, false);
        let chmod = Some("run: chmod 600 /etc/key.pem".to_owned());
        let chown = Some("run: chown 1000 /etc/key.pem && chmod 600 /etc/key.pem".to_owned());
        let take = "chown 1000 /etc/key.pem && chmod 600 /etc/key.pem";
        let run_as = Some(owner::of_another(2000, OWN, take));
        for (case, facts, mend_with) in [
            ("created by the gateway", Facts::example(OWN, OWN, OWN, 0o600), None),
            ("read-only", Facts::example(OWN, OWN, OWN, 0o400), None),
            ("the group", Facts::example(OWN, OWN, OWN, 0o640), chmod.clone()),
            ("all users", Facts::example(OWN, OWN, OWN, 0o604), chmod.clone()),
            ("all users can write", Facts::example(OWN, OWN, OWN, 0o602), chmod.clone()),
            ("another owner", Facts::example(OWN, 2000, OWN, 0o600), run_as.clone()),
            ("another owner, for all users", Facts::example(OWN, 2000, OWN, 0o604), run_as),
            ("a credential of systemd", Facts::example(OWN, ROOT, ROOT, 0o440), None),
            ("root's, for all users", Facts::example(OWN, ROOT, ROOT, 0o444), chown),
            ("root reads the gateway's", Facts::example(ROOT, OWN, OWN, 0o600), None),
            ("root, a group", Facts::example(ROOT, ROOT, OWN, 0o640), chmod),
        ] {
            assert_eq!(mend(facts), mend_with, "{case}");
        }
        let volume = |group_folder, is_member| {
            mended(FileCreator::Gateway, Facts { is_member, ..Facts::example(OWN, OWN, 2000, 0o660) }, group_folder)
        };
        assert_eq!(volume(true, true), None, "fsGroup of Kubernetes");
        assert!(volume(false, true).is_some() && volume(true, false).is_some());
    }

    #[test]
    fn a_file_of_the_operator_may_be_for_the_group_of_the_gateway() {
        let mend = |facts| mended(FileCreator::Operator, facts, false);
        assert_eq!(mend(Facts::example(OWN, ROOT, OWN, 0o640)), None, "as install.md says");
        assert_eq!(
            mend(Facts::example(OWN, ROOT, 2000, 0o440)).as_deref(),
            Some("run: chown 1000 /etc/key.pem && chmod 600 /etc/key.pem")
        );
        assert_eq!(
            mend(Facts::example(OWN, ROOT, OWN, 0o644)).as_deref(),
            Some("run: chmod 640 /etc/key.pem"),
            "it stays readable"
        );
        assert_eq!(mend(Facts::example(ROOT, ROOT, 2000, 0o640)), None, "ssl-cert of Debian");
        assert!(mend(Facts::example(ROOT, ROOT, 2000, 0o660)).is_some());
        assert!(mend(Facts::example(OWN, 2000, OWN, 0o640)).is_some());
    }

    #[test]
    fn a_command_names_any_path_as_one_word() {
        assert_eq!(quoted(Path::new("/etc/key.pem")).to_string(), "/etc/key.pem");
        assert_eq!(quoted(Path::new("/a b/it's")).to_string(), r"'/a b/it'\''s'");
    }
}
