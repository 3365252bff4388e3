//! `gateway.toml` becomes a [`Config`], or a list of all its errors ([`ConfigErrors`]).
//!
//! `document/` reads tables with positions, `sections/` reads and checks each section, `settings.rs` is the result.
//! Reading changes nothing on disk, opens no connection, and never stops at the first error.

mod clock;
mod document;
mod sections;
mod settings;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use toml::de::DeTable;

pub use document::error::{ConfigError, ConfigErrors, Place};
pub use document::warnings::ConfigWarnings;
pub use settings::{Config, Database, ForeignIssuer, Limits, Probe, StoreSettings, TokenSettings, Watch};

use document::error::Severity;
use document::report::Report;
use document::table::Table;

use crate::types::private_file;
use crate::types::regular_file;

/// Reads and checks a file. Relative paths in it start at its folder.
pub fn load(path: &Path, probe: Probe) -> Result<Config, ConfigErrors> {
    load_with_warnings(path, probe).map(|(config, _)| config)
}

/// As [`load`], with what is allowed and dangerous.
pub fn load_with_warnings(path: &Path, probe: Probe) -> Result<(Config, ConfigWarnings), ConfigErrors> {
    load_and_try(path, probe, |_| Vec::new())
}

/// As [`load_with_warnings`]. If the file is valid, `attempt` tries what it names, such as the database, and its
/// findings are reported at their keys.
pub fn load_and_try(
    path: &Path,
    probe: Probe,
    attempt: impl FnOnce(&Config) -> Vec<Finding>,
) -> Result<(Config, ConfigWarnings), ConfigErrors> {
    let (file, source) = file_and_source(path)?;
    // Who can write the configuration can make the gateway trust any token.
    private_file::check_trusted(path)
        .map_err(|lax| ConfigErrors::new(&file, &source, vec![sections::writable(&lax)]))?;
    let (config, mut warnings) = read(&file, &source, folder_of(path), probe)?;
    warnings.extend(clock::warning(SystemTime::now(), &[path, &config.store.beside]));
    let (tree, _) = DeTable::parse_recoverable(&source);
    let report = Report::new(folder_of(path));
    let mut root = Table::new(tree.get_ref(), Place::default(), &report);
    let mut errors = Vec::new();
    for Finding { severity, key: (table, key), error } in attempt(&config) {
        let place = root.part(table).place(key);
        let list = if severity == Severity::Error { &mut errors } else { &mut warnings };
        list.push(error.at(&place));
    }
    match errors.is_empty() {
        true => Ok((config, ConfigWarnings::new(&file, &source, warnings))),
        false => Err(ConfigErrors::new(&file, &source, errors)),
    }
}

/// What is wrong with something that a key names, outside of the file.
pub struct Finding {
    severity: Severity,
    /// The table and its key.
    key: (&'static str, &'static str),
    error: ConfigError,
}

impl Finding {
    /// The gateway does not start with it. `message`: what was found; `help`: what to do.
    pub fn error(
        key: (&'static str, &'static str),
        message: impl Into<String>,
        expected: impl Into<String>,
        help: Option<&str>,
    ) -> Self {
        let error = ConfigError::new(message, expected);
        Finding { severity: Severity::Error, key, error: help.into_iter().fold(error, ConfigError::help) }
    }

    /// The gateway starts in spite of it.
    pub fn warning(
        key: (&'static str, &'static str),
        message: impl Into<String>,
        expected: impl Into<String>,
        help: &str,
    ) -> Self {
        let error = ConfigError::new(message, expected).help(help);
        Finding { severity: Severity::Warning, key, error }
    }
}

/// Reads and checks a text. Relative paths in it start at `base`.
pub fn parse(text: &str, base: &Path, probe: Probe) -> Result<Config, ConfigErrors> {
    parse_with_warnings(text, base, probe).map(|(config, _)| config)
}

/// As [`parse`], with what is allowed and dangerous.
pub fn parse_with_warnings(text: &str, base: &Path, probe: Probe) -> Result<(Config, ConfigWarnings), ConfigErrors> {
    let (config, warnings) = read("gateway.toml", text, base, probe)?;
    Ok((config, ConfigWarnings::new("gateway.toml", text, warnings)))
}

/// Reads only the path of the admin socket, for commands that call a running gateway. Errors elsewhere in the file do
/// not stop an operator who has to revoke a key.
pub fn load_admin_socket(path: &Path) -> Result<PathBuf, ConfigErrors> {
    let (file, source) = file_and_source(path)?;
    let (socket, _) = read_part(&file, &source, folder_of(path), |mut root| sections::admin_socket(&mut root))?;
    Ok(socket)
}

/// All keys that exist, such as `tokens.issuer` and `route[].path`, and all tables.
pub fn keys() -> BTreeSet<String> {
    // One of each table that is read only if the file has it. Keys that are missing in them do not matter here.
    let one_of_each = "identity = { claim = [{}] }\nissuer = [{}]\nlistener = [{ tls = {} }]\nrate = [{}]\n\
        route = [{ claim = [{}], rate = [{}] }]\nupstream = [{ health_check = {} }]\n\
        admin = { tls = {}, operator = [{}] }\noauth = { resource_server = [{}] }\n";
    let (tree, _) = DeTable::parse_recoverable(one_of_each);
    let report = Report::new(Path::new(""));
    Table::new(tree.get_ref(), Place::default(), &report).read(|root| sections::gateway(root, Probe::None));
    report.into_keys()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// The name of a file, for messages, and its text.
fn file_and_source(path: &Path) -> Result<(String, String), ConfigErrors> {
    let file = path.display().to_string();
    let bytes = regular_file::read(path).map_err(|error| {
        let error = ConfigError::new(format!("cannot read the configuration: {error}"), "expected a readable file");
        ConfigErrors::new(&file, "", vec![error.help("name the file with --config")])
    })?;
    match str::from_utf8(&bytes) {
        Ok(source) => Ok((file, source.to_owned())),
        Err(error) => {
            let source = String::from_utf8_lossy(&bytes);
            let span = Some(error.valid_up_to()..error.valid_up_to());
            let error = ConfigError::new("the file is not UTF-8", "expected UTF-8");
            Err(ConfigErrors::new(&file, &source, vec![error.at(&Place { key: String::new(), span })]))
        }
    }
}

type WithWarnings<T> = (T, Vec<ConfigError>);

fn read(file: &str, source: &str, base: &Path, probe: Probe) -> Result<WithWarnings<Config>, ConfigErrors> {
    read_part(file, source, base, |root| root.read(|root| sections::gateway(root, probe)))
}

/// The result of `part` and its warnings, if it reported no errors and the text is TOML.
fn read_part<T>(
    file: &str,
    source: &str,
    base: &Path,
    part: impl for<'a> FnOnce(Table<'a>) -> T,
) -> Result<WithWarnings<T>, ConfigErrors> {
    let (tree, syntax) = DeTable::parse_recoverable(source);
    let report = Report::new(base);
    let result = part(Table::new(tree.get_ref(), Place::default(), &report));

    let warnings = report.take_warnings();
    let errors = document::syntax::with_syntax_errors(source, tree.get_ref(), &syntax, report.into_errors(keys));
    match errors.is_empty() {
        true => Ok((result, warnings)),
        false => Err(ConfigErrors::new(file, source, errors)),
    }
}
