//! `gateway.toml` becomes a [`Config`], or a list of all its errors ([`ConfigErrors`]).
//!
//! `document/` reads tables with positions, `sections/` reads and checks each section, `settings.rs` is the result.
//! Reading changes nothing on disk, opens no connection, and never stops at the first error.

mod changes;
mod clock;
mod document;
mod include;
mod named_files;
mod reading;
mod restart;
mod schema;
mod sections;
mod settings;
mod values;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use changes::{Change, Kind};
pub use document::error::{ConfigError, ConfigErrors, Place};
pub use document::warnings::ConfigWarnings;
pub use include::included;
pub use named_files::NamedFile;
pub use settings::{
    Config, Database, EventDelivery, EventStream, EventVerification, ForeignIssuer, Limits, Probe, StoreSettings,
    TokenSettings, Watch,
};
pub use values::{Setting, ValueSource, Values};

use document::error::Severity;
use document::record::{Record, without_indexes};
use reading::{Read, Reading};

use crate::types::private_file;

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
    let reading = Reading::of_file(path)?;
    // Who can write the configuration can make the gateway trust any token.
    private_file::check_trusted(path)
        .map_err(|lax| ConfigErrors::new(reading.sources(), vec![sections::writable(&lax)]))?;
    let (config, mut warnings) = gateway(&reading, probe)?;
    warnings.extend(clock::warning(SystemTime::now(), &[path, &config.store.beside]));
    let mut errors = Vec::new();
    let findings = attempt(&config);
    let keys: Vec<_> = findings.iter().map(|finding| finding.key.clone()).collect();
    for (Finding { severity, error, .. }, place) in findings.into_iter().zip(reading.places(&keys)) {
        let list = if severity == Severity::Error { &mut errors } else { &mut warnings };
        list.push(error.at(&place));
    }
    if errors.is_empty() {
        Ok((config, ConfigWarnings::new(reading.sources(), warnings)))
    } else {
        Err(ConfigErrors::new(reading.sources(), errors))
    }
}

/// What is wrong with something that a key names, outside of the file.
pub struct Finding {
    severity: Severity,
    /// For example `store.postgres`.
    key: String,
    error: ConfigError,
}

impl Finding {
    /// Returns true if the gateway does not start with it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The gateway does not start with it. `message`: what was found; `help`: what to do.
    #[track_caller]
    pub fn error(
        key: impl Into<String>,
        message: impl Into<String>,
        expected: impl Into<String>,
        help: Option<&str>,
    ) -> Self {
        let error = ConfigError::new(message, expected);
        Finding { severity: Severity::Error, key: key.into(), error: help.into_iter().fold(error, ConfigError::help) }
    }

    /// The gateway starts in spite of it.
    #[track_caller]
    pub fn warning(
        key: impl Into<String>,
        message: impl Into<String>,
        expected: impl Into<String>,
        help: &str,
    ) -> Self {
        let error = ConfigError::new(message, expected).help(help);
        Finding { severity: Severity::Warning, key: key.into(), error }
    }
}

/// Reads and checks a text. Relative paths in it start at `base`.
pub fn parse(text: &str, base: &Path, probe: Probe) -> Result<Config, ConfigErrors> {
    parse_with_warnings(text, base, probe).map(|(config, _)| config)
}

/// As [`parse`], with what is allowed and dangerous.
pub fn parse_with_warnings(text: &str, base: &Path, probe: Probe) -> Result<(Config, ConfigWarnings), ConfigErrors> {
    let reading = Reading::of_text(text, base);
    let (config, warnings) = gateway(&reading, probe)?;
    Ok((config, ConfigWarnings::new(reading.sources(), warnings)))
}

fn gateway(reading: &Reading, probe: Probe) -> Result<(Config, Vec<ConfigError>), ConfigErrors> {
    let Read { mut result, warnings, values, files } =
        reading.read(keys, |root| root.read(|root| sections::gateway(root, probe)))?;
    (result.values, result.files) = (values, files);
    Ok((result, warnings))
}

/// Reads only the path of the admin socket, for commands that call a running gateway. Errors elsewhere do not stop an
/// operator who has to revoke a key, but an included file that cannot be read may name another socket.
pub fn load_admin_socket(path: &Path) -> Result<PathBuf, ConfigErrors> {
    let socket = |reading: &Reading| reading.read(keys, |mut root| sections::admin_socket(&mut root));
    let reading = Reading::of_file(path)?;
    let read = match socket(&reading) {
        // Only one file can have the table.
        Err(_) if reading.main_has("admin") => socket(&reading.main_only())?,
        read => read?,
    };
    Ok(read.result)
}

/// All keys that exist, such as `tokens.issuer` and `route[].path`, and all tables.
pub fn keys() -> BTreeSet<String> {
    every_record().iter().map(|record| without_indexes(&record.key)).collect()
}

/// The JSON Schema of the file, for editors and linters.
pub fn schema() -> serde_json::Value {
    schema::schema(&every_record())
}

/// Each key that exists.
fn every_record() -> Vec<Record> {
    // One of each table that is read only if the file has it. Keys that are missing in them do not matter here.
    let one_of_each = "identity = { claim = [{}] }\nissuer = [{}]\nprovider = [{}]\nevent_stream = [{}]\n\
        listener = [{ tls = {} }]\nrate = [{}]\ntoken_exchange = [{}]\n\
        route = [{ claim = [{}], rate = [{}] }]\nupstream = [{ health_check = {} }]\n\
        admin = { tls = {}, operator = [{}] }\n\
        oauth = { resource_server = [{}], client = [{}], scope = [{ claim = {} }], exchange = [{ claim = [{}] }] }\n";
    reading::records(one_of_each, |root| drop(root.read(|root| sections::gateway(root, Probe::None))))
}
