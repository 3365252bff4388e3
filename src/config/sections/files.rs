//! Files that the configuration names: files that must exist, and files that the gateway creates.
//!
//! A check changes nothing: it creates, locks and truncates no file.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::admin::SecretSource;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::tree::is_variable_name;
use crate::types::barrier;
use crate::types::private_file::{self, FileCreator, LaxFile};
use crate::types::regular_file;

/// Minimum length of a secret that only programs send, in characters.
const MIN_SECRET: usize = 32;

/// What to do about an empty secret that nothing depends on.
pub(super) const NEW_SECRET: &str = "remove the file; the gateway then creates a new secret";

/// The contents of a file that must exist.
pub(super) fn contents(path: &Path) -> Result<Vec<u8>, ConfigError> {
    regular_file::read(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound => ConfigError::new(format!("{shown} does not exist"), "expected an existing file")
            .help("check the path; a relative path starts at the folder of the configuration file"),
        ErrorKind::PermissionDenied => ConfigError::new(
            format!("no permission to read {shown}"),
            "expected a file that the user of the gateway can read",
        )
        .help(barrier::advice(path)),
        ErrorKind::IsADirectory => ConfigError::new(format!("{shown} is a folder"), "expected a file"),
        _ => ConfigError::new(format!("cannot read {shown}: {error}"), "expected a readable file"),
    }
}

/// A file that the gateway creates later. The file may be missing, its folder must exist.
pub(super) fn can_create(path: &Path) -> Result<(), ConfigError> {
    if path.is_dir() {
        return Err(ConfigError::new(format!("{} is a folder", path.display()), "expected a file"));
    }
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Ok(()),
    };
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(unreadable(folder, &error)),
        _ => {}
    }
    let shown = folder.display();
    Err(ConfigError::new(format!("the folder {shown} does not exist"), "expected a file in an existing folder")
        .help(format!("create the folder: mkdir -p {shown}")))
}

/// Checks that no other user can read or replace this file.
pub(super) fn private(path: &Path, creator: FileCreator) -> Result<(), ConfigError> {
    private_file::check(path, creator).map_err(lax)
}

/// Checks that no other user can replace this file, which the gateway creates.
pub(super) fn in_private_folder(path: &Path) -> Result<(), ConfigError> {
    private_file::check_folder(path).map_err(lax)
}

/// The contents of a file without a secret that decides what the gateway trusts.
pub(super) fn trusted_contents(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let contents = contents(path)?;
    private_file::check_trusted(path).map_err(|file| writable(&file))?;
    Ok(contents)
}

/// The error for a file that every user can write.
pub(crate) fn writable(file: &LaxFile) -> ConfigError {
    ConfigError::new(file.problem.clone(), "expected a file that only its owner and group can write")
        .help(file.advice.clone())
}

fn lax(file: LaxFile) -> ConfigError {
    ConfigError::new(file.problem, "expected a secret that only the user of the gateway can use").help(file.advice)
}

/// The contents of a file of the operator with a secret.
pub(super) fn secret_contents(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let contents = contents(path)?;
    private(path, FileCreator::Operator)?;
    Ok(contents)
}

/// A secret that only a program sends. A short one can be guessed, and the gateway limits no caller with the right one.
pub(super) fn random_secret(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let secret = secret_contents(path)?;
    let shown = path.display();
    let trimmed = secret.trim_ascii();
    if trimmed.len() < MIN_SECRET || !trimmed.iter().all(u8::is_ascii_graphic) {
        let problem = format!("the secret in {shown} is not {MIN_SECRET} or more printable ASCII characters");
        return Err(ConfigError::new(problem, "expected a random secret")
            .help(format!("create one: (umask 077; head -c 32 /dev/urandom | base64 > {shown})")));
    }
    Ok(secret)
}

/// A secret from one of two keys: a file, which may not exist yet, or an environment variable. `if_empty`: what to do
/// if the file is empty.
pub(super) fn secret(
    table: &mut Table<'_>,
    file_key: &'static str,
    variable_key: &'static str,
    default_file: &str,
    if_empty: &str,
) -> SecretSource {
    let source = one_source(table, file_key, variable_key);
    let source = source.unwrap_or_else(|| {
        let file = table.report().base().join(default_file);
        table.default(file_key, file.display().to_string());
        SecretSource::File(file)
    });
    if let SecretSource::File(path) = &source {
        // The gateway creates its secrets, but no credentials.
        let exists = if table.is_credential(file_key) { contents(path).map(drop) } else { Ok(()) };
        table.accept(file_key, exists.and_then(|()| secret_file(path, if_empty)));
    }
    source
}

/// A file or an environment variable, if one of the keys names it. The variable must be set.
fn one_source(table: &mut Table<'_>, file_key: &'static str, variable_key: &'static str) -> Option<SecretSource> {
    let file = table.path(file_key);
    let variable = table
        .take(variable_key, Shape::Pattern("^[A-Za-z_][A-Za-z0-9_]*$"))
        .and_then(|value| value.parse(variable_name));
    if table.has(file_key) && table.has(variable_key) {
        let error =
            ConfigError::new("the secret has two sources", format!("expected `{file_key}` or `{variable_key}`"));
        table.reject(variable_key, error.related(&table.place(file_key), "also set here"));
    }
    if let Some(name) = variable {
        table.accept(variable_key, variable_is_set(&name));
        return Some(SecretSource::Environment(name));
    }
    file.map(SecretSource::File)
}

/// A secret of the operator from one of two keys, both of which may be missing. The file must exist.
pub(super) fn operator_secret(
    table: &mut Table<'_>,
    file_key: &'static str,
    variable_key: &'static str,
) -> Option<SecretSource> {
    let source = one_source(table, file_key, variable_key)?;
    if let SecretSource::File(path) = &source {
        let contents = table.accept(file_key, secret_contents(path));
        if contents.is_some_and(|contents| contents.trim_ascii().is_empty()) {
            let error = ConfigError::new(format!("{} is empty", path.display()), "expected a file with a secret");
            table.reject(file_key, error);
        }
    }
    Some(source)
}

fn secret_file(path: &Path, if_empty: &str) -> Result<(), ConfigError> {
    if !path.exists() {
        return can_create(path).and_then(|()| in_private_folder(path));
    }
    let contents = contents(path)?;
    if contents.trim_ascii().is_empty() {
        return Err(
            ConfigError::new(format!("{} is empty", path.display()), "expected a file with a secret").help(if_empty)
        );
    }
    private(path, FileCreator::Gateway)
}

fn variable_name(text: &str) -> Result<String, ConfigError> {
    if is_variable_name(text) {
        return Ok(text.to_owned());
    }
    Err(ConfigError::new(
        "this is not the name of an environment variable",
        "expected letters, digits and underscores, for example \"BEARWARD_SECRET\"",
    )
    .help("do not write the secret itself here; name the variable that contains it")
    .confidential())
}

fn variable_is_set(name: &str) -> Result<(), ConfigError> {
    match std::env::var_os(name) {
        Some(value) if !value.is_empty() => Ok(()),
        Some(_) => Err(ConfigError::new(
            format!("the environment variable {name} is empty"),
            "expected a variable with a secret",
        )),
        None => Err(ConfigError::new(
            format!("the environment variable {name} is not set"),
            "expected a variable that is set",
        )
        .help("set it; with systemd, use EnvironmentFile= or LoadCredential= in the unit")),
    }
}
