//! The source of an error as it is printed: its lines, or a part of a long line.
//!
//! The renderer reads all text that it gets, and a file may be one long line. So what one error costs has a limit.

use std::ops::{Range, RangeInclusive};

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Snippet};

use crate::config::document::sources::{Located, Sources};

/// Maximum bytes of lines that are printed as one part.
const LONG: usize = 4_096;
/// Of a longer part, the bytes before and after the place of the error. A line on the screen has 140.
const AROUND: usize = 200;

/// A place, and what is printed below it.
struct Mark<'a> {
    located: Located<'a>,
    kind: AnnotationKind,
    label: &'a str,
}

/// A place in the source, and what is printed below it.
pub(super) type Labelled<'a> = (&'a Range<usize>, &'a str);

/// `titled`: has the title of the error. Adds its source, and that of the other place.
pub(super) fn with_source<'a>(
    titled: Group<'a>,
    level: &Level<'a>,
    sources: &'a Sources,
    error: Labelled<'a>,
    related: Option<Labelled<'a>>,
) -> Vec<Group<'a>> {
    let (span, label) = error;
    let here = Mark { located: sources.locate(Some(span)), kind: AnnotationKind::Primary, label };
    let Some((span, label)) = related else { return here.added_to(vec![titled], level) };
    let there = Mark { located: sources.locate(Some(span)), kind: AnnotationKind::Context, label };
    if let Some((snippet, start)) = here.with(&there) {
        let snippet = snippet.annotation(here.annotation(start)).annotation(there.annotation(start));
        return vec![titled.element(snippet)];
    }
    there.added_to(here.added_to(vec![titled], level), level)
}

impl<'a> Mark<'a> {
    /// `start`: where the printed source begins.
    fn annotation(&self, start: usize) -> Annotation<'a> {
        self.kind.span(self.located.span_from(start)).label(self.label)
    }

    /// The lines from one place to the other, and where they begin. `None` if they are long, or in two files.
    fn with(&self, other: &Mark<'a>) -> Option<(Snippet<'a, Annotation<'a>>, usize)> {
        let [here, there] = [&self.located, &other.located].map(Located::lines);
        let lines = *here.start().min(there.start())..=*here.end().max(there.end());
        if self.located.file == other.located.file { self.snippet(lines) } else { None }
    }

    /// `None` if the lines are long.
    fn snippet(&self, lines: RangeInclusive<usize>) -> Option<(Snippet<'a, Annotation<'a>>, usize)> {
        let first = *lines.start();
        let (text, start) = self.located.excerpt(lines);
        (text.len() <= LONG).then(|| (Snippet::source(text).line_start(first).path(&**self.located.file), start))
    }

    /// Adds the source to the last group. The renderer counts columns from the start of a part, so a part of a line has
    /// a group without a path, and its place is printed before.
    fn added_to(&self, mut groups: Vec<Group<'a>>, level: &Level<'a>) -> Vec<Group<'a>> {
        let last = groups.pop().unwrap_or_else(|| Group::with_level(level.clone()));
        if let Some((snippet, start)) = self.snippet(self.located.lines()) {
            groups.push(last.element(snippet.annotation(self.annotation(start))));
            return groups;
        }
        let (line, column) = self.located.line_and_column();
        groups.push(last.element(Origin::path(&**self.located.file).line(line).char_column(column)));
        let (text, start) = self.located.around(AROUND);
        let mut span = self.located.span_from(start);
        span.end = span.end.min(text.len());
        let annotation = self.kind.span(span).label(self.label);
        let snippet = Snippet::source(text).line_start(line).annotation(annotation);
        groups.push(Group::with_level(level.clone()).element(snippet));
        groups
    }
}
