//! `gateway.toml`: all errors are found with their position, and the shipped file is valid.

mod acme;
mod authorization;
mod broken;
mod client_certificates;
mod cors;
mod event_streams;
mod files;
mod forward_auth;
mod header_rules;
mod https;
mod include;
mod introspection;
mod issuers;
mod keys;
mod large;
mod login;
mod oauth;
mod oauth_clients;
mod oauth_exchange;
mod operators;
mod outside;
mod pem_sections;
mod providers;
mod quoted;
mod reference;
mod releases;
mod report;
mod respond;
mod routes;
mod schema;
mod secrets;
mod sections;
mod sign_in;
mod store;
mod strip_prefix;
mod token_exchange;
mod upstreams;
mod values;
mod warnings;
mod weights;

use std::path::Path;
use std::sync::LazyLock;

use bearward::config::{self, Config, ConfigErrors, Probe};
use bearward::types::secret;
use tempfile::TempDir;

/// Reads a configuration. It may name the file `Cargo.toml` and the folder `src`.
fn parse(text: &str) -> Result<Config, ConfigErrors> {
    static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
        let folder = TempDir::new().expect("a folder");
        let content = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).expect("read");
        secret::write_private(&folder.path().join("Cargo.toml"), &content).expect("written");
        std::fs::create_dir(folder.path().join("src")).expect("created");
        folder
    });
    config::parse(text, FOLDER.path(), Probe::None)
}

/// `text`, with an upstream at its end if it has none.
fn with_upstream(text: &str) -> String {
    if text.contains("[[upstream]]") {
        text.to_owned()
    } else {
        format!("{text}\n[[upstream]]\nservers = [\"http://127.0.0.1:3000\"]\n")
    }
}

/// A configuration; the key, line and column of its only error; and a part of the message.
type Row = (&'static str, &'static str, (usize, usize), &'static str);

/// Adds an upstream to each row that has none.
#[track_caller]
fn check(rows: &[Row]) {
    for (text, key, position, says) in rows {
        eprintln!("{text}\n");
        assert_only_error(parse(&with_upstream(text)), key, *position, says);
    }
}

/// Expects exactly one error with this key, line and column, and `says` in its message.
#[track_caller]
fn assert_only_error(result: Result<Config, ConfigErrors>, key: &str, (line, column): (usize, usize), says: &str) {
    let Err(errors) = result else { panic!("no error was found, expected one at {key}") };
    let [error] = errors.all() else { panic!("expected one error at {key}, found:{errors:?}") };
    assert_eq!(error.place.key, key, "{errors:?}");
    assert_eq!(errors.line_and_column(&error.place), (line, column), "{errors:?}");
    let text = [error.message.as_str(), &error.expected, &error.help].join("\n");
    assert!(text.contains(says), "{says:?} is not in the message:{errors:?}");
}
