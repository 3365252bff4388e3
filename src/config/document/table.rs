//! Tables of the file: reading keys, and reporting the keys that no code reads.
//!
//! Reading never stops at an error. If a value is wrong, the error is added to the report and the default is returned,
//! so that one run finds all errors. [`Table::table`] and [`Table::tables`] report all keys that were not read
//! afterwards: a misspelt key is always found.
//!
//! What reads a key is never put into its callers: each of some 500 keys is read once at a start, and the copies were a
//! quarter of what `config` adds to the program.

use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::document::error::{ConfigError, Place};
use crate::config::document::record::{Record, without_indexes};
use crate::config::document::report::{Report, UnknownKey};
use crate::config::document::shape::Shape;
use crate::config::document::units::{format_duration, format_size};
use crate::config::document::value::{Value, check_word, choose, words_of};

/// A table of the file, or a table that the file omits: then all keys have their defaults.
pub(crate) struct Table<'a> {
    entries: Option<&'a DeTable<'a>>,
    /// Where errors point that are not about one key.
    place: Place,
    /// The keys that were read so far, each with the place of its record.
    known: Vec<(&'static str, usize)>,
    report: &'a Report<'a>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(entries: &'a DeTable<'a>, place: Place, report: &'a Report<'a>) -> Self {
        Table { entries: Some(entries), place, known: Vec::new(), report }
    }

    fn absent(place: Place, report: &'a Report<'a>) -> Self {
        Table { entries: None, place, known: Vec::new(), report }
    }

    /// Runs `read` on this table, then reports the keys that it did not read.
    pub(crate) fn read<T>(mut self, read: impl FnOnce(&mut Table<'a>) -> T) -> T {
        let result = read(&mut self);
        self.report_unknown_keys();
        result
    }

    fn report_unknown_keys(&self) {
        for (key, value) in self.entries.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if self.record_of(name).is_none() {
                self.report.add_unknown(UnknownKey {
                    name: name.to_owned(),
                    place: Place { key: self.path_of(name), span: Some(key.span()) },
                    values: values_in(value),
                    table: self.place.key.clone(),
                    table_keys: self.known.iter().map(|(key, _)| *key).collect(),
                });
            }
        }
    }

    /// The value of `key`, if the file has it.
    #[inline(never)]
    pub(crate) fn take(&mut self, key: &'static str, shape: Shape) -> Option<Value<'a>> {
        let value = self.entries.and_then(|entries| entries.get(key));
        if self.record_of(key).is_none() {
            let written = value.map(|value| (value.get_ref(), value.span()));
            self.known.push((key, self.report.add_key(self.path_of(key), shape, written)));
            if let Some(error) = self.error_outside(key) {
                self.reject(key, error.clone());
            }
        }
        match self.error_outside(key) {
            Some(_) => None,
            None => Some(Value::new(value?.get_ref(), self.place(key), self.report).recorded(self.record_of(key))),
        }
    }

    /// The place of the record of a key that was read.
    fn record_of(&self, key: &str) -> Option<usize> {
        self.known.iter().find(|(known, _)| *known == key).map(|(_, record)| *record)
    }

    fn change(&self, key: &str, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.record_of(key) {
            self.report.change(record, change);
        }
    }

    /// Why the value of `key`, which is not in the file, cannot be read.
    fn error_outside(&self, key: &str) -> Option<&'a ConfigError> {
        let value = self.entries?.get(key)?;
        self.report.outside().error_at(Some(&value.span()))
    }

    /// Returns true if `key` names a credential of systemd.
    pub(crate) fn is_credential(&self, key: &str) -> bool {
        let value = self.entries.and_then(|entries| entries.get(key));
        value.is_some_and(|value| self.report.outside().is_credential(Some(&value.span())))
    }

    /// States the value that is in force if the file omits `key`.
    pub(crate) fn default(&self, key: &str, value: impl Into<Json>) {
        self.record_default(key, value.into());
    }

    #[inline(never)]
    fn record_default(&self, key: &str, value: Json) {
        self.change(key, |record| {
            if record.span.is_none() {
                record.value = Some(value);
            }
        });
    }

    /// Like [`take`](Self::take), but reports an error if the key is missing. `example`: a possible value.
    #[inline(never)]
    pub(crate) fn required(&mut self, key: &'static str, shape: Shape, example: &str) -> Option<Value<'a>> {
        let value = self.take(key, shape);
        self.change(key, |record| record.is_required = true);
        // A table that the file omits has defaults.
        if value.is_none() && self.entries.is_some() && !self.has(key) {
            let error = ConfigError::new(format!("`{key}` is missing"), format!("expected `{key} = {example}`"));
            self.reject(key, error.missing());
        }
        value
    }

    #[inline(never)]
    pub(crate) fn boolean(&mut self, key: &'static str, default: bool) -> bool {
        let value = self.take(key, Shape::Boolean);
        self.default(key, default);
        value.and_then(|value| value.boolean()).unwrap_or(default)
    }

    #[inline(never)]
    pub(crate) fn integer(&mut self, key: &'static str, default: usize, range: RangeInclusive<usize>) -> usize {
        let value = self.take(key, Shape::Integer(range.clone()));
        self.default(key, default);
        value.and_then(|value| value.integer(range)).unwrap_or(default)
    }

    #[inline(never)]
    pub(crate) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        let value = self.take(key, Shape::Duration(range.clone()));
        self.default(key, format_duration(default));
        value.and_then(|value| value.duration(range)).unwrap_or(default)
    }

    #[inline(never)]
    pub(crate) fn size(&mut self, key: &'static str, default: usize, range: RangeInclusive<usize>) -> usize {
        let value = self.take(key, Shape::Size(range.clone()));
        self.default(key, format_size(default));
        value.and_then(|value| value.size(range)).unwrap_or(default)
    }

    pub(crate) fn choice<T: Copy + PartialEq>(&mut self, key: &'static str, default: T, choices: &[(&str, T)]) -> T {
        let default_word = choices.iter().find(|(_, value)| *value == default).map(|(word, _)| *word);
        let word = self.word(key, default_word, &words_of(choices));
        word.and_then(|word| choose(word, choices).ok()).unwrap_or(default)
    }

    /// One of these words, if the file has it. Apart from [`Table::choice`], of which the program has a copy for each
    /// type.
    #[inline(never)]
    fn word(&mut self, key: &'static str, default: Option<&str>, words: &[&str]) -> Option<&'a str> {
        let shape = Shape::Choice(words.iter().map(|word| (*word).to_owned()).collect());
        let value = self.take(key, shape);
        if let Some(default) = default {
            self.default(key, default);
        }
        value?.parse(|text| check_word(text, words))
    }

    #[inline(never)]
    pub(crate) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.take(key, Shape::Path).and_then(|value| value.path())
    }

    /// Reads the table `key`, also if the file omits it.
    pub(crate) fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Table<'a>) -> T) -> T {
        self.part(key).read(read)
    }

    /// The table `key`, also if the file omits it. Unlike [`Table::table`], it may have keys that no code reads.
    #[inline(never)]
    pub(crate) fn part(&mut self, key: &'static str) -> Table<'a> {
        let written = self.take(key, Shape::Table).and_then(|value| value.table());
        written.unwrap_or_else(|| Table::absent(self.place(key), self.report))
    }

    /// Reads each table of the array `key`.
    pub(crate) fn tables<T>(&mut self, key: &'static str, read: impl FnMut(&mut Table<'a>) -> T) -> Vec<T> {
        let tables = self.take(key, Shape::Tables).map(|value| value.tables()).unwrap_or_default();
        let mut read = read;
        tables.into_iter().map(|table| table.read(&mut read)).collect()
    }

    /// Reads a table of the array `key`, which the file omits, to record its defaults.
    pub(crate) fn defaults_of(&self, key: &str, read: impl FnOnce(&mut Table<'a>)) {
        let place = Place { key: format!("{}[0]", self.path_of(key)), span: None };
        self.defaults_at(place, read);
    }

    /// Reads the table `key`, if the file has it. Otherwise no key of it is required, and only defaults are recorded.
    pub(crate) fn optional_table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Table<'a>) -> T) -> Option<T> {
        if self.has(key) {
            return Some(self.table(key, read));
        }
        self.take(key, Shape::Table);
        self.defaults_at(self.place(key), |table| drop(read(table)));
        None
    }

    fn defaults_at(&self, place: Place, read: impl FnOnce(&mut Table<'a>)) {
        let was_silent = self.report.silence(true);
        Table::absent(place, self.report).read(read);
        self.report.silence(was_silent);
    }

    /// Where an error about `key` points: at its value, or at the header of the table if the key is missing.
    #[inline(never)]
    pub(crate) fn place(&self, key: &str) -> Place {
        let value = self.entries.and_then(|entries| entries.get(key));
        let span: Option<Range<usize>> = value.map(|value| value.span()).or_else(|| self.place.span.clone());
        Place { key: self.path_of(key), span }
    }

    /// Returns true if the file has the key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.is_some_and(|entries| entries.contains_key(key))
    }

    pub(crate) fn report(&self) -> &'a Report<'a> {
        self.report
    }

    /// Reports an error about `key`.
    #[inline(never)]
    pub(crate) fn reject(&self, key: &str, error: ConfigError) {
        self.report.add(error.at(&self.place(key)));
    }

    /// Reports a warning about `key`.
    #[inline(never)]
    pub(crate) fn warn(&self, key: &str, warning: ConfigError) {
        self.report.warn(warning.at(&self.place(key)));
    }

    /// The result of a check of `key`, or `None` after its error was reported.
    pub(crate) fn accept<T>(&self, key: &str, checked: Result<T, ConfigError>) -> Option<T> {
        checked.map_err(|error| self.reject(key, error)).ok()
    }

    fn path_of(&self, key: &str) -> String {
        match self.place.key.as_str() {
            "" => key.to_owned(),
            // Of exactly this length: as many are kept as there are keys.
            table => [table, ".", key].concat(),
        }
    }
}

