//! Reading tables: which keys there are, which of them were asked for, and which nobody knows.
//!
//! Nothing here stops at a fault. A getter that finds a wrong value records that and answers with the default, so that
//! one run finds everything that is wrong. A table is read inside [`Table::table`] or [`Table::tables`], which report
//! what was left unasked when the reading is done: a misspelt key cannot pass unseen.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

use crate::config::document::error::{Fault, Place};
use crate::config::document::suggest;
use crate::config::document::value::Value;

/// What the reading of one file gathers.
pub(crate) struct Reading<'a> {
    /// Relative paths begin here.
    base: &'a Path,
    faults: RefCell<Vec<Fault>>,
    unknown: RefCell<Vec<UnknownKey>>,
    /// Every key that was asked for, with `[]` for any index: `route[].path`.
    keys: RefCell<BTreeSet<String>>,
}

struct UnknownKey {
    name: String,
    place: Place,
    /// Where its value is, if that is a string.
    text: Option<Range<usize>>,
    /// The table it stands in, and the keys that table has.
    table: String,
    known: Vec<&'static str>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(base: &'a Path) -> Self {
        Reading { base, faults: RefCell::default(), unknown: RefCell::default(), keys: RefCell::default() }
    }

    pub(crate) fn base(&self) -> &'a Path {
        self.base
    }

    pub(crate) fn record(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }

    pub(crate) fn into_keys(self) -> BTreeSet<String> {
        self.keys.into_inner()
    }

    /// All that was recorded. `every_key` helps those who wrote a good key in the wrong table.
    pub(crate) fn into_faults(self, every_key: impl FnOnce() -> BTreeSet<String>) -> Vec<Fault> {
        let mut faults = self.faults.into_inner();
        let unknown = self.unknown.into_inner();
        if !unknown.is_empty() {
            let every_key = every_key();
            faults.extend(unknown.iter().map(|key| key.explain(&every_key)));
        }
        faults
    }
}

impl UnknownKey {
    fn explain(&self, every_key: &BTreeSet<String>) -> Fault {
        let known = format!("{} has {}", in_brackets(&self.table), self.known.join(", "));
        let fault = if let Some(home) = self.home(every_key) {
            // The usual slip in TOML: a key belongs to the last header above it, however far above.
            Fault::new("this key belongs elsewhere", format!("expected {home}"))
                .help("a key belongs to the nearest [table] header above it")
        } else if let Some(near) = suggest::nearest(&self.name, self.known.iter().copied()) {
            Fault::new("unknown key", format!("did you mean `{near}`?")).help(known)
        } else {
            Fault::new("unknown key", format!("{} has no such key", in_brackets(&self.table))).help(known)
        };
        let may_be_secret = ["secret", "token", "pass", "key"].iter().any(|word| self.name.contains(word));
        let hidden = self.text.clone().filter(|_| may_be_secret);
        fault.at(&self.place).hiding(hidden)
    }

    /// The tables that have such a key.
    fn home(&self, every_key: &BTreeSet<String>) -> Option<String> {
        let mut tables = Vec::new();
        for key in every_key {
            match key.rsplit_once('.') {
                Some((table, name)) if name == self.name => tables.push(format!("under {}", in_brackets(table))),
                None if *key == self.name => tables.push("at the top of the file, above every header".to_owned()),
                _ => {}
            }
        }
        (!tables.is_empty()).then(|| tables.join(" or "))
    }
}

/// As the table's header is written: `[tokens]`, `[[route]]`.
fn in_brackets(table: &str) -> String {
    match (table, table.split_once('[')) {
        ("", _) => "the top of the file".to_owned(),
        (nested, _) if nested.contains('.') => format!("`{nested}`"),
        (_, Some((name, _index))) => format!("[[{name}]]"),
        (name, None) => format!("[{name}]"),
    }
}

/// `route[3].path` → `route[].path`
fn without_indexes(path: &str) -> String {
    let mut inside = false;
    let outside_brackets = |character: &char| {
        inside = *character == '[' || (inside && *character != ']');
        !inside || *character == '['
    };
    path.chars().filter(outside_brackets).collect()
}

