//! `gateway.toml`: what is wrong with one is found, all of it, at its place; and the shipped one is right.

mod broken;
mod files;
mod keys;
mod login;
mod oauth;
mod reference;
mod report;
mod sections;
mod upstreams;

use std::path::Path;

use bearward::config::{self, Config, Faults, Probe};

/// Reads a configuration that names no files.
fn parse(text: &str) -> Result<Config, Faults> {
    config::parse(text, Path::new(env!("CARGO_MANIFEST_DIR")), Probe::None)
}

/// `text`, followed by an upstream unless it has one.
fn with_upstream(text: &str) -> String {
    match text.contains("[[upstream]]") {
        true => text.to_owned(),
        false => format!("{text}\n[[upstream]]\nservers = [\"http://127.0.0.1:3000\"]\n"),
    }
}

/// A configuration; the key, line and column of its only fault; and something that it says.
type Row = (&'static str, &'static str, (usize, usize), &'static str);

/// An upstream is added behind a row that has none.
#[track_caller]
fn check(rows: &[Row]) {
    for (text, key, position, says) in rows {
        eprintln!("{text}\n");
        assert_only_fault(parse(&with_upstream(text)), key, *position, says);
    }
}

/// Exactly this one fault: its key, line and column, and something that it says.
#[track_caller]
fn assert_only_fault(result: Result<Config, Faults>, key: &str, (line, column): (usize, usize), says: &str) {
    let Err(faults) = result else { panic!("no fault was found, expected one at {key}") };
    let [fault] = faults.all() else { panic!("expected one fault at {key}, found:{faults:?}") };
    assert_eq!(fault.place.key, key, "{faults:?}");
    assert_eq!(faults.line_and_column(&fault.place), (line, column), "{faults:?}");
    let text = [fault.message.as_str(), &fault.expected, &fault.help].join("\n");
    assert!(text.contains(says), "{says:?} is not said:{faults:?}");
}
