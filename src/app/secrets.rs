//! The secrets that come from outside the store: root secrets and the admin token. What is missing is made, once.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::admin::{self, SecretSource};
use crate::auth::bearer;
use crate::config::{Config, StoreSettings};
use crate::store::sqlite;
use crate::tokens::family::refresh_token::Roots;
use crate::types::ids::{from_base62, to_base62};
use crate::types::secret::{self, Secret};

/// The root secrets: lines of a number and 43 base62 characters, the newest last.
pub(super) fn read_roots(source: &SecretSource) -> Result<Roots, String> {
    parse_roots(source, &read(source, || format!("1 {}\n", new_secret_text()))?)
}

/// A store without its root secret is of no use, and a new one beside it would hide that: nothing is made.
pub(super) fn check_root_is_not_lost(store: &StoreSettings) -> Result<(), String> {
    let SecretSource::File(secret) = &store.secret else { return Ok(()) };
    if !matches!(secret.try_exists(), Ok(false)) {
        return Ok(());
    }
    // Of a file that cannot be read, that is the news, and not which secret it lacks.
    if !is_begun(store)? {
        return Ok(());
    }
    let (secret, database) = (secret.display(), store.sqlite.display());
    Err(format!(
        "store.secret_file: {secret} is gone, and the database {database} is of no use without it: put the file back from \
         its backup, or name the right one. If it is lost, remove {database} with its -wal and -shm: then both are made \
         anew, and everybody logs in again"
    ))
}

fn is_begun(store: &StoreSettings) -> Result<bool, String> {
    sqlite::is_initialized(&store.sqlite).map_err(|error| format!("store.sqlite: {error}"))
}

/// Everything that a start reads here is good, or missing and to be made; and so is the store, which a newer program may have
/// written.
pub(super) fn check(config: &Config) -> Result<(), String> {
    is_begun(&config.store)?;
    check_root_is_not_lost(&config.store)?;
    let exists = |source: &SecretSource| !matches!(source, SecretSource::File(path) if !path.exists());
    if exists(&config.store.secret) {
        roots_as_they_are(&config.store.secret)?;
    }
    if exists(&config.admin.token) {
        read_admin_token(&config.admin.token)?;
    }
    Ok(())
}

/// As [`read_roots`], but none is made.
pub(super) fn roots_as_they_are(source: &SecretSource) -> Result<Roots, String> {
    let text = match source {
        SecretSource::Environment(_) => read(source, String::new)?,
        SecretSource::File(path) => fs::read_to_string(path).map_err(|error| format!("{source}: {error}"))?,
    };
    parse_roots(source, &text)
}

fn parse_roots(source: &SecretSource, text: &str) -> Result<Roots, String> {
    let mut roots = Vec::new();
    let mut numbers = HashSet::new();
    for (place, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let root = parse_root(line);
        let (number, secret) = root.ok_or_else(|| {
            format!("{source}, line {place}: not a number and a secret; put the file of the root secret back from its backup")
        })?;
        if !numbers.insert(number) {
            // Tokens name their root secret by its number.
            return Err(format!("{source}, line {place}: the number {number} stands twice"));
        }
        roots.push((number, secret));
    }
    let mut roots = roots.into_iter();
    let first = roots.next().ok_or_else(|| format!("{source} holds no root secret"))?;
    Ok(Roots::new(first, roots.collect()))
}

/// Adds a root secret, the newest from then on, and answers its number. A running gateway goes on with those it has read. The
/// file is replaced whole: a crash leaves the old one or the new one, since one that is torn would log everybody out.
pub fn add_root(source: &SecretSource) -> Result<u8, String> {
    let SecretSource::File(path) = source else {
        return Err(format!("{source} is nothing that can be written: add a line with another number to its value"));
    };
    let fault = |error: io::Error| format!("{source}: {error}");
    let text = fs::read_to_string(path).map_err(fault)?;
    let roots = parse_roots(source, &text)?;
    let number = (1..=u8::MAX).rev().find(|number| roots.find(*number).is_some()).unwrap_or_default();
    let number = number.checked_add(1).or_else(|| (1..=u8::MAX).find(|number| roots.find(*number).is_none()));
    let number =
        number.ok_or_else(|| format!("{source} has every number there is: remove a line that is of no use"))?;
    let text = format!("{}\n{number} {}\n", text.trim_end(), new_secret_text());
    let mut beside = path.clone().into_os_string();
    beside.push(".new");
    let beside = Path::new(&beside);
    secret::write_private(beside, text.as_bytes()).map_err(fault)?;
    fs::rename(beside, path).map_err(fault)?;
    Ok(number)
}

