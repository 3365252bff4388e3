//! The root secrets: lines of a number and 43 base62 characters, the newest last.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::error::StartError;
use super::secrets::{SecretError, is_missing, new_secret_text, read, read_admin_token, read_or_create};
use super::stored;
use crate::admin::SecretSource;
use crate::config::{Config, Database, StoreSettings};
use crate::store::postgres::{self, RootsFound};
use crate::store::sqlite;
use crate::tokens::family::refresh_token::Roots;
use crate::types::clock::UnixTime;
use crate::types::ids::from_base62;
use crate::types::owner;
use crate::types::secret::{self, Secret};

/// Reads the root secrets, or creates the file with the first one.
pub(super) fn read_roots(source: &SecretSource) -> Result<Roots, SecretError> {
    parse_roots(source, &read_or_create(source, || format!("1 {}\n", new_secret_text()))?)
}

/// As [`read_roots`], but creates nothing.
pub(super) fn read_existing_roots(source: &SecretSource) -> Result<Roots, SecretError> {
    parse_roots(source, &read(source)?)
}

/// Fails if the store or its root secret is lost: neither can be used without the other, and a new one would hide that.
/// Returns a warning if the store may be lost: a database begins anew with a root secret that is there already, which
/// the operator may have provided.
pub(super) fn check_is_not_lost(store: &StoreSettings) -> Result<Option<String>, StartError> {
    if let SecretSource::File(secret) = &store.secret
        && is_missing(secret)
    {
        // First whether it is a database: for any other file, that is the error to report.
        return if stored::has_data(store, store.start_patience)? {
            Err(SecretError::RootLost { file: secret.clone(), database: store.database.clone() }.into())
        } else {
            Ok(None)
        };
    }
    let Database::Sqlite(file) = &store.database else { return Ok(None) };
    let is_new = sqlite::is_new(file).map_err(|error| stored::open_error(store, error))?;
    Ok(if is_new { lost(store) } else { None })
}

/// What a new store means beside a root secret. `None` for one in a variable: it is always there, also at the first
/// start.
fn lost(store: &StoreSettings) -> Option<String> {
    let SecretSource::File(secret) = &store.secret else { return None };
    Some(format!(
        "{} is new, but its root secret {} is not: unless this is the first start, the data is lost: revoked tokens are \
         accepted again until they expire, and all sessions, API keys and sign-ins have ended; to restore the data, \
         see deploy/backup.md",
        store.database,
        secret.display()
    ))
}

/// Compares the root secrets with those of a store that several gateways share. Call it when the store is open.
///
/// `is_old`: the root secret was there before this start.
pub(super) fn agree(store: &StoreSettings, roots: Roots, is_old: bool, now: UnixTime) -> Result<Roots, StartError> {
    let Some(settings) = store.postgres() else { return Ok(roots) };
    let found = postgres::compare_roots(settings, stored::encryption(settings)?, roots.checks(), now);
    let secret = || store.secret.clone();
    match found.map_err(|error| stored::read_error(store, error))? {
        RootsFound::First(number) => {
            if is_old && let Some(warning) = lost(store) {
                tracing::warn!("{warning}");
            }
            Ok(roots.with_newest(number))
        }
        RootsFound::Newest(number) => {
            if number != roots.newest() {
                tracing::info!(
                    number = roots.newest(),
                    "a new root secret is used after the next start, when every gateway knows it"
                );
            }
            Ok(roots.with_newest(number))
        }
        RootsFound::Different(number) => Err(SecretError::OtherRoot { secret: secret(), number }.into()),
        RootsFound::Missing(number) => Err(SecretError::RootMissing { secret: secret(), number }.into()),
    }
}

/// Returns false for a file that the start creates.
pub(super) fn exists(source: &SecretSource) -> bool {
    !matches!(source, SecretSource::File(file) if is_missing(file))
}

/// Checks everything that a start reads before it opens the store. Missing files are valid, and a database of a newer
/// version is not.
pub(super) fn check(config: &Config) -> Result<(), StartError> {
    stored::has_data(&config.store, config.store.start_patience)?;
    check_is_not_lost(&config.store)?;
    if exists(&config.store.secret) {
        read_existing_roots(&config.store.secret)?;
    }
    if exists(&config.admin.token) {
        read_admin_token(&config.admin.token)?;
    }
    Ok(())
}

fn parse_roots(source: &SecretSource, text: &str) -> Result<Roots, SecretError> {
    let mut roots = Vec::new();
    let mut numbers = HashSet::new();
    for (place, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let invalid = || SecretError::InvalidRoot { secret: source.clone(), line: place };
        let (number, secret) = parse_root(line).ok_or_else(invalid)?;
        if !numbers.insert(number) {
            return Err(SecretError::DuplicateRoot { secret: source.clone(), line: place, number });
        }
        roots.push((number, secret));
    }
    let mut roots = roots.into_iter();
    let first = roots.next().ok_or_else(|| SecretError::NoRoot(source.clone()))?;
    Ok(Roots::new(first, roots.collect()))
}

