//! Errors in `gateway.toml`, and how they are printed: for people as rustc prints errors, for programs as JSON.
//!
//! A check that does not know the position creates a [`ConfigError`]; the caller that holds the value sets its place
//! with [`ConfigError::at`]. [`ConfigErrors`] are all errors of one file, in the order of the file.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str};
use serde_json::{Value, json};

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
    /// Part of the file that may be a secret. It is printed as asterisks, because errors end up in logs.
    hidden: Option<Range<usize>>,
    /// If true, `at` hides the value.
    confidential: bool,
}

impl ConfigError {
    pub(crate) fn new(message: impl Into<String>, expected: impl Into<String>) -> Self {
        ConfigError {
            place: Place::default(),
            message: message.into(),
            expected: expected.into(),
            help: String::new(),
            related: None,
            missing: false,
            hidden: None,
            confidential: false,
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

    pub(crate) fn hiding(mut self, span: Option<Range<usize>>) -> Self {
        self.hidden = span;
        self
    }

    pub(crate) fn confidential(mut self) -> Self {
        self.confidential = true;
        self
    }

    pub(crate) fn at(mut self, place: &Place) -> Self {
        self.place = place.clone();
        if self.confidential {
            self.hidden = place.span.clone();
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
pub struct ConfigErrors {
    file: String,
    source: String,
    errors: Vec<ConfigError>,
    severity: Severity,
}

impl ConfigErrors {
    pub(crate) fn new(file: &str, source: &str, errors: Vec<ConfigError>) -> Self {
        Self::of(Severity::Error, file, source, errors)
    }

    pub(super) fn of(severity: Severity, file: &str, source: &str, mut errors: Vec<ConfigError>) -> Self {
        // Errors of the file as a whole come first: they have no span, and `None` sorts before any position.
        errors.sort_by_key(|error| error.place.span.as_ref().map(|span| (span.start, span.end)));
        errors.dedup();
        let mut source = source.to_owned();
        for hidden in errors.iter().filter_map(|error| error.hidden.clone()) {
            // Byte by byte and without touching line breaks, so that all positions stay valid.
            let asterisks =
                source[hidden.clone()].bytes().map(|byte| if byte == b'\n' { '\n' } else { '*' }).collect::<String>();
            source.replace_range(hidden, &asterisks);
        }
        ConfigErrors { file: file.to_owned(), source, errors, severity }
    }

    /// In the order of the file.
    pub fn all(&self) -> &[ConfigError] {
        &self.errors
    }

    /// Line and column of the first character, both starting at 1. Columns count characters. An error of the file as a
    /// whole is at 1:1.
    pub fn line_and_column(&self, place: &Place) -> (usize, usize) {
        line_and_column(&self.source, place.span.as_ref().map_or(0, |span| span.start))
    }

    /// For people: each error with its source underlined, then the number of errors.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut text = String::new();
        for error in &self.errors {
            text.push_str(&renderer.render(&[self.group(error)]));
            text.push_str("\n\n");
        }
        let (name, level) = (self.severity.name(), self.severity.level());
        let count = match self.errors.len() {
            1 => format!("1 {name} in {}", self.file),
            several => format!("{several} {name}s in {}", self.file),
        };
        text.push_str(&renderer.render(&[Group::with_title(level.primary_title(count))]));
        text.push('\n');
        text
    }

    fn group<'a>(&'a self, error: &'a ConfigError) -> Group<'a> {
        let group = Group::with_title(self.severity.level().primary_title(title(error)));
        let group = match self.snippet(error) {
            Some(snippet) => group.element(snippet),
            // Without source to underline, `expected` gets a line of its own.
            None => group
                .element(Origin::path(self.file.as_str()))
                .element(Level::NOTE.message(normalize_untrusted_str(&error.expected))),
        };
        match error.help.as_str() {
            "" => group,
            // The help may quote the file. Escape codes in it must not reach the terminal.
            help => group.element(Level::HELP.message(normalize_untrusted_str(help))),
        }
    }

    fn snippet<'a>(&'a self, error: &'a ConfigError) -> Option<Snippet<'a, annotate_snippets::Annotation<'a>>> {
        let span = error.place.span.clone()?;
        let primary = AnnotationKind::Primary.span(span).label(error.expected.as_str());
        let related = error.related.as_ref().and_then(|(place, label)| {
            let span = place.span.clone()?;
            Some(AnnotationKind::Context.span(span).label(label.as_str()))
        });
        Some(Snippet::source(self.source.as_str()).path(self.file.as_str()).annotation(primary).annotations(related))
    }

    /// For programs: an array of objects.
    pub fn json(&self) -> String {
        let errors: Vec<Value> = self.errors.iter().map(|error| self.as_json(error)).collect();
        format!("{:#}", Value::Array(errors))
    }

    /// For a log: each in one line.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.errors.iter().map(|error| {
            let (line, column) = self.line_and_column(&error.place);
            let advice = if error.help.is_empty() { &error.expected } else { &error.help };
            format!("{}:{line}:{column}: {} ({advice})", self.file, title(error))
        })
    }

    fn as_json(&self, error: &ConfigError) -> Value {
        let (line, column) = self.line_and_column(&error.place);
        json!({
            "severity": self.severity.name(),
            "file": self.file,
            "line": line,
            "column": column,
            "key": error.place.key,
            "message": error.message,
            "expected": error.expected,
            "help": error.help,
        })
    }
}

fn title(error: &ConfigError) -> String {
    match error.place.key.as_str() {
        "" => error.message.clone(),
        key => format!("{key}: {}", error.message),
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// The same text as `Display`, so that a failed test prints readable errors.
impl fmt::Debug for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl std::error::Error for ConfigErrors {}

pub(crate) fn line_and_column(source: &str, offset: usize) -> (usize, usize) {
    let before = source.get(..offset).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |line_break| line_break + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}
