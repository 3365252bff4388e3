//! Reads the main file and the files that it includes, and collects what is wrong with them.

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::mem;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::config::document::error::{ConfigError, ConfigErrors, Place};
use crate::config::document::record::Record;
use crate::config::document::report::Report;
use crate::config::document::secrets;
use crate::config::document::sources::Sources;
use crate::config::document::table::Table;
use crate::config::document::tree::{SourceFile, Tree};
use crate::config::include;
use crate::config::named_files::{self, NamedFile};
use crate::config::values::{self, Values};
use crate::types::barrier;
use crate::types::regular_file;

/// The text of all files.
pub(super) struct Reading {
    /// The main file first.
    files: Vec<SourceFile>,
    /// What is wrong with `include`.
    problems: Vec<ConfigError>,
    base: PathBuf,
}

/// What was read from files without errors.
pub(super) struct Read<T> {
    pub(super) result: T,
    pub(super) warnings: Vec<ConfigError>,
    pub(super) values: Values,
    pub(super) files: Vec<NamedFile>,
}

impl Reading {
    pub(super) fn of_file(path: &Path) -> Result<Self, ConfigErrors> {
        let base = path.parent().unwrap_or(Path::new(""));
        let (files, problems) = include::with_included(main_file(path)?, path, base);
        Ok(Reading { files, problems, base: base.to_owned() })
    }

    pub(super) fn of_text(text: &str, base: &Path) -> Self {
        let main = SourceFile { name: "gateway.toml".to_owned(), text: text.to_owned() };
        let (files, problems) = include::with_included(main, &base.join("gateway.toml"), base);
        Reading { files, problems, base: base.to_owned() }
    }

    /// Leaves out the included files.
    pub(super) fn main_only(mut self) -> Self {
        self.files.truncate(1);
        self.problems.clear();
        self
    }

    /// Returns true if the main file has this table.
    pub(super) fn main_has(&self, table: &str) -> bool {
        let main = self.files.first();
        main.is_some_and(|main| DeTable::parse_recoverable(&main.text).0.get_ref().contains_key(table))
    }

    /// The result of `part`, if it reported no errors and the text is TOML. `every_key`: see [`Report::into_errors`].
    pub(super) fn read<T>(
        &self,
        every_key: impl FnOnce() -> BTreeSet<String>,
        part: impl for<'a> FnOnce(Table<'a>) -> T,
    ) -> Result<Read<T>, ConfigErrors> {
        let mut tree = Tree::parse(&self.files, &environment);
        let report = Report::new(&self.base, &tree.outside);
        self.problems.iter().cloned().for_each(|problem| report.add(problem));
        let result = part(Table::new(&tree.root, Place::default(), &report));
        let warnings = report.take_warnings();
        let records = report.take_records();
        let every_key = LazyCell::new(every_key);
        let errors = tree.with_syntax_errors(report.into_errors(|| every_key.clone()));
        let errors = tree.without_foreign_keys(values::is_top_level, errors);
        if !errors.is_empty() {
            let mut sources = tree.sources.clone();
            tree.foreign_texts(values::is_top_level).into_iter().for_each(|text| sources.hide(text));
            self.hide_values(&every_key, &mut sources);
            return Err(ConfigErrors::new(sources, errors));
        }
        let files = named_files::of(&records, &self.base);
        let sources = mem::take(&mut tree.sources);
        let outside = mem::take(&mut tree.outside);
        // The tables of a large file take as much memory as its values.
        drop(tree);
        Ok(Read { result, warnings, values: Values::new(records, &sources, &outside), files })
    }

    /// Hides the values of keys that do not exist, also in what is no TOML: they may be those of another program.
    fn hide_values(&self, every_key: &BTreeSet<String>, sources: &mut Sources) {
        let known: HashSet<_> = every_key.iter().map(|key| key.replace("[]", "")).collect();
        let mut start = 0;
        for file in &self.files {
            let hidden = secrets::of_keys(&file.text, |path| known.contains(path));
            hidden.into_iter().for_each(|span| sources.hide(start + span.start..start + span.end));
            start += file.text.len();
        }
    }

    /// The place of each key, such as `issuer[0].max_lifetime`, or of the nearest table above it that is in the files.
    pub(super) fn places(&self, keys: &[String]) -> Vec<Place> {
        // Reading the files takes longer than most checks.
        if keys.is_empty() {
            return Vec::new();
        }
        let tree = Tree::parse(&self.files, &environment);
        keys.iter().map(|key| place(&tree, key)).collect()
    }

    pub(super) fn sources(&self) -> Sources {
        let mut sources = Sources::default();
        for file in &self.files {
            sources.add(&file.name, &file.text);
        }
        sources
    }
}

fn place(tree: &Tree<'_>, key: &str) -> Place {
    let mut table = Some(&tree.root);
    let mut span = None;
    for part in key.split('.') {
        let (name, index) = part.split_once('[').map_or((part, None), |(name, rest)| (name, Some(rest)));
        let found = table.and_then(|table| table.get(name));
        let index = index.and_then(|index| index.trim_end_matches(']').parse::<usize>().ok());
        let found = match index {
            Some(index) => found.and_then(|list| list.get_ref().as_array()?.get(index)),
            None => found,
        };
        let Some(found) = found else { break };
        (table, span) = (found.get_ref().as_table(), Some(found.span()));
    }
    Place { key: key.to_owned(), span }
}

/// All keys that `part` reads from this text, whether they are right or not.
pub(super) fn records(text: &str, part: impl for<'a> FnOnce(Table<'a>)) -> Vec<Record> {
    let files = [SourceFile { name: String::new(), text: text.to_owned() }];
    let tree = Tree::parse(&files, &|_| None);
    let report = Report::new(Path::new(""), &tree.outside).with_shapes();
    part(Table::new(&tree.root, Place::default(), &report));
    report.take_records()
}

fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The name of the file, for messages, and its text.
fn main_file(path: &Path) -> Result<SourceFile, ConfigErrors> {
    let name = path.display().to_string();
    let bytes = regular_file::read(path).map_err(|error| {
        let help = match error.kind() {
            ErrorKind::PermissionDenied => barrier::advice(path),
            _ => "name the file with --config".to_owned(),
        };
        let error = ConfigError::new(format!("cannot read the configuration: {error}"), "expected a readable file");
        ConfigErrors::new(Sources::new(&name, ""), vec![error.help(help)])
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(SourceFile { name, text }),
        Err(error) => {
            let end = error.utf8_error().valid_up_to();
            let place = Place { key: String::new(), span: Some(end..end) };
            let mut sources = Sources::new(&name, &String::from_utf8_lossy(error.as_bytes()));
            sources.hide_all();
            let error = ConfigError::new("the file is not UTF-8", "expected UTF-8");
            Err(ConfigErrors::new(sources, vec![error.at(&place)]))
        }
    }
}
