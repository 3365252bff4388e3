//! What is wrong with `gateway.toml`, and how it is shown: for people as rustc shows errors, for programs as JSON.
//!
//! A check that knows nothing of positions makes a [`Fault`]; whoever holds the value puts it [`Fault::at`] its place.
//! [`Faults`] is everything wrong with one file, in the order of the file.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str};
use serde_json::{Value, json};

/// A place in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// `route[0].scopes`; empty where no single key is meant.
    pub key: String,
    /// Bytes of the file; `None` for the file as a whole.
    pub span: Option<Range<usize>>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// What was expected. Stands under the underlined source.
    pub expected: String,
    /// What to do. Empty where that is plain.
    pub help: String,
    /// Another place that has a part in it, and which.
    pub related: Option<(Place, String)>,
    /// It complains that something is not there. A torn line may hold it, so this is not believed of a file with syntax
    /// errors.
    pub(crate) absence: bool,
    /// Part of the file that may be a secret. It is not shown, as faults end up in journals.
    hidden: Option<Range<usize>>,
    /// The value at fault is such a part, once it has its place.
    confidential: bool,
}

impl Fault {
    pub(crate) fn new(message: impl Into<String>, expected: impl Into<String>) -> Self {
        Fault {
            place: Place::default(),
            message: message.into(),
            expected: expected.into(),
            help: String::new(),
            related: None,
            absence: false,
            hidden: None,
            confidential: false,
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    pub(crate) fn related(mut self, place: &Place, what: impl Into<String>) -> Self {
        self.related = Some((place.clone(), what.into()));
        self
    }

    pub(crate) fn of_absence(mut self) -> Self {
        self.absence = true;
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

/// Everything that is wrong with one file. Never empty.
pub struct Faults {
    file: String,
    source: String,
    faults: Vec<Fault>,
}

impl Faults {
    pub(crate) fn new(file: &str, source: &str, mut faults: Vec<Fault>) -> Self {
        // Faults of the file as a whole come first: they have no span, and `None` sorts before any position.
        faults.sort_by_key(|fault| fault.place.span.as_ref().map(|span| (span.start, span.end)));
        faults.dedup();
        let mut source = source.to_owned();
        for hidden in faults.iter().filter_map(|fault| fault.hidden.clone()) {
            // Byte by byte and line by line, so that every position stays what it is.
            let stars =
                source[hidden.clone()].bytes().map(|byte| if byte == b'\n' { '\n' } else { '*' }).collect::<String>();
            source.replace_range(hidden, &stars);
        }
        Faults { file: file.to_owned(), source, faults }
    }

    /// In the order of the file.
    pub fn all(&self) -> &[Fault] {
        &self.faults
    }

    /// Line and column of the first character, both from 1; columns count characters. A fault of the file as a whole
    /// stands at 1:1.
    pub fn line_and_column(&self, place: &Place) -> (usize, usize) {
        line_and_column(&self.source, place.span.as_ref().map_or(0, |span| span.start))
    }

    /// For people: each fault with its source underlined, and how many there are.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut text = String::new();
        for fault in &self.faults {
            text.push_str(&renderer.render(&[self.explain(fault)]));
            text.push_str("\n\n");
        }
        let count = match self.faults.len() {
            1 => format!("1 fault in {}", self.file),
            several => format!("{several} faults in {}", self.file),
        };
        text.push_str(&renderer.render(&[Group::with_title(Level::ERROR.primary_title(count))]));
        text.push('\n');
        text
    }

    fn explain<'a>(&'a self, fault: &'a Fault) -> Group<'a> {
        let title = match fault.place.key.as_str() {
            "" => fault.message.clone(),
            key => format!("{key}: {}", fault.message),
        };
        let group = Group::with_title(Level::ERROR.primary_title(title));
        let group = match self.snippet(fault) {
            Some(snippet) => group.element(snippet),
            // Nothing to underline: what was expected has no other place than a line of its own.
            None => group
                .element(Origin::path(self.file.as_str()))
                .element(Level::NOTE.message(normalize_untrusted_str(&fault.expected))),
        };
        match fault.help.as_str() {
            "" => group,
            // The help may quote the file, and the terminal must not obey what the file says.
            help => group.element(Level::HELP.message(normalize_untrusted_str(help))),
        }
    }

    fn snippet<'a>(&'a self, fault: &'a Fault) -> Option<Snippet<'a, annotate_snippets::Annotation<'a>>> {
        let span = fault.place.span.clone()?;
        let primary = AnnotationKind::Primary.span(span).label(fault.expected.as_str());
        let related = fault.related.as_ref().and_then(|(place, what)| {
            let span = place.span.clone()?;
            Some(AnnotationKind::Context.span(span).label(what.as_str()))
        });
        Some(Snippet::source(self.source.as_str()).path(self.file.as_str()).annotation(primary).annotations(related))
    }

    /// For programs: an array of objects.
    pub fn json(&self) -> String {
        let faults: Vec<Value> = self.faults.iter().map(|fault| self.as_json(fault)).collect();
        format!("{:#}", Value::Array(faults))
    }

    fn as_json(&self, fault: &Fault) -> Value {
        let (line, column) = self.line_and_column(&fault.place);
        json!({
            "file": self.file,
            "line": line,
            "column": column,
            "key": fault.place.key,
            "message": fault.message,
            "expected": fault.expected,
            "help": fault.help,
        })
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// As people see it, so that a failing test shows what is wrong.
impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl std::error::Error for Faults {}

pub(crate) fn line_and_column(source: &str, offset: usize) -> (usize, usize) {
    let before = source.get(..offset).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |line_break| line_break + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}
