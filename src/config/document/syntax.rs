//! Syntax errors of the file, and the errors that they cause elsewhere.
//!
//! The parser continues after an error, so that one run finds the errors before and after it. It then misreads text
//! near the error, and reports errors that the operator cannot understand. Those are dropped here.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use crate::config::document::error::{ConfigError, Place};
use crate::config::document::sources::line_and_column;

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
    let mut unreadable: Vec<Range<usize>> = Vec::new();
    let mut all = Vec::new();
    for SyntaxError { error, damage } in without_followups(tree, syntax) {
        let line = first_line(source, &error).unwrap_or(1);
        // Of several errors in one line, the first is the real one.
        if !unreadable.iter().any(|lines| lines.contains(&line)) {
            unreadable.extend(damage.lines(source, line));
            all.push(error);
        }
    }
    let is_unreadable = |line: usize| unreadable.iter().any(|lines| lines.contains(&line));
    let is_followup = |error: &ConfigError| error.missing || first_line(source, error).is_some_and(is_unreadable);
    all.extend(checked.into_iter().filter(|error| !is_followup(error)));
    all
}

fn first_line(source: &str, error: &ConfigError) -> Option<usize> {
    error.place.span.as_ref().map(|span| line_and_column(source, span.start).0)
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
    fn lines(&self, source: &str, line: usize) -> Option<Range<usize>> {
        let is_header = |text: &str| text.trim_start().starts_with('[');
        let mut lines = source.lines().skip(line - 1);
        match self {
            Damage::Nothing => None,
            Damage::Rest => Some(line..usize::MAX),
            Damage::Line if lines.next().is_some_and(is_header) => {
                let next_header = lines.position(is_header).map_or(usize::MAX, |between| line + 1 + between);
                Some(line..next_header)
            }
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
