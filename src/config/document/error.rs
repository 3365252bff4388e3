//! Errors in `gateway.toml`, and how they are printed: for people as rustc prints errors, for programs as JSON.
//!
//! A check that does not know the position creates a [`ConfigError`]; the caller that holds the value sets its place
//! with [`ConfigError::at`]. [`ConfigErrors`] are all errors of one file, in the order of the file.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::panic::Location;

use annotate_snippets::{Group, Level, Origin, Renderer, normalize_untrusted_str};
use serde_json::{Value, json};

use crate::config::document::record::without_indexes;
use crate::config::document::secrets::{self, Unwanted};
use crate::config::document::snippets::with_source;
use crate::config::document::sources::Sources;

/// How many warnings of one kind are printed, and of how many others the places.
const SHOWN: usize = 3;
const LISTED: usize = 10;
/// Shorter secrets are not taken out of messages: they are parts of other words.
const MIN_TAKEN_OUT: usize = 4;

/// A place in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// For example `route[0].scopes`. Empty if the error is not about one key.
    pub key: String,
    /// Bytes of the file. `None`: the file as a whole.
    pub span: Option<Range<usize>>,
}

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// What was expected. Printed below the underlined source.
    pub expected: String,
    /// What to do. Empty if that is obvious.
    pub help: String,
    /// Another place that conflicts with this one, and a label for it.
    pub related: Option<(Place, String)>,
    /// Something is missing. Such errors are dropped if the file has syntax errors: an unreadable line may contain it.
    pub(crate) missing: bool,
    /// Parts of the file that may be a secret. They are printed as asterisks, because errors end up in logs.
    hidden: Vec<Range<usize>>,
    /// If true, `at` hides the value.
    confidential: bool,
    pub(super) kind: Kind,
}

/// The place in the code that makes an error. Errors from one place differ only in the values that they name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind(pub(super) &'static Location<'static>);

/// It is no part of what an error says.
impl PartialEq for Kind {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Kind {}

impl ConfigError {
    #[track_caller]
    pub(crate) fn new(message: impl Into<String>, expected: impl Into<String>) -> Self {
        ConfigError::of_kind(Kind(Location::caller()), message.into(), expected.into())
    }

    /// Is never put into its callers: they are hundreds, and none of them is fast.
    #[inline(never)]
    fn of_kind(kind: Kind, message: String, expected: String) -> Self {
        ConfigError {
            place: Place::default(),
            message,
            expected,
            help: String::new(),
            related: None,
            missing: false,
            hidden: Vec::new(),
            confidential: false,
            kind,
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    pub(crate) fn related(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.related = Some((place.clone(), label.into()));
        self
    }

    pub(crate) fn missing(mut self) -> Self {
        self.missing = true;
        self
    }

    pub(crate) fn hiding(mut self, spans: Vec<Range<usize>>) -> Self {
        self.hidden = spans;
        self
    }

    pub(crate) fn confidential(mut self) -> Self {
        self.confidential = true;
        self
    }

    /// Replaces all texts that may quote a value.
    pub(super) fn map_text(mut self, map: impl Fn(&str) -> String) -> Self {
        for text in [&mut self.message, &mut self.expected, &mut self.help] {
            *text = map(text);
        }
        self
    }

    /// The place, which counts from the start of all files, counts from `start` instead, or the reverse.
    pub(super) fn moved(mut self, start: usize, forward: bool) -> Self {
        let shift = |position: usize| if forward { position + start } else { position.saturating_sub(start) };
        self.place.span = self.place.span.map(|span| shift(span.start)..shift(span.end));
        self
    }

    pub(crate) fn at(mut self, place: &Place) -> Self {
        self.place = place.clone();
        if self.confidential {
            self.hidden = place.span.clone().into_iter().collect();
        }
        self
    }
}

/// Whether the gateway starts with what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }

    fn level(self) -> Level<'static> {
        match self {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        }
    }
}

/// All errors of one file. Never empty.
#[derive(thiserror::Error)]
#[error("{}", self.render(false))]
pub struct ConfigErrors {
    sources: Sources,
    errors: Vec<ConfigError>,
    severity: Severity,
}

impl ConfigErrors {
    pub(crate) fn new(sources: Sources, errors: Vec<ConfigError>) -> Self {
        Self::of(Severity::Error, sources, errors)
    }

    pub(super) fn of(severity: Severity, mut sources: Sources, mut errors: Vec<ConfigError>) -> Self {
        // Errors of the file as a whole come first: they have no span, and `None` sorts before any position.
        errors.sort_by_key(|error| error.place.span.as_ref().map(|span| (span.start, span.end)));
        errors.dedup();
        if !errors.is_empty() {
            hide_secrets(&mut sources, &mut errors);
        }
        ConfigErrors { sources, errors, severity }
    }

    /// In the order of the file.
    pub fn all(&self) -> &[ConfigError] {
        &self.errors
    }

    /// Line and column of the first character, both starting at 1. Columns count characters. An error of the file as a
    /// whole is at 1:1.
    pub fn line_and_column(&self, place: &Place) -> (usize, usize) {
        self.sources.locate(place.span.as_ref()).line_and_column()
    }

    /// For people: each error with its source underlined, then the number of errors.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut text = String::new();
        for Shown { error, more } in self.shown() {
            let mut groups = self.groups(error);
            groups.extend(more.map(|more| Group::with_title(Level::NOTE.primary_title(more))));
            text.push_str(&renderer.render(&groups));
            text.push_str("\n\n");
        }
        let name = self.severity.name();
        let level = self.severity.level();
        let file = |error: &ConfigError| &**self.sources.locate(error.place.span.as_ref()).file;
        let files: BTreeSet<&str> = self.errors.iter().map(file).collect();
        let file = match files.first() {
            Some(file) if files.len() == 1 => (*file).to_owned(),
            _ => format!("{} files", files.len()),
        };
        let count = match self.errors.len() {
            1 => format!("1 {name} in {file}"),
            several => format!("{several} {name}s in {file}"),
        };
        text.push_str(&renderer.render(&[Group::with_title(level.primary_title(count))]));
        text.push('\n');
        text
    }

