//! The tables of `gateway.toml` and of the files that it includes, as those of one file.
//!
//! The positions of all keys and values count from the start of the first file. A value `{ env = "NAME" }` is replaced
//! by the text of the variable, and `{ credential = "NAME" }` by the path of its file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue, Error};

use crate::config::document::error::{ConfigError, Place};
use crate::config::document::outside::{Outside, OutsideValues};
use crate::config::document::sources::Sources;
use crate::config::document::syntax;

/// The folder of the credentials that systemd passes to a service.
pub(crate) const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// Reads an environment variable.
pub(crate) type Environment<'e> = dyn Fn(&str) -> Option<OsString> + 'e;

/// The name and text of a file.
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// One file, as it was parsed.
struct Parsed<'a> {
    text: &'a str,
    tree: DeTable<'a>,
    syntax: Vec<Error>,
    /// Where its text starts.
    start: usize,
}

impl Parsed<'_> {
    /// Where it is in all files.
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    fn has_key(&self, is_known: impl Fn(&str, &DeValue<'_>) -> bool) -> bool {
        self.tree.iter().any(|(key, value)| is_known(key.get_ref(), value.get_ref()))
    }
}

pub(crate) struct Tree<'a> {
    pub(crate) root: DeTable<'a>,
    pub(crate) outside: OutsideValues,
    pub(crate) sources: Sources,
    files: Vec<Parsed<'a>>,
    /// Keys that two files set.
    conflicts: Vec<ConfigError>,
}