/// Where this value is, or each value in its tables and lists.
fn values_in(value: &Spanned<DeValue<'_>>) -> Vec<Range<usize>> {
    match value.get_ref() {
        DeValue::Table(table) => table.values().flat_map(values_in).collect(),
        DeValue::Array(items) => items.iter().flat_map(values_in).collect(),
        _ => vec![value.span()],
    }
}

impl<'a> Value<'a> {
    /// This value as a table.
    pub(crate) fn table(self) -> Option<Table<'a>> {
        match self.value {
            DeValue::Table(entries) => Some(Table::new(entries, self.place, self.report)),
            DeValue::Array(_) => {
                let header = format!("[{}]", self.place.key);
                let error = self.wrong_type("one table").help(format!("write {header}; there is only one such table"));
                self.reject(error.confidential());
                None
            }
            _ => {
                self.reject(self.wrong_type("a table").confidential());
                None
            }
        }
    }

    /// This value as an array of tables. A single table is an error, but is read too, to find the errors in it.
    pub(crate) fn tables(self) -> Vec<Table<'a>> {
        let header = format!("[[{}]]", without_indexes(&self.place.key).replace("[]", ""));
        if let DeValue::Table(entries) = self.value {
            self.reject(ConfigError::new("a single table where several are possible", format!("expected {header}")));
            return vec![Table::new(entries, self.place, self.report)];
        }
        self.list(&header).into_iter().flatten().filter_map(Value::table).collect()
    }
}
