//! The shipped `gateway.toml` is the reference of all keys: it is valid, complete, readable, and states the right
//! defaults.

use std::collections::BTreeSet;
use std::fs;

use bearward::config::{self, Probe};

pub(super) const REFERENCE: &str = include_str!("../../../gateway.toml");

/// A line of the reference, classified by its beginning.
pub(super) enum Line {
    /// `# key = value`, or the header of a table of which every key has a default.
    Default(&'static str),
    /// Five spaces: a key without default, or another choice.
    Example(&'static str),
    Active(&'static str),
    Prose,
}

pub(super) fn lines() -> impl Iterator<Item = Line> {
    REFERENCE.lines().map(|line| {
        if let Some(example) = line.strip_prefix("#     ").filter(|text| is_toml(text)) {
            Line::Example(example)
        } else if let Some(default) = line.strip_prefix("# ").filter(|text| is_toml(text)) {
            Line::Default(default)
        } else if line.starts_with('#') || line.is_empty() {
            Line::Prose
        } else {
            Line::Active(line)
        }
    })
}

fn is_toml(text: &str) -> bool {
    let key = text.split_once(" = ").map_or("", |(key, _)| key);
    let of_key = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_key = !key.is_empty() && key.bytes().all(of_key);
    is_key || text.starts_with('[')
}

/// A key and the comment above it.
pub(super) struct Comment {
    /// For example `route[].path`.
    pub(super) key: String,
    /// In one line.
    pub(super) text: String,
}

pub(super) fn comments() -> Vec<Comment> {
    let mut lists = BTreeSet::new();
    let (mut table, mut text) = (String::new(), String::new());
    let mut comments = Vec::new();
    for (line, source) in lines().zip(REFERENCE.lines()) {
        match line {
            Line::Prose => {
                let more = source.trim_start_matches('#').trim();
                if more.is_empty() { text.clear() } else { text.push_str(&format!("{more} ")) }
            }
            Line::Default(toml) | Line::Example(toml) | Line::Active(toml) if toml.starts_with('[') => {
                table = header(toml, &mut lists);
                text.clear();
            }
            Line::Default(toml) | Line::Example(toml) | Line::Active(toml) => {
                let name = toml.split(" = ").next().unwrap_or_default();
                let key = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
                comments.push(Comment { key, text: text.clone() });
            }
        }
    }
    comments
}

/// `route[3].path` → `route[].path`.
pub(super) fn without_indexes(key: &str) -> String {
    let mut parts = key.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |path, part| format!("{path}[]{}", part.split_once(']').map_or("", |(_, rest)| rest)))
}

/// The reference without comments, with every default and example active.
pub(super) fn everything() -> String {
    let text = |line| match line {
        Line::Default(text) | Line::Example(text) | Line::Active(text) => Some(format!("{text}\n")),
        Line::Prose => None,
    };
    lines().filter_map(text).collect()
}

/// The reference with every default written out.
pub(super) fn uncommented() -> String {
    let text = |line| match line {
        Line::Default(text) | Line::Active(text) => Some(format!("{text}\n")),
        Line::Example(_) | Line::Prose => None,
    };
    lines().filter_map(text).collect()
}

#[test]
fn it_is_valid_as_shipped_and_a_check_creates_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gateway.toml");
    fs::write(&file, REFERENCE).expect("a file");
    // Addresses are not probed: another gateway may run on this machine.
    config::load(&file, Probe::None).expect("the shipped file is valid");
    let names: Vec<_> = fs::read_dir(folder.path()).expect("a folder").flatten().map(|file| file.file_name()).collect();
    assert_eq!(names, ["gateway.toml"]);
}

#[test]
fn its_defaults_are_the_defaults() {
    let folder = tempfile::tempdir().expect("a folder");
    let [shipped, uncommented] = [REFERENCE, &uncommented()].map(|text| {
        config::parse(text, folder.path(), Probe::None).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
    });
    assert_eq!(shipped, uncommented);
}

#[test]
fn it_has_every_key_and_no_other() {
    let mut keys = BTreeSet::new();
    let mut lists = BTreeSet::new();
    let mut table = String::new();
    for line in lines() {
        let (Line::Default(text) | Line::Example(text) | Line::Active(text)) = line else { continue };
        if text.starts_with('[') {
            table = header(text, &mut lists);
            keys.insert(table.trim_end_matches("[]").to_owned());
        } else {
            let value: toml::Table = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            let prefix = if table.is_empty() { String::new() } else { format!("{table}.") };
            gather(&prefix, &value, &mut keys);
        }
    }
    assert_eq!(keys, config::keys());
}

/// As in redis.conf: an operator finds what a key does directly above it. Examples of one key share its comment.
#[test]
fn each_key_is_directly_below_its_own_comment() {
    let mut without_comment = Vec::new();
    let mut keys = 0;
    // The key that the line above sets, or "" for a comment.
    let mut above = None;
    for (line, text) in lines().zip(REFERENCE.lines()) {
        above = match line {
            Line::Prose => text.starts_with("# ").then_some(""),
            Line::Default(toml) | Line::Example(toml) | Line::Active(toml) => {
                let key = toml.split(" = ").next().unwrap_or_default();
                keys += 1;
                if above.is_none_or(|above| !above.is_empty() && above != key) {
                    without_comment.push(text);
                }
                Some(key)
            }
        };
    }
    assert!(keys > config::keys().len(), "only {keys} lines were found");
    assert_eq!(without_comment, Vec::<&str>::new());
}

#[test]
fn no_line_is_wider_than_100_columns() {
    let wide: Vec<_> = REFERENCE.lines().filter(|line| line.chars().count() > 100).collect();
    assert_eq!(wide, Vec::<&str>::new());
}

/// `[tokens]` → `tokens`, `[[route]]` → `route[]`, `[[route.claim]]` → `route[].claim[]`. Remembers which are lists.
fn header(text: &str, lists: &mut BTreeSet<String>) -> String {
    let name = text.trim_matches(['[', ']']);
    if text.starts_with("[[") {
        lists.insert(name.to_owned());
    }
    let (mut path, mut plain) = (String::new(), String::new());
    for segment in name.split('.') {
        for text in [&mut path, &mut plain] {
            text.push_str(if text.is_empty() { "" } else { "." });
            text.push_str(segment);
        }
        if lists.contains(&plain) {
            path.push_str("[]");
        }
    }
    path
}

/// The keys of a table and of the tables in it, lists of tables included.
fn gather(prefix: &str, table: &toml::Table, keys: &mut BTreeSet<String>) {
    for (key, value) in table {
        keys.insert(format!("{prefix}{key}"));
        let inner = format!("{prefix}{key}.");
        let list = value.as_array().into_iter().flatten().filter_map(toml::Value::as_table);
        value.as_table().into_iter().chain(list).for_each(|table| gather(&inner, table, keys));
    }
}