impl<'a> Tree<'a> {
    /// `files`: the main file first.
    pub(crate) fn parse(files: &'a [SourceFile], environment: &Environment<'_>) -> Self {
        let mut sources = Sources::default();
        let parse = |file: &'a SourceFile| {
            let (tree, syntax) = DeTable::parse_recoverable(&file.text);
            Parsed { text: &file.text, tree: tree.into_inner(), syntax, start: sources.add(&file.name, &file.text) }
        };
        let files: Vec<_> = files.iter().map(parse).collect();
        let mut builder = Builder { start: 0, environment, outside: BTreeMap::new() };
        let mut root = DeTable::new();
        let mut conflicts = Vec::new();
        for (number, file) in files.iter().enumerate() {
            builder.start = file.start;
            let conflict = |error: ConfigError| conflicts.push(error);
            merge(&mut root, builder.table(&file.tree), number > 0, conflict);
        }
        Tree { root, outside: OutsideValues(builder.outside), sources, files, conflicts }
    }

    /// The ranges of files that are hardly a configuration: a link to a secret must not show it in a log. A file is
    /// hidden if no key of it is known, an included one also if it is not TOML.
    pub(crate) fn foreign_texts(&self, is_known: impl Fn(&str, &DeValue<'_>) -> bool) -> Vec<Range<usize>> {
        let is_foreign =
            |number: usize, file: &Parsed<'_>| !file.has_key(&is_known) || number > 0 && !file.syntax.is_empty();
        let foreign = self.files.iter().enumerate().filter(|(number, file)| is_foreign(*number, file));
        foreign.map(|(_, file)| file.range()).collect()
    }

    /// Replaces the errors about keys of a file without any known key by one that does not name them.
    pub(crate) fn without_foreign_keys(
        &self,
        is_known: impl Fn(&str, &DeValue<'_>) -> bool,
        mut errors: Vec<ConfigError>,
    ) -> Vec<ConfigError> {
        for file in self.files.iter().filter(|file| !file.has_key(&is_known)) {
            let range = file.range();
            let is_here = |place: &Place| place.span.as_ref().is_some_and(|span| range.contains(&span.start));
            let named = errors.extract_if(.., |error| !error.place.key.is_empty() && is_here(&error.place)).count();
            if named > 0 && file.syntax.is_empty() {
                let error = ConfigError::new(
                    "no key of this file belongs to the configuration",
                    "expected keys such as `upstream` and `route`",
                );
                let error = error.help("check the path; the file is not quoted, because it may be a secret");
                errors.push(error.at(&Place { key: String::new(), span: Some(range.start..range.start) }));
            }
        }
        errors
    }

    /// The syntax errors of all files, and the errors of `checked` that they did not cause.
    pub(crate) fn with_syntax_errors(&self, checked: Vec<ConfigError>) -> Vec<ConfigError> {
        let is_broken = self.files.iter().any(|file| !file.syntax.is_empty());
        let mut checked: Vec<_> = checked.into_iter().filter(|error| !(is_broken && error.missing)).collect();
        let mut all = self.conflicts.clone();
        for file in self.files.iter().rev() {
            let is_here = |error: &mut ConfigError| error.place.span.as_ref().is_none_or(|at| at.start >= file.start);
            let here = checked.extract_if(.., |error| is_here(error)).map(|error| error.moved(file.start, false));
            let found = syntax::with_syntax_errors(file.text, &file.tree, &file.syntax, here.collect());
            all.extend(found.into_iter().map(|error| error.moved(file.start, true)));
        }
        all
    }
}

/// Adds the keys of an included file. Lists of tables are continued.
fn merge<'a>(root: &mut DeTable<'a>, more: DeTable<'a>, is_included: bool, mut conflict: impl FnMut(ConfigError)) {
    for (key, value) in more {
        let place = Place { key: key.get_ref().to_string(), span: Some(key.span()) };
        if is_included && key.get_ref() == "include" {
            let error = ConfigError::new("an included file includes others", "expected `include` in the main file");
            conflict(error.help("name all files in `include` of the main file").at(&place));
            continue;
        }
        let first = root.get_key_value(key.get_ref().as_ref()).map(|(first, _)| first.span());
        match (first, value.get_ref()) {
            (None, _) => drop(root.insert(key, value)),
            (Some(first), _) => {
                match (root.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut), value.into_inner()) {
                    (Some(DeValue::Array(list)), DeValue::Array(more)) if are_tables(list) && are_tables(&more) => {
                        more.into_iter().for_each(|item| list.push(item));
                    }
                    _ => {
                        let error = ConfigError::new("two files set this", "expected it in one file");
                        let first = Place { key: place.key.clone(), span: Some(first) };
                        let error = error.related(&first, "first set here");
                        conflict(error.help("remove one of the two; only lists of tables such as [[route]] may be in several files").at(&place));
                    }
                }
            }
        }
    }
}

fn are_tables(list: &DeArray<'_>) -> bool {
    list.iter().all(|item| item.get_ref().is_table())
}

/// Copies tables, with positions in all files.
struct Builder<'e> {
    start: usize,
    environment: &'e Environment<'e>,
    outside: BTreeMap<usize, Outside>,
}

