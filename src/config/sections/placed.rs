//! A value of the file together with its place.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use crate::config::document::error::{ConfigError, Place};
use crate::config::document::report::Report;

pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

/// Each value that has the key of an earlier one: the first with this key, and the later one.
pub(super) fn duplicates<'p, T, K: Hash + Eq>(
    all: &'p [Placed<T>],
    key: impl Fn(&'p T) -> K,
) -> Vec<(&'p Placed<T>, &'p Placed<T>)> {
    let mut firsts = HashMap::new();
    let mut found = Vec::new();
    for placed in all {
        match firsts.entry(key(&placed.value)) {
            Entry::Occupied(first) => found.push((*first.get(), placed)),
            Entry::Vacant(entry) => drop(entry.insert(placed)),
        }
    }
    found
}

/// Reports each value that has the key of an earlier one.
#[track_caller]
pub(super) fn report_duplicates<'p, T, K: Hash + Eq>(
    report: &Report<'_>,
    all: &'p [Placed<T>],
    message: &str,
    expected: &str,
    key: impl Fn(&'p T) -> K,
) {
    for (first, later) in duplicates(all, key) {
        let error = ConfigError::new(message, expected).related(&first.place, "first used here");
        report.add(error.at(&later.place));
    }
}
