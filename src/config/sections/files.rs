//! Files that the configuration names: those that must be there, and those that the gateway makes.
//!
//! Looking changes nothing: no file is created, locked or truncated to see whether that would work.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::admin::SecretSource;
use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;

/// The contents of a file that must be there.
pub(super) fn contents(path: &Path) -> Result<Vec<u8>, ConfigError> {
    fs::read(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound => ConfigError::new(format!("{shown} does not exist"), "expected a file that is there")
            .help("a relative path begins at the folder of the configuration file"),
        ErrorKind::PermissionDenied => ConfigError::new(
            format!("{shown} must not be read by this user"),
            "expected a file that the gateway's user may read",
        )
        .help("change its owner or mode, and look at the folders above it too"),
        ErrorKind::IsADirectory => ConfigError::new(format!("{shown} is a folder"), "expected a file"),
        _ => ConfigError::new(format!("{shown} cannot be read: {error}"), "expected a file that can be read"),
    }
}

/// A file that the gateway opens or makes later: it may be missing, its folder may not.
pub(super) fn can_create(path: &Path) -> Result<(), ConfigError> {
    if path.is_dir() {
        return Err(ConfigError::new(format!("{} is a folder", path.display()), "expected a file"));
    }
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Ok(()),
    };
    if folder.is_dir() {
        return Ok(());
    }
    let shown = folder.display();
    Err(ConfigError::new(format!("the folder {shown} does not exist"), "expected a file in a folder that is there")
        .help(format!("make it: mkdir -p {shown}")))
}

/// A secret from one of two keys: a file, which may not be there yet, or a variable of the environment.
pub(super) fn secret(
    table: &mut Table<'_>,
    file_key: &'static str,
    variable_key: &'static str,
    default_file: &str,
) -> SecretSource {
    let file = table.path(file_key);
    let variable = table.take(variable_key).and_then(|value| value.parse(variable_name));
    if table.has(file_key) && table.has(variable_key) {
        let error =
            ConfigError::new("the secret comes from two places", format!("expected `{file_key}` or `{variable_key}`"));
        table.reject(variable_key, error.related(&table.place(file_key), "the other one is here"));
    }
    if let Some(name) = variable {
        table.accept(variable_key, variable_is_set(&name));
        return SecretSource::Environment(name);
    }
    let path = file.unwrap_or_else(|| table.report().base().join(default_file));
    table.accept(file_key, secret_file(&path));
    SecretSource::File(path)
}

fn secret_file(path: &Path) -> Result<(), ConfigError> {
    if !path.exists() {
        return can_create(path);
    }
    let contents = contents(path)?;
    if contents.trim_ascii().is_empty() {
        return Err(ConfigError::new(format!("{} is empty", path.display()), "expected a file with a secret in it")
            .help("remove the file, and the gateway makes one"));
    }
    Ok(())
}

fn variable_name(text: &str) -> Result<String, ConfigError> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !text.is_empty() && text.bytes().all(word) && !text.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(text.to_owned());
    }
    Err(ConfigError::new(
        "this is not the name of an environment variable",
        "expected letters, digits and underscores, as \"BEARWARD_SECRET\"",
    )
    .help("the secret itself never stands in this file; name the variable that holds it")
    .confidential())
}

fn variable_is_set(name: &str) -> Result<(), ConfigError> {
    match std::env::var_os(name) {
        Some(value) if !value.is_empty() => Ok(()),
        Some(_) => Err(ConfigError::new(
            format!("the environment variable {name} is empty"),
            "expected one with a secret in it",
        )),
        None => {
            Err(ConfigError::new(format!("the environment variable {name} is not set"), "expected one that is set")
                .help("with systemd: EnvironmentFile= or LoadCredential= in the unit"))
        }
    }
}