impl Builder<'_> {
    fn table<'a>(&mut self, table: &DeTable<'a>) -> DeTable<'a> {
        let mut copy = DeTable::new();
        for (key, value) in table {
            copy.insert(Spanned::new(self.span(key.span()), key.get_ref().clone()), self.value(value));
        }
        copy
    }

    fn value<'a>(&mut self, value: &Spanned<DeValue<'a>>) -> Spanned<DeValue<'a>> {
        let span = self.span(value.span());
        let copy = match value.get_ref() {
            DeValue::Table(table) => match from_outside(table) {
                Some(Reference::Variable(name, default)) => return self.variable(span, table, name, default),
                Some(Reference::Credential(name)) => self.credential(&span, table, name),
                None => DeValue::Table(self.table(table)),
            },
            DeValue::Array(items) => DeValue::Array(items.iter().map(|item| self.value(item)).collect()),
            other => other.clone(),
        };
        Spanned::new(span, copy)
    }

    fn span(&self, span: Range<usize>) -> Range<usize> {
        span.start + self.start..span.end + self.start
    }

    fn variable<'a>(
        &mut self,
        span: Range<usize>,
        table: &DeTable<'a>,
        name: &str,
        default: Option<&Spanned<DeValue<'a>>>,
    ) -> Spanned<DeValue<'a>> {
        let found = if is_variable_name(name) {
            (self.environment)(name)
        } else {
            return self.unavailable(span, table, not_a_name(name));
        };
        match (found.map(OsString::into_string), default) {
            (Some(Ok(text)), _) => {
                self.outside.insert(span.start, Outside::Variable { name: name.to_owned(), text: text.clone() });
                Spanned::new(span, DeValue::String(DeString::Owned(text)))
            }
            (Some(Err(_)), _) => {
                let error = ConfigError::new(format!("the environment variable {name} is not UTF-8"), "expected UTF-8");
                self.unavailable(span, table, error)
            }
            (None, Some(default)) => self.value(default),
            (None, None) => {
                let error = ConfigError::new(
                    format!("the environment variable {name} is not set"),
                    "expected a variable that is set, or `default` beside `env`",
                );
                self.unavailable(
                    span,
                    table,
                    error.help(format!(
                        "set {name} where the gateway starts; with systemd, use Environment= in the unit"
                    )),
                )
            }
        }
    }

    fn credential<'a>(&mut self, span: &Range<usize>, table: &DeTable<'a>, name: &str) -> DeValue<'a> {
        let folder = (self.environment)(CREDENTIALS_DIRECTORY).map(PathBuf::from);
        let path = folder.map(|folder| folder.join(name).into_os_string().into_string());
        let is_name = !name.is_empty() && !name.contains('/') && !matches!(name, "." | "..");
        let error = match path {
            _ if !is_name => ConfigError::new("this is not the name of a credential", "expected the name of a file"),
            Some(Ok(path)) => {
                self.outside.insert(span.start, Outside::Credential { name: name.to_owned() });
                return DeValue::String(DeString::Owned(path));
            }
            _ => ConfigError::new(
                format!("there is no credential {name}: {CREDENTIALS_DIRECTORY} is not set"),
                "expected a start by systemd with credentials",
            )
            .help(format!(
                "add LoadCredential={name}:FILE to the unit; for a command by hand, set \
                 {CREDENTIALS_DIRECTORY}=/run/credentials/bearward.service"
            )),
        };
        self.outside.insert(span.start, Outside::Unavailable(Box::new(error)));
        DeValue::Table(self.table(table))
    }

    /// Keeps the table. Reading the value reports the error: a command that does not need the value works without.
    fn unavailable<'a>(&mut self, span: Range<usize>, table: &DeTable<'a>, error: ConfigError) -> Spanned<DeValue<'a>> {
        self.outside.insert(span.start, Outside::Unavailable(Box::new(error)));
        Spanned::new(span, DeValue::Table(self.table(table)))
    }
}

/// A value that is outside of the file.
enum Reference<'t, 'a> {
    Variable(&'t str, Option<&'t Spanned<DeValue<'a>>>),
    Credential(&'t str),
}

/// No table of the configuration has the keys `env` and `credential`.
fn from_outside<'t, 'a>(table: &'t DeTable<'a>) -> Option<Reference<'t, 'a>> {
    let text = |key: &str| table.get(key).and_then(|value| value.get_ref().as_str());
    match (text("env"), text("credential"), table.get("default"), table.len()) {
        (Some(name), None, default, size) if size == 1 + usize::from(default.is_some()) => {
            Some(Reference::Variable(name, default))
        }
        (None, Some(name), None, 1) => Some(Reference::Credential(name)),
        _ => None,
    }
}

pub(crate) fn is_variable_name(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_word) && !text.starts_with(|first: char| first.is_ascii_digit())
}

fn not_a_name(_name: &str) -> ConfigError {
    ConfigError::new(
        "this is not the name of an environment variable",
        "expected letters, digits and underscores, for example \"BACKEND_URL\"",
    )
    .confidential()
}
