//! Syntax errors of the file, and what not to believe because of them.
//!
//! The parser goes on after an error, so that one run shows the faults before and behind it. It also stumbles over what
//! it has just misread. What is only such an echo is left out here.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use crate::config::document::error::{Fault, Place, line_and_column};

const DUPLICATE: &str = "duplicate key";

/// The syntax errors, then those of `faults` that do not come from them.
pub(crate) fn with_syntax_errors(source: &str, tree: &DeTable<'_>, errors: &[Error], faults: Vec<Fault>) -> Vec<Fault> {
    if errors.is_empty() {
        return faults;
    }
    let mut torn: Vec<Range<usize>> = Vec::new();
    let mut all = Vec::new();
    for SyntaxError { fault, reach } in unechoed(tree, errors) {
        let line = first_line(source, &fault).unwrap_or(1);
        // Of several errors in one line, the first is the one that a person would see.
        if !torn.iter().any(|lines| lines.contains(&line)) {
            torn.extend(reach.lines(source, line));
            all.push(fault);
        }
    }
    let on_torn_line = |line: usize| torn.iter().any(|lines| lines.contains(&line));
    let is_echo = |fault: &Fault| fault.absence || first_line(source, fault).is_some_and(on_torn_line);
    all.extend(faults.into_iter().filter(|fault| !is_echo(fault)));
    all
}

fn first_line(source: &str, fault: &Fault) -> Option<usize> {
    fault.place.span.as_ref().map(|span| line_and_column(source, span.start).0)
}

struct SyntaxError {
    fault: Fault,
    reach: Reach,
}

/// How much of the file cannot be believed because of a syntax error.
enum Reach {
    /// All of it can: a duplicate key is read as if it stood there once.
    Nothing,
    /// Its own line; after a header all lines up to the next, as nobody knows what table their keys belong to.
    Line,
    /// Everything from there.
    Rest,
}

impl Reach {
    fn lines(&self, source: &str, line: usize) -> Option<Range<usize>> {
        let is_header = |text: &str| text.trim_start().starts_with('[');
        let mut lines = source.lines().skip(line - 1);
        match self {
            Reach::Nothing => None,
            Reach::Rest => Some(line..usize::MAX),
            Reach::Line if lines.next().is_some_and(is_header) => {
                let next_header = lines.position(is_header).map_or(usize::MAX, |between| line + 1 + between);
                Some(line..next_header)
            }
            Reach::Line => Some(line..line + 1),
        }
    }
}

/// A bracket that is never closed swallows the rest of the file, with an error for nearly each line of it: one fault at
/// the bracket stands for them all.
fn unechoed(tree: &DeTable<'_>, errors: &[Error]) -> Vec<SyntaxError> {
    let end = errors.iter().filter(|error| is_unclosed(error)).filter_map(Error::span).map(|span| span.start).max();
    let Some(bracket) = end.and_then(|end| bracket_open_at(tree, end)) else {
        return errors.iter().map(explain).collect();
    };
    let before = errors.iter().filter(|error| error.span().is_none_or(|span| span.start < bracket));
    let fault = Fault::new("not TOML: this bracket is never closed", "expected its other half before the file ends");
    let fault = fault.at(&Place { key: String::new(), span: Some(bracket..bracket + 1) });
    before.map(explain).chain([SyntaxError { fault, reach: Reach::Rest }]).collect()
}

fn is_unclosed(error: &Error) -> bool {
    error.message().starts_with("unclosed array,") || error.message().starts_with("unclosed inline table")
}

/// The outermost list or inline table that is still open at `end`. Tables with a header have the span of the header.
fn bracket_open_at(tree: &DeTable<'_>, end: usize) -> Option<usize> {
    let open = |value: &Spanned<DeValue<'_>>| {
        let is_open = (value.span().start..=value.span().end).contains(&end);
        is_open.then(|| value.span().start).or_else(|| inside(value, end))
    };
    tree.iter().find_map(|(_, value)| open(value))
}

fn inside(value: &Spanned<DeValue<'_>>, end: usize) -> Option<usize> {
    match value.get_ref() {
        DeValue::Table(table) => bracket_open_at(table, end),
        DeValue::Array(list) => list.iter().find_map(|item| inside(item, end)),
        _ => None,
    }
}

fn explain(error: &Error) -> SyntaxError {
    let (message, expected) = match error.message().split_once(", expected ") {
        Some((message, expected)) => (message, format!("expected {expected}")),
        None if error.message() == DUPLICATE => (DUPLICATE, "expected each key once".to_owned()),
        None => (error.message(), "this is not TOML".to_owned()),
    };
    let (help, reach) = match message {
        DUPLICATE => ("a key, or a [table], stands in the file once: remove or rename one of the two", Reach::Nothing),
        "string values must be quoted" => ("put it in quotes", Reach::Line),
        _ => ("", Reach::Line),
    };
    let fault = Fault::new(format!("not TOML: {message}"), expected).help(help);
    SyntaxError { fault: fault.at(&Place { key: String::new(), span: error.span() }), reach }
}