    fn groups<'a>(&'a self, error: &'a ConfigError) -> Vec<Group<'a>> {
        let level = self.severity.level();
        let titled = Group::with_title(level.clone().primary_title(title(error)));
        let mut groups = match &error.place.span {
            Some(span) => {
                let related = error.related.as_ref();
                let related = related.and_then(|(place, label)| Some((place.span.as_ref()?, label.as_str())));
                with_source(titled, &level, &self.sources, (span, &error.expected), related)
            }
            // Without source to underline, `expected` gets a line of its own.
            None => {
                let origin = titled.element(Origin::path(self.sources.main()));
                vec![origin.element(Level::NOTE.message(normalize_untrusted_str(&error.expected)))]
            }
        };
        // The help may quote the file. Escape codes in it must not reach the terminal.
        let help = Some(normalize_untrusted_str(&error.help)).filter(|help| !help.is_empty());
        let last = groups.pop().map(|last| last.elements(help.map(|help| Level::HELP.message(help))));
        groups.extend(last);
        groups
    }

    /// The errors as they are printed: of many warnings of one kind, some are printed, and the places of the others
    /// follow.
    fn shown(&self) -> Vec<Shown<'_>> {
        if self.severity == Severity::Error {
            return self.errors.iter().map(|error| Shown { error, more: None }).collect();
        }
        let mut kinds: Vec<Vec<&ConfigError>> = Vec::new();
        let mut by_kind = HashMap::new();
        for error in &self.errors {
            let kind = (without_indexes(&error.place.key), error.kind.0);
            let number = *by_kind.entry(kind).or_insert(kinds.len());
            match kinds.get_mut(number) {
                Some(same) => same.push(error),
                None => kinds.push(vec![error]),
            }
        }
        kinds.iter().flat_map(|same| self.shown_of_kind(same)).collect()
    }

    fn shown_of_kind<'a>(&self, same: &[&'a ConfigError]) -> Vec<Shown<'a>> {
        let mut shown: Vec<_> = same.iter().take(SHOWN).map(|error| Shown { error, more: None }).collect();
        let others = same.get(SHOWN..).unwrap_or_default();
        if !others.is_empty()
            && let Some(last) = shown.last_mut()
        {
            let place = |error: &&ConfigError| {
                let located = self.sources.locate(error.place.span.as_ref());
                format!("{}:{}", located.file, located.line_and_column().0)
            };
            let places: Vec<_> = others.iter().take(LISTED).map(place).collect();
            let rest = if others.len() > LISTED { ", …" } else { "" };
            let count = others.len();
            last.more = Some(format!("{count} more of this kind, at {}{rest}; --json lists all", places.join(", ")));
        }
        shown
    }

    /// For programs: an array of objects.
    pub fn json(&self) -> String {
        let errors: Vec<Value> = self.errors.iter().map(|error| self.as_json(error)).collect();
        format!("{:#}", Value::Array(errors))
    }

    /// For a log: each in one line.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.shown().into_iter().map(|Shown { error, more }| {
            let located = self.sources.locate(error.place.span.as_ref());
            let file = located.file;
            let (line, column) = located.line_and_column();
            let advice = if error.help.is_empty() { &error.expected } else { &error.help };
            let more = more.map_or_else(String::new, |more| format!("; {more}"));
            format!("{file}:{line}:{column}: {} ({advice}){more}", title(error))
        })
    }

    fn as_json(&self, error: &ConfigError) -> Value {
        let located = self.sources.locate(error.place.span.as_ref());
        let (line, column) = located.line_and_column();
        json!({
            "severity": self.severity.name(),
            "file": &**located.file,
            "line": line,
            "column": column,
            "key": error.place.key,
            "message": error.message,
            "expected": error.expected,
            "help": error.help,
        })
    }
}

/// Hides the parts of the files that may be a secret, and takes them out of what the errors say.
fn hide_secrets(sources: &mut Sources, errors: &mut [ConfigError]) {
    let found = secrets::in_text(sources.text());
    let texts = found.iter().filter_map(|span| sources.text().get(span.clone()));
    let texts: HashSet<_> = texts.filter(|text| text.len() >= MIN_TAKEN_OUT).flat_map(forms).collect();
    if !texts.is_empty() {
        let unwanted = Unwanted::new(texts);
        let without = |text: &str| unwanted.take_out(text);
        errors.iter_mut().for_each(|error| *error = error.clone().map_text(without));
    }
    found.into_iter().for_each(|span| sources.hide(span));
    errors.iter().flat_map(|error| error.hidden.clone()).for_each(|hidden| sources.hide(hidden));
}

/// A text as it is written, and as messages quote it.
fn forms(text: &str) -> [String; 2] {
    [text.to_owned(), text.escape_debug().to_string()]
}

/// An error that is printed.
struct Shown<'e> {
    error: &'e ConfigError,
    /// Where others of its kind are, which are not printed.
    more: Option<String>,
}

fn title(error: &ConfigError) -> String {
    match error.place.key.as_str() {
        "" => error.message.clone(),
        key => format!("{key}: {}", error.message),
    }
}

/// The same text as `Display`, so that a failed test prints readable errors.
impl fmt::Debug for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}
