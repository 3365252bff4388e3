//! The text of `gateway.toml`, and of the files that it includes.

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, LazyLock};

/// Of an error without any file.
static NO_FILE: LazyLock<File> = LazyLock::new(|| File { name: "".into(), start: 0, lines: Lines::of("") });

/// Bytes of a text between two places at which the number of characters is known.
const BLOCK: usize = 1_024;

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

/// Where each line of a text begins, and how many characters are before each block of it. To count lines and characters
/// before each of many places would read the text for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    starts: Vec<usize>,
    characters: Vec<usize>,
}

impl Lines {
    pub(crate) fn of(text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = [0].into_iter().chain(breaks.map(|(at, _)| at + 1)).collect();
        let mut characters = vec![0];
        let mut before = 0;
        for block in text.as_bytes().chunks(BLOCK) {
            before += characters_in(block);
            characters.push(before);
        }
        Lines { starts, characters }
    }

    /// The characters before this byte. `source`: the text, or one with as many bytes.
    fn characters_before(&self, source: &str, offset: usize) -> usize {
        let block = offset / BLOCK;
        let rest = source.as_bytes().get(block * BLOCK..offset).unwrap_or_default();
        self.characters.get(block).copied().unwrap_or_default() + characters_in(rest)
    }

    /// The number of the line with this byte, from 1.
    pub(crate) fn number(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    /// The bytes of these lines in a text of `len` bytes.
    pub(crate) fn range(&self, numbers: RangeInclusive<usize>, len: usize) -> Range<usize> {
        let start = |number: usize| self.starts.get(number).copied().unwrap_or(len);
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
        let line = self.line();
        let at = self.span.start.min(self.source.len());
        let [start, end] = [self.lines.range(line..=line, at).start, at];
        let [before, here] = [start, end].map(|offset| self.lines.characters_before(self.source, offset));
        (line, here.saturating_sub(before) + 1)
    }

    /// The number of the line in which the span begins, from 1.
    pub(crate) fn line(&self) -> usize {
        self.lines.number(self.span.start.min(self.source.len()))
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

impl<'s> Located<'s> {
    /// The part of the first line that is near the start of the span: at most this many bytes before and after it. Also
    /// returns the byte of `source` at which it begins.
    pub(crate) fn around(&self, bytes: usize) -> (&'s str, usize) {
        let line = self.line();
        let line = self.lines.range(line..=line, self.source.len());
        let start = self.source.ceil_char_boundary(line.start.max(self.span.start.saturating_sub(bytes)));
        let end = self.source.floor_char_boundary(line.end.min(self.span.start + bytes));
        (self.source.get(start..end).unwrap_or_default(), start)
    }
}

/// The characters that begin in these bytes of UTF-8.
fn characters_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
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

    /// The texts of all files, one after the other.
    pub(crate) fn text(&self) -> &str {
        &self.text
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

    #[test]
    fn a_place_in_a_long_line_has_its_column_and_its_surroundings() {
        let text = format!("{}\n{}\nb = 1", "# é".repeat(500), "éa".repeat(2_000));
        let sources = Sources::new("a.toml", &text);
        let line = 2_001;
        for (offset, position, (part, start)) in [
            (0, (1, 1), ("# é", 0)),
            (line, (2, 1), ("éa", line)),
            (line + 3, (2, 3), ("éaéa", line)),
            (line + 3_000, (2, 2_001), ("aéaéa", line + 2_996)),
            (line + 6_000, (2, 4_001), ("aéa\n", line + 5_996)),
            (line + 6_001, (3, 1), ("b = ", line + 6_001)),
            (text.len(), (3, 6), (" = 1", text.len() - 4)),
        ] {
            let found = sources.locate(Some(&(offset..offset)));
            let around = found.around(4);
            assert_eq!((found.line_and_column(), around.1), (position, start), "{offset}: {around:?}");
            assert_eq!(around.0, part, "{offset}");
        }
    }
}
