//! The text of `gateway.toml`, and of the files that it includes.

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, LazyLock};

/// Of an error without any file.
static NO_FILE: LazyLock<File> = LazyLock::new(|| File { name: "".into(), start: 0, lines: Lines::of("") });

/// The texts, one after the other. A position counts from the start of the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    text: String,
    files: Vec<File>,
}

#[derive(Clone, Debug)]
struct File {
    name: Arc<str>,
    start: usize,
    lines: Lines,
}

/// Where each line of a text begins. A search for line breaks before each of many places would read the text for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Vec<usize>);

impl Lines {
    pub(crate) fn of(text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Lines([0].into_iter().chain(breaks.map(|(at, _)| at + 1)).collect())
    }

    /// The number of the line with this byte, from 1.
    pub(crate) fn number(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset)
    }

    /// The bytes of these lines in a text of `len` bytes.
    pub(crate) fn range(&self, numbers: RangeInclusive<usize>, len: usize) -> Range<usize> {
        let start = |number: usize| self.0.get(number).copied().unwrap_or(len);
        start(numbers.start().saturating_sub(1))..start(*numbers.end())
    }
}

/// A part of one file.
pub(crate) struct Located<'s> {
    pub(crate) file: &'s Arc<str>,
    /// The whole text of the file.
    pub(crate) source: &'s str,
    /// Bytes of `source`.
    pub(crate) span: Range<usize>,
    lines: &'s Lines,
}

impl<'s> Located<'s> {
    /// Both start at 1. Columns count characters.
    pub(crate) fn line_and_column(&self) -> (usize, usize) {
        let before = self.source.get(..self.span.start).unwrap_or(self.source);
        let line = self.lines.number(before.len());
        let line_start = self.lines.range(line..=line, before.len()).start;
        (line, before.get(line_start..).unwrap_or_default().chars().count() + 1)
    }

    /// The span in a part of `source` that begins at this byte.
    pub(crate) fn span_from(&self, start: usize) -> Range<usize> {
        self.span.start.saturating_sub(start)..self.span.end.saturating_sub(start)
    }

    /// The numbers of the first and the last line of the span.
    pub(crate) fn lines(&self) -> RangeInclusive<usize> {
        self.lines.number(self.span.start)..=self.lines.number(self.span.end)
    }

    /// The text of these lines, and the byte of `source` at which it begins.
    pub(crate) fn excerpt(&self, numbers: RangeInclusive<usize>) -> (&'s str, usize) {
        let range = self.lines.range(numbers, self.source.len());
        let start = range.start;
        (self.source.get(range).unwrap_or_default(), start)
    }
}

impl Sources {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let mut sources = Sources::default();
        sources.add(name, text);
        sources
    }

    /// Returns the position of the text.
    pub(crate) fn add(&mut self, name: &str, text: &str) -> usize {
        let start = self.text.len();
        self.files.push(File { name: name.into(), start, lines: Lines::of(text) });
        self.text.push_str(text);
        start
    }

    /// The name of the first file.
    pub(crate) fn main(&self) -> &str {
        self.files.first().map_or("", |file| &*file.name)
    }

    /// The start of the first file, if there is no span.
    pub(crate) fn locate(&self, span: Option<&Range<usize>>) -> Located<'_> {
        let span = span.cloned().unwrap_or(0..0);
        let index = self.files.partition_point(|file| file.start <= span.start).saturating_sub(1);
        let File { name, start, lines } = self.files.get(index).unwrap_or(&NO_FILE);
        let end = self.files.get(index + 1).map_or(self.text.len(), |next| next.start);
        Located {
            file: name,
            source: self.text.get(*start..end).unwrap_or_default(),
            span: span.start.saturating_sub(*start)..span.end.min(end).saturating_sub(*start),
            lines,
        }
    }

    /// Hides the texts of all files.
    pub(crate) fn hide_all(&mut self) {
        self.hide(0..self.text.len());
    }

    /// Replaces a part by asterisks, byte by byte and without touching line breaks, so that all positions stay valid.
    pub(crate) fn hide(&mut self, span: Range<usize>) {
        let hidden = self.text.get(span.clone()).unwrap_or_default().bytes();
        let asterisks = hidden.map(|byte| if byte == b'\n' { '\n' } else { '*' }).collect::<String>();
        if asterisks.len() == span.len() {
            self.text.replace_range(span, &asterisks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_found_in_its_file() {
        let mut sources = Sources::new("a.toml", "a = 1\nb = 2\n");
        assert_eq!(sources.add("empty.toml", ""), 12);
        let start = sources.add("c.toml", "c = 3");
        for (span, file, position, text) in [
            (None, "a.toml", (1, 1), ""),
            (Some(10..11), "a.toml", (2, 5), "2"),
            (Some(start..start + 1), "c.toml", (1, 1), "c"),
            (Some(start + 4..start + 5), "c.toml", (1, 5), "3"),
        ] {
            let found = sources.locate(span.as_ref());
            assert_eq!(
                (&**found.file, found.line_and_column(), &found.source[found.span.clone()]),
                (file, position, text)
            );
        }
        let lines = Lines::of("a\nbc\n");
        assert_eq!([0, 1, 2, 4, 5, 9].map(|at| lines.number(at)), [1, 1, 2, 2, 3, 3]);
        assert_eq!([1..=1, 2..=3, 3..=3, 1..=9].map(|numbers| lines.range(numbers, 5)), [0..2, 2..5, 5..5, 0..5]);
        sources.hide(start..start + 5);
        assert_eq!(sources.locate(Some(&(start..start))).source, "*****");
    }
}
