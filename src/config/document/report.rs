//! The findings in one file while it is read: errors, warnings, unknown keys, and the keys that exist.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;

use toml::de::DeValue;

use crate::config::document::error::{ConfigError, Place};
use crate::config::document::outside::OutsideValues;
use crate::config::document::record::{Record, Records, without_indexes};
use crate::config::document::shape::Shape;
use crate::config::document::suggest;

/// Maximum number of names for which a similar one is searched among those that the file defines, such as upstreams.
const MAX_SUGGESTIONS: usize = 100;

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
    /// How many more names are compared with all others of their kind.
    suggestions: Cell<usize>,
}

/// A key in the file that no code reads.
pub(super) struct UnknownKey {
    pub(super) name: String,
    pub(super) place: Place,
    /// Where its value is, or each value in its tables and lists.
    pub(super) values: Vec<Range<usize>>,
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
            suggestions: Cell::new(MAX_SUGGESTIONS),
        }
    }

    /// Keeps the form of each key, for the schema.
    pub(crate) fn with_shapes(self) -> Self {
        Report { records: RefCell::new(Records::with_shapes()), ..self }
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

    #[inline(never)]
    pub(crate) fn add(&self, error: ConfigError) {
        if !self.is_silent.get() {
            self.errors.borrow_mut().push(self.outside.explain(error));
        }
    }

    #[inline(never)]
    pub(crate) fn warn(&self, warning: ConfigError) {
        if !self.is_silent.get() {
            self.warnings.borrow_mut().push(self.outside.explain(warning));
        }
    }

    pub(crate) fn take_warnings(&self) -> Vec<ConfigError> {
        self.warnings.take()
    }

    #[inline(never)]
    pub(super) fn add_unknown(&self, key: UnknownKey) {
        self.unknown.borrow_mut().push(key);
    }

    /// `path`: for example `route[3].path`. `written`: the value in the file.
    /// Returns the place of its record.
    #[inline(never)]
    pub(super) fn add_key(&self, path: String, shape: Shape, written: Option<(&DeValue<'_>, Range<usize>)>) -> usize {
        self.records.borrow_mut().add(path, shape, written)
    }

    /// `record`: the place that [`Report::add_key`] has returned.
    pub(super) fn change(&self, record: usize, change: impl FnOnce(&mut Record)) {
        self.records.borrow_mut().change(record, change);
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
            let mut known = KnownKeys::of(&every_key);
            errors.extend(unknown.iter().map(|key| key.error(&mut known)));
        }
        errors
    }

    /// As [`suggest::nearest`], for the first errors only: of each name that is wrong, every other name is read.
    pub(crate) fn nearest<'n>(&self, text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
        let left = self.suggestions.get().checked_sub(1)?;
        self.suggestions.set(left);
        suggest::nearest(text, names)
    }
}

/// All keys of the reference, and what was suggested for others.
struct KnownKeys<'k> {
    /// The tables that have a key of this name.
    tables: HashMap<&'k str, Vec<String>>,
    /// By the table, without indexes, and the unknown name: the same mistake is often in many tables.
    suggested: HashMap<(String, String), Option<&'static str>>,
}

impl<'k> KnownKeys<'k> {
    fn of(every_key: &'k BTreeSet<String>) -> Self {
        let mut tables: HashMap<_, Vec<String>> = HashMap::new();
        for key in every_key {
            let (name, place) = match key.rsplit_once('.') {
                Some((table, name)) => (name, format!("under {}", header(table))),
                None => (key.as_str(), "at the top of the file, above all headers".to_owned()),
            };
            tables.entry(name).or_default().push(place);
        }
        KnownKeys { tables, suggested: HashMap::new() }
    }

    fn nearest(&mut self, unknown: &UnknownKey) -> Option<&'static str> {
        let key = (without_indexes(&unknown.table), unknown.name.clone());
        let find = || suggest::nearest(&unknown.name, unknown.table_keys.iter().copied());
        *self.suggested.entry(key).or_insert_with(find)
    }
}

impl UnknownKey {
    fn error(&self, known: &mut KnownKeys<'_>) -> ConfigError {
        let table_keys = format!("{} has the keys {}", header(&self.table), self.table_keys.join(", "));
        let error = if let Some(tables) = known.tables.get(&*self.name) {
            // The usual mistake in TOML: a key belongs to the last header above it, at any distance.
            ConfigError::new("this key belongs in another table", format!("expected it {}", tables.join(" or ")))
                .help("move the key; a key belongs to the nearest [table] header above it")
        } else if let Some(near) = known.nearest(self) {
            ConfigError::new("unknown key", format!("did you mean `{near}`?")).help(table_keys)
        } else {
            ConfigError::new("unknown key", format!("{} has no such key", header(&self.table))).help(table_keys)
        };
        // The key may be one of another program, and its value a secret.
        error.at(&self.place).hiding(self.values.clone())
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