fn parse_root(line: &str) -> Option<(u8, Secret)> {
    let (number, secret) = line.trim().split_once(' ')?;
    let secret = secret.trim();
    if secret.len() != 43 {
        return None;
    }
    let bytes: [u8; 32] = from_base62(secret)?;
    Some((number.parse().ok()?, Secret::new(bytes.to_vec())))
}

/// Adds a root secret as the newest, and returns its number. A running gateway continues with those that it has read.
///
/// The file is replaced by a rename: a crash leaves the old file or the new one. A part of it would end every session.
pub fn add_root(source: &SecretSource) -> Result<u8, SecretError> {
    let SecretSource::File(file) = source else { return Err(SecretError::NotAFile(source.clone())) };
    let text = read(source)?;
    let roots = parse_roots(source, &text)?;
    let number = free_number(&roots).ok_or_else(|| SecretError::NoFreeNumber(source.clone()))?;
    if is_credential(file) {
        return Err(SecretError::Credential { file: file.clone(), number });
    }
    let text = format!("{}\n{number} {}\n", text.trim_end(), new_secret_text());
    let mut new_file = file.clone().into_os_string();
    new_file.push(".new");
    let written = replace(file, Path::new(&new_file), text.as_bytes());
    written.map_err(|source| SecretError::Write { file: file.clone(), source })?;
    Ok(number)
}

/// Replaces the content of a file by way of a new one, which the owner of the file gets.
fn replace(file: &Path, by: &Path, content: &[u8]) -> io::Result<()> {
    // What a killed command has left, or a link of the owner of the folder, which root must not follow.
    match fs::remove_file(by) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let new = secret::create_private(by, content)?;
    owner::keep(&new, &fs::metadata(file)?)?;
    fs::rename(by, file)
}

/// Credentials of systemd are copies, which it keeps read-only.
fn is_credential(file: &Path) -> bool {
    std::env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|folder| !folder.is_empty() && file.starts_with(folder))
}

/// The number after the highest one, or else the lowest one that is not used.
fn free_number(roots: &Roots) -> Option<u8> {
    let is_used = |number: &u8| roots.find(*number).is_some();
    let highest = (1..=u8::MAX).rev().find(is_used).unwrap_or_default();
    highest.checked_add(1).or_else(|| (1..=u8::MAX).find(|number| !is_used(number)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ONE: &str = "1 0000000000000000000000000000000000000000001";

    #[test]
    fn each_root_secret_has_its_own_number() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("secret");
        let read = |text: &str| {
            secret::write_private(&file, text.as_bytes()).expect("written");
            read_roots(&SecretSource::File(file.clone()))
        };
        let two = ONE.replacen('1', "2", 1);
        let roots = read(&format!("\n{ONE}\r\n  {two}  \n\n")).expect("they are valid");
        assert_eq!((roots.newest(), roots.find(1).is_some()), (2, true), "the last line is the newest");
        for (text, says) in [
            (String::new(), "has no root secret"),
            (format!("{ONE}\n{ONE}"), "line 2: the number 1 is used twice"),
            (format!("{ONE}\nx"), "line 2: expected a number"),
            (ONE.replacen('1', "256", 1), "line 1: expected a number"),
            (format!("{ONE}0"), "line 1: expected a number"),
            (ONE.replace(' ', ""), "line 1: expected a number"),
            (format!("1 {}", "z".repeat(43)), "line 1: expected a number"),
        ] {
            let error = read(&text).err().expect("it is invalid").to_string();
            assert!(error.contains(says) && error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_added_root_secret_is_the_newest_and_the_older_ones_stay() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("secret");
        let source = SecretSource::File(file.clone());
        assert!(add_root(&source).is_err(), "there is no file");
        for (text, number, count) in [
            (ONE.to_owned(), 2, 2),
            (format!("{}\n{}\n\n", ONE.replacen('1', "7", 1), ONE.replacen('1', "3", 1)), 8, 3),
            (format!("{}\n", ONE.replacen('1', "255", 1)), 1, 2),
        ] {
            secret::write_private(&file, text.as_bytes()).expect("written");
            assert_eq!(add_root(&source).expect("added"), number);
            let roots = read_existing_roots(&source).expect("valid");
            assert_eq!(roots.newest(), number);
            let lines = fs::read_to_string(&file).expect("it exists");
            assert!(lines.starts_with(text.trim_end()) && lines.lines().count() == count, "{lines}");
            assert_eq!(fs::metadata(&file).expect("it exists").permissions().mode() & 0o777, 0o600);
        }
        secret::write_private(&file, b"x").expect("written");
        let says =
            |source: &SecretSource, part: &str| add_root(source).is_err_and(|error| error.to_string().contains(part));
        assert!(says(&source, "line 1"));
        assert!(says(&SecretSource::Environment("SECRET".into()), "SECRET"));
    }
}
