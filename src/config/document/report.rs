//! What is collected while one file is read: errors, warnings, unknown keys, and the keys that exist.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use toml::de::DeValue;

use crate::config::document::error::{ConfigError, Place};
use crate::config::document::outside::OutsideValues;
use crate::config::document::record::{Record, Records};
use crate::config::document::shape::Shape;
use crate::config::document::suggest;

pub(crate) struct Report<'a> {
    /// Relative paths start here.
    base: &'a Path,
    outside: &'a OutsideValues,
    errors: RefCell<Vec<ConfigError>>,
    warnings: RefCell<Vec<ConfigError>>,
    unknown: RefCell<Vec<UnknownKey>>,
    records: RefCell<Records>,
    /// If true, a table is read that the file omits, to record its defaults: all errors are those of other keys.
    is_silent: Cell<bool>,
}

/// A key in the file that no code reads.
pub(super) struct UnknownKey {
    pub(super) name: String,
    pub(super) place: Place,
    /// Where its value is, if that is a string.
    pub(super) string: Option<Range<usize>>,
    /// The table that contains it, and the keys of that table.
    pub(super) table: String,
    pub(super) table_keys: Vec<&'static str>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(base: &'a Path, outside: &'a OutsideValues) -> Self {
        Report {
            base,
            outside,
            errors: RefCell::default(),
            warnings: RefCell::default(),
            unknown: RefCell::default(),
            records: RefCell::default(),
            is_silent: Cell::default(),
        }
    }

    pub(crate) fn base(&self) -> &'a Path {
        self.base
    }

    /// Returns whether it was silent before.
    pub(super) fn silence(&self, is_silent: bool) -> bool {
        self.is_silent.replace(is_silent)
    }

    pub(super) fn outside(&self) -> &'a OutsideValues {
        self.outside
    }

    pub(crate) fn add(&self, error: ConfigError) {
        if !self.is_silent.get() {
            self.errors.borrow_mut().push(self.outside.explain(error));
        }
    }

    pub(crate) fn warn(&self, warning: ConfigError) {
        if !self.is_silent.get() {
            self.warnings.borrow_mut().push(self.outside.explain(warning));
        }
    }

    pub(crate) fn take_warnings(&self) -> Vec<ConfigError> {
        self.warnings.take()
    }

    pub(super) fn add_unknown(&self, key: UnknownKey) {
        self.unknown.borrow_mut().push(key);
    }

    /// `path`: for example `route[3].path`. `written`: the value in the file.
    pub(super) fn add_key(&self, path: String, shape: Shape, written: Option<(&DeValue<'_>, Range<usize>)>) {
        self.records.borrow_mut().add(path, shape, written);
    }

    pub(super) fn change(&self, key: &str, change: impl FnOnce(&mut Record)) {
        self.records.borrow_mut().change(key, change);
    }

    pub(crate) fn take_records(&self) -> Vec<Record> {
        self.records.take().all()
    }

    /// All errors. `every_key` returns all keys of the reference, to suggest the right table for a key in a wrong one.
    pub(crate) fn into_errors(self, every_key: impl FnOnce() -> BTreeSet<String>) -> Vec<ConfigError> {
        let mut errors = self.errors.into_inner();
        let unknown = self.unknown.into_inner();
        if !unknown.is_empty() {
            let every_key = every_key();
            errors.extend(unknown.iter().map(|key| key.error(&every_key)));
        }
        errors
    }
}

impl UnknownKey {
    fn error(&self, every_key: &BTreeSet<String>) -> ConfigError {
        let table_keys = format!("{} has the keys {}", header(&self.table), self.table_keys.join(", "));
        let error = if let Some(tables) = self.other_tables(every_key) {
            // The usual mistake in TOML: a key belongs to the last header above it, at any distance.
            ConfigError::new("this key belongs in another table", format!("expected it {tables}"))
                .help("move the key; a key belongs to the nearest [table] header above it")
        } else if let Some(near) = suggest::nearest(&self.name, self.table_keys.iter().copied()) {
            ConfigError::new("unknown key", format!("did you mean `{near}`?")).help(table_keys)
        } else {
            ConfigError::new("unknown key", format!("{} has no such key", header(&self.table))).help(table_keys)
        };
        let may_be_secret = ["secret", "token", "pass", "key"].iter().any(|word| self.name.contains(word));
        let hidden = self.string.clone().filter(|_| may_be_secret);
        error.at(&self.place).hiding(hidden)
    }

    /// The tables that have a key of this name.
    fn other_tables(&self, every_key: &BTreeSet<String>) -> Option<String> {
        let mut tables = Vec::new();
        for key in every_key {
            match key.rsplit_once('.') {
                Some((table, name)) if name == self.name => tables.push(format!("under {}", header(table))),
                None if *key == self.name => tables.push("at the top of the file, above all headers".to_owned()),
                _ => {}
            }
        }
        (!tables.is_empty()).then(|| tables.join(" or "))
    }
}

/// The table as its header is written: `[tokens]`, `[[route]]`.
fn header(table: &str) -> String {
    match (table, table.split_once('[')) {
        ("", _) => "the top of the file".to_owned(),
        (nested, _) if nested.contains('.') => format!("`{nested}`"),
        (_, Some((name, _index))) => format!("[[{name}]]"),
        (name, None) => format!("[{name}]"),
    }
}
