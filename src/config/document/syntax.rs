//! Syntax errors of the file, and the errors that they cause elsewhere.
//!
//! The parser continues after an error, so that one run finds the errors before and after it. It then misreads text
//! near the error, and reports errors that the operator cannot understand. Those are dropped here.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use crate::config::document::error::{ConfigError, Place};
use crate::config::document::sources::Lines;

const DUPLICATE: &str = "duplicate key";

/// The syntax errors, and the errors of `checked` that they did not cause.
pub(crate) fn with_syntax_errors(
    source: &str,
    tree: &DeTable<'_>,
    syntax: &[Error],
    checked: Vec<ConfigError>,
) -> Vec<ConfigError> {
    if syntax.is_empty() {
        return checked;
    }
    let text = Text::of(source);
    let mut unreadable = Unreadable::default();
    let mut all = Vec::new();
    for SyntaxError { error, damage } in without_followups(tree, syntax) {
        let line = text.first_line(&error).unwrap_or(1);
        // Of several errors in one line, the first is the real one.
        if !unreadable.contains(line) {
            damage.lines(&text, line).into_iter().for_each(|lines| unreadable.add(lines));
            all.push(error);
        }
    }
    let is_unreadable = |line: usize| unreadable.contains(line);
    let is_followup = |error: &ConfigError| error.missing || text.first_line(error).is_some_and(is_unreadable);
    all.extend(checked.into_iter().filter(|error| !is_followup(error)));
    all
}

/// The file, and what is searched in it for each error.
struct Text {
    lines: Lines,
    /// The numbers of the lines that begin with a bracket, in order.
    headers: Vec<usize>,
}

impl Text {
    fn of(source: &str) -> Self {
        let is_header = |text: &str| text.trim_start().starts_with('[');
        let headers = (1..).zip(source.lines()).filter(|(_, text)| is_header(text)).map(|(line, _)| line).collect();
        Text { lines: Lines::of(source), headers }
    }

    fn first_line(&self, error: &ConfigError) -> Option<usize> {
        error.place.span.as_ref().map(|span| self.lines.number(span.start))
    }
}

/// Lines that cannot be read, by the first of each part.
#[derive(Default)]
struct Unreadable(BTreeMap<usize, usize>);

impl Unreadable {
    fn add(&mut self, lines: Range<usize>) {
        let mut end = lines.end;
        while let Some((inside, its_end)) = self.0.range(lines.clone()).next().map(|(start, end)| (*start, *end)) {
            self.0.remove(&inside);
            end = end.max(its_end);
        }
        self.0.insert(lines.start, end);
    }

    fn contains(&self, line: usize) -> bool {
        self.0.range(..=line).next_back().is_some_and(|(_, end)| line < *end)
    }
}

struct SyntaxError {
    error: ConfigError,
    damage: Damage,
}

/// The part of the file that is unreadable because of a syntax error.
enum Damage {
    /// None: a duplicate key is read as if it occurred once.
    Nothing,
    /// The line. For a header also all lines up to the next header, because the table of their keys is unknown.
    Line,
    /// Everything from there on.
    Rest,
}

impl Damage {
    fn lines(&self, text: &Text, line: usize) -> Option<Range<usize>> {
        let next = text.headers.partition_point(|header| *header <= line);
        let is_header = text.headers.binary_search(&line).is_ok();
        match self {
            Damage::Nothing => None,
            Damage::Rest => Some(line..usize::MAX),
            Damage::Line if is_header => Some(line..text.headers.get(next).copied().unwrap_or(usize::MAX)),
            Damage::Line => Some(line..line + 1),
        }
    }
}

/// A bracket that is never closed causes an error in almost each line after it. One error at the bracket replaces them.
fn without_followups(tree: &DeTable<'_>, syntax: &[Error]) -> Vec<SyntaxError> {
    let end = syntax.iter().filter(|error| is_unclosed(error)).filter_map(Error::span).map(|span| span.start).max();
    let Some(bracket) = end.and_then(|end| bracket_open_at(tree, end)) else {
        return syntax.iter().map(explain).collect();
    };
    let before = syntax.iter().filter(|error| error.span().is_none_or(|span| span.start < bracket));
    let error = ConfigError::new("not TOML: this bracket is never closed", "expected a closing bracket");
    let error = error.at(&Place { key: String::new(), span: Some(bracket..bracket + 1) });
    before.map(explain).chain([SyntaxError { error, damage: Damage::Rest }]).collect()
}

fn is_unclosed(error: &Error) -> bool {
    error.message().starts_with("unclosed array,") || error.message().starts_with("unclosed inline table")
}

/// The outermost list or inline table that is still open at `end`. The span of a table with a header is the header.
fn bracket_open_at(tree: &DeTable<'_>, end: usize) -> Option<usize> {
    let open = |value: &Spanned<DeValue<'_>>| {
        let is_open = (value.span().start..=value.span().end).contains(&end);
        is_open.then(|| value.span().start).or_else(|| open_inside(value, end))
    };
    tree.iter().find_map(|(_, value)| open(value))
}

fn open_inside(value: &Spanned<DeValue<'_>>, end: usize) -> Option<usize> {
    match value.get_ref() {
        DeValue::Table(table) => bracket_open_at(table, end),
        DeValue::Array(list) => list.iter().find_map(|item| open_inside(item, end)),
        _ => None,
    }
}

fn explain(error: &Error) -> SyntaxError {
    let (message, expected) = match error.message().split_once(", expected ") {
        Some((message, expected)) => (message, format!("expected {expected}")),
        None if error.message() == DUPLICATE => (DUPLICATE, "expected each key once".to_owned()),
        None => (error.message(), "this is not TOML".to_owned()),
    };
    let (help, damage) = match message {
        DUPLICATE => ("a key or [table] may occur once: remove or rename one of the two", Damage::Nothing),
        "string values must be quoted" => ("put it in quotes", Damage::Line),
        _ => ("", Damage::Line),
    };
    let config_error = ConfigError::new(format!("not TOML: {message}"), expected).help(help);
    SyntaxError { error: config_error.at(&Place { key: String::new(), span: error.span() }), damage }
}