/// A cursor on one table of the file, or on a table that the file leaves out: then every key has its default.
pub(crate) struct Table<'a> {
    entries: Option<&'a DeTable<'a>>,
    /// Where faults point that concern no key of it.
    place: Place,
    asked: Vec<&'static str>,
    reading: &'a Reading<'a>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(entries: &'a DeTable<'a>, place: Place, reading: &'a Reading<'a>) -> Self {
        Table { entries: Some(entries), place, asked: Vec::new(), reading }
    }

    fn absent(place: Place, reading: &'a Reading<'a>) -> Self {
        Table { entries: None, place, asked: Vec::new(), reading }
    }

    /// Runs `read` on this table, then reports the keys that it did not ask for.
    pub(crate) fn read<T>(mut self, read: impl FnOnce(&mut Table<'a>) -> T) -> T {
        let result = read(&mut self);
        self.report_unknown_keys();
        result
    }

    fn report_unknown_keys(&self) {
        for (key, value) in self.entries.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if !self.asked.contains(&name) {
                self.reading.unknown.borrow_mut().push(UnknownKey {
                    name: name.to_owned(),
                    place: Place { key: self.path_of(name), span: Some(key.span()) },
                    text: value.get_ref().is_str().then(|| value.span()),
                    table: self.place.key.clone(),
                    known: self.asked.clone(),
                });
            }
        }
    }

    /// The value of `key`, if it is there.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Value<'a>> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
            self.reading.keys.borrow_mut().insert(without_indexes(&self.path_of(key)));
        }
        let value = self.entries?.get(key)?;
        Some(Value::new(value.get_ref(), self.place(key), self.reading))
    }

    /// As [`take`](Self::take), but records a fault if the key is not there. `example` is how it could be written.
    pub(crate) fn required(&mut self, key: &'static str, example: &str) -> Option<Value<'a>> {
        let value = self.take(key);
        if value.is_none() {
            let fault = Fault::new(format!("`{key}` is missing"), format!("expected `{key} = {example}`"));
            self.wrong(key, fault.of_absence());
        }
        value
    }

    pub(crate) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        self.take(key).and_then(|value| value.flag()).unwrap_or(default)
    }

    pub(crate) fn whole(&mut self, key: &'static str, default: usize, range: RangeInclusive<usize>) -> usize {
        self.take(key).and_then(|value| value.whole(range)).unwrap_or(default)
    }

    pub(crate) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        self.take(key).and_then(|value| value.duration(range)).unwrap_or(default)
    }

    pub(crate) fn size(&mut self, key: &'static str, default: usize, range: RangeInclusive<usize>) -> usize {
        self.take(key).and_then(|value| value.size(range)).unwrap_or(default)
    }

    pub(crate) fn choice<T: Copy>(&mut self, key: &'static str, default: T, choices: &[(&str, T)]) -> T {
        self.take(key).and_then(|value| value.choice(choices)).unwrap_or(default)
    }

    pub(crate) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.take(key).and_then(|value| value.path())
    }

    /// A table of its own name, read whether it is there or not.
    pub(crate) fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Table<'a>) -> T) -> T {
        let written = self.take(key).and_then(|value| value.table());
        let table = written.unwrap_or_else(|| Table::absent(self.place(key), self.reading));
        table.read(read)
    }

    /// An array of tables, read one by one.
    pub(crate) fn tables<T>(&mut self, key: &'static str, read: impl FnMut(&mut Table<'a>) -> T) -> Vec<T> {
        let tables = self.take(key).map(|value| value.tables()).unwrap_or_default();
        let mut read = read;
        tables.into_iter().map(|table| table.read(&mut read)).collect()
    }

    /// Where a fault about `key` points: at its value, or at the table's header if it is not there.
    pub(crate) fn place(&self, key: &str) -> Place {
        let value = self.entries.and_then(|entries| entries.get(key));
        let span: Option<Range<usize>> = value.map(|value| value.span()).or_else(|| self.place.span.clone());
        Place { key: self.path_of(key), span }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.is_some_and(|entries| entries.contains_key(key))
    }

    pub(crate) fn reading(&self) -> &'a Reading<'a> {
        self.reading
    }

    /// Records a fault about `key`.
    pub(crate) fn wrong(&self, key: &str, fault: Fault) {
        self.reading.record(fault.at(&self.place(key)));
    }

    /// What a check said about `key`: its result, or a fault that is recorded.
    pub(crate) fn accept<T>(&self, key: &str, checked: Result<T, Fault>) -> Option<T> {
        checked.map_err(|fault| self.wrong(key, fault)).ok()
    }

    fn path_of(&self, key: &str) -> String {
        match self.place.key.as_str() {
            "" => key.to_owned(),
            table => format!("{table}.{key}"),
        }
    }
}
