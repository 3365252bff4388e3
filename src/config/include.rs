//! `include`: further files of the configuration.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::config::document::error::{ConfigError, Place};
use crate::config::document::tree::SourceFile;
use crate::config::sections;
use crate::types::barrier;
use crate::types::private_file;
use crate::types::regular_file;

/// Maximum number of included files.
const MAX_FILES: usize = 1_000;

/// The main file and the files that it includes, each in the order in which it is read. A file that cannot be read is
/// left out, with an error.
pub(super) fn with_included(main: SourceFile, path: &Path, base: &Path) -> (Vec<SourceFile>, Vec<ConfigError>) {
    let text = main.text.clone();
    let (tree, _) = DeTable::parse_recoverable(&text);
    let list = tree.get_ref().get("include").and_then(|value| value.get_ref().as_array());
    let mut files = vec![main];
    let mut errors = Vec::new();
    let mut known = HashSet::from([real(path)]);
    for (index, item) in list.into_iter().flatten().enumerate() {
        let place = Place { key: format!("include[{index}]"), span: Some(item.span()) };
        let pattern = match item.get_ref() {
            DeValue::String(pattern) => pattern,
            DeValue::Table(_) => {
                let error = ConfigError::new("`include` has no variables", "expected the path of a file in quotes");
                errors.push(error.at(&place));
                continue;
            }
            // The reader reports another type.
            _ => continue,
        };
        let found = expand(&base.join(pattern.as_ref())).unwrap_or_else(|error| {
            errors.push(error.at(&place));
            Vec::new()
        });
        for file in found {
            match if known.insert(real(&file)) { read(&file) } else { Err(twice(&file)) } {
                _ if files.len() > MAX_FILES => {
                    errors.push(ConfigError::new("too many files", format!("expected at most {MAX_FILES}")).at(&place));
                    break;
                }
                Ok(source) => files.push(source),
                Err(error) => errors.push(error.at(&place)),
            }
        }
    }
    (files, errors)
}

/// The files that these patterns match now.
pub fn included(patterns: &[PathBuf]) -> Vec<PathBuf> {
    patterns.iter().flat_map(|pattern| expand(pattern).unwrap_or_default()).collect()
}

/// The files that match, by name. A name may contain `*`, its folder may not.
fn expand(pattern: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let shown = pattern.display();
    let (Some(folder), Some(name)) = (pattern.parent(), pattern.file_name().and_then(|name| name.to_str())) else {
        return Err(ConfigError::new(format!("{shown} names no file"), "expected a file, such as \"conf.d/*.toml\""));
    };
    if !name.contains('*') {
        return Ok(vec![pattern.to_owned()]);
    }
    if folder.to_string_lossy().contains('*') {
        let error = ConfigError::new(format!("{shown} has a wildcard in a folder"), "expected `*` in the name only");
        return Err(error);
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let failed = |error: &io::Error| {
        let what = format!("cannot list {}: {error}", folder.display());
        let failed = ConfigError::new(what, "expected a folder that can be read");
        if error.kind() == ErrorKind::PermissionDenied { failed.help(barrier::advice(folder)) } else { failed }
    };
    private_file::check_listed(folder).map_err(|lax| {
        ConfigError::new(lax.problem, "expected a folder that only its owner and group can write").help(lax.advice)
    })?;
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(&error))? {
        let entry = entry.map_err(|error| failed(&error))?;
        // Editors and package managers keep drafts in hidden files.
        if entry.file_name().to_str().is_some_and(|file| !file.starts_with('.') && matches(name, file)) {
            found.push(pattern.with_file_name(entry.file_name()));
        }
    }
    found.sort();
    Ok(found)
}

/// `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    let ends = name.char_indices().map(|(index, _)| index).chain([name.len()]);
    ends.into_iter().any(|index| matches(rest, &name[index..]))
}

/// One path for each file, whatever links lead to it.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn twice(file: &Path) -> ConfigError {
    ConfigError::new(format!("{} is included twice", file.display()), "expected each file once")
        .help("change one of the patterns in `include`")
}

fn read(path: &Path) -> Result<SourceFile, ConfigError> {
    let name = path.display().to_string();
    let bytes = regular_file::read(path).map_err(|error| {
        let failed = ConfigError::new(format!("cannot read {name}: {error}"), "expected a readable file");
        match error.kind() {
            ErrorKind::PermissionDenied => failed.help(barrier::advice(path)),
            _ => failed.help("a relative path starts at the folder of the main file"),
        }
    })?;
    private_file::check_trusted(path).map_err(|lax| sections::writable(&lax))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(SourceFile { name, text }),
        Err(_) => Err(ConfigError::new(format!("{name} is not UTF-8"), "expected UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", true),
            ("*.toml", "a.toml.bak", false),
            ("10-*-x*.toml", "10-a-xyz.toml", true),
            ("10-*-x*.toml", "10-a.toml", false),
            ("*ö*", "ö", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
