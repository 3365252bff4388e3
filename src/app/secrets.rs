//! The secrets that come from outside the store: root secrets and the admin token. What is missing is made, once.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::admin::{self, SecretSource};
use crate::bearer;
use crate::family::refresh_token::Roots;
use crate::ids::{from_base62, to_base62};
use crate::secret::{self, Secret};

/// The root secrets: lines of a number and 43 base62 characters, the newest last.
pub(super) fn read_roots(source: &SecretSource) -> Result<Roots, String> {
    parse_roots(source, &read(source, || format!("1 {}\n", new_secret_text()))?)
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
        let (number, secret) = root.ok_or_else(|| format!("{source}, line {place}: not a number and a secret"))?;
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
        assert_eq!((roots.newest(), roots.secrets().count()), (2, 2), "the last line is the newest");
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