fn parse_root(line: &str) -> Option<(u8, Secret)> {
    let (number, secret) = line.trim().split_once(' ')?;
    let bytes: [u8; 32] = from_base62(secret.trim()).filter(|_| secret.trim().len() == 43)?;
    Some((number.parse().ok()?, Secret::new(bytes.to_vec())))
}

pub(super) fn read_admin_token(source: &SecretSource) -> Result<Secret, String> {
    let text = read(source, || format!("{}\n", new_secret_text()))?;
    let token = text.trim();
    if !(32..=admin::MOST_TOKEN).contains(&token.len()) || !bearer::is_sendable(token) {
        let most = admin::MOST_TOKEN;
        return Err(format!("{source}: the admin token has to be 32 to {most} letters, digits or any of -._~+/="));
    }
    Ok(Secret::new(token.as_bytes().to_vec()))
}

/// 256 random bits in base62.
fn new_secret_text() -> String {
    to_base62(&secret::random::<32>(), 43)
}

fn read(source: &SecretSource, make: impl FnOnce() -> String) -> Result<String, String> {
    match source {
        SecretSource::Environment(name) => std::env::var(name).map_err(|_| format!("{source} is not set")),
        SecretSource::File(path) => read_or_make(path, make).map_err(|error| format!("{source}: {error}")),
    }
}

fn read_or_make(path: &Path, make: impl FnOnce() -> String) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    let text = make();
    match secret::create_private(path, text.as_bytes()) {
        Ok(()) => {
            tracing::info!(file = %path.display(), "made a secret");
            Ok(text)
        }
        // Another start was faster. Its secret counts, for both.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::read_to_string(path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ONE: &str = "1 0000000000000000000000000000000000000000001";

    #[test]
    fn root_secrets_have_numbers_that_tell_them_apart() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("secret");
        let read = |text: &str| {
            fs::write(&file, text).expect("written");
            read_roots(&SecretSource::File(file.clone()))
        };
        let two = ONE.replacen('1', "2", 1);
        let roots = read(&format!("\n{ONE}\r\n  {two}  \n\n")).expect("they are good");
        assert_eq!((roots.newest(), roots.find(1).is_some()), (2, true), "the last line is the newest");
        for (text, says) in [
            (String::new(), "holds no root secret"),
            (format!("{ONE}\n{ONE}"), "line 2: the number 1 stands twice"),
            (format!("{ONE}\nx"), "line 2: not a number"),
            (ONE.replacen('1', "256", 1), "line 1: not a number"),
            (format!("{ONE}0"), "line 1: not a number"),
            (ONE.replace(' ', ""), "line 1: not a number"),
            (format!("1 {}", "z".repeat(43)), "line 1: not a number"),
        ] {
            let fault = read(&text).err().expect("it is refused");
            assert!(fault.contains(says) && fault.contains("secret"), "{fault}");
        }
    }

    #[test]
    fn a_root_secret_more_is_the_newest_and_the_older_stay() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("secret");
        let source = SecretSource::File(file.clone());
        assert!(add_root(&source).is_err(), "there is none that it could follow");
        for (text, number, count) in [
            (ONE.to_owned(), 2, 2),
            (format!("{}\n{}\n\n", ONE.replacen('1', "7", 1), ONE.replacen('1', "3", 1)), 8, 3),
            (format!("{}\n", ONE.replacen('1', "255", 1)), 1, 2),
        ] {
            fs::write(&file, &text).expect("written");
            assert_eq!(add_root(&source), Ok(number));
            let roots = roots_as_they_are(&source).expect("good");
            assert_eq!(roots.newest(), number);
            let lines = fs::read_to_string(&file).expect("there");
            assert!(lines.starts_with(text.trim_end()) && lines.lines().count() == count, "{lines}");
            assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
        }
        fs::write(&file, "x").expect("written");
        assert!(add_root(&source).is_err_and(|fault| fault.contains("line 1")));
        assert!(add_root(&SecretSource::Environment("SECRET".into())).is_err_and(|fault| fault.contains("SECRET")));
    }

    #[test]
    fn a_secret_is_made_once_and_for_its_owner_alone() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("admin.token");
        let source = SecretSource::File(file.clone());
        let made = read_admin_token(&source).expect("it is made");
        assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert!(read_admin_token(&source).expect("it is read").matches(made.expose()));
        assert!(secret::create_private(&file, b"another").is_err(), "what is there is not written over");
        for token in ["", "short", "with a space in a token of thirty-two characters", &"x".repeat(1025)] {
            fs::write(&file, token).expect("written");
            assert!(read_admin_token(&source).is_err(), "{token}");
        }
    }
}
