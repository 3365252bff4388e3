//! The text of `gateway.toml`, and of the files that it includes.

use std::ops::Range;

/// The texts, one after the other. A position counts from the start of the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    text: String,
    files: Vec<File>,
}

#[derive(Clone, Debug)]
struct File {
    name: String,
    start: usize,
}

/// A part of one file.
pub(crate) struct Located<'s> {
    pub(crate) file: &'s str,
    /// The whole text of the file.
    pub(crate) source: &'s str,
    /// Bytes of `source`.
    pub(crate) span: Range<usize>,
}

impl Located<'_> {
    /// Both start at 1. Columns count characters.
    pub(crate) fn line_and_column(&self) -> (usize, usize) {
        line_and_column(self.source, self.span.start)
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
        self.files.push(File { name: name.to_owned(), start });
        self.text.push_str(text);
        start
    }

    /// The name of the first file.
    pub(crate) fn main(&self) -> &str {
        self.files.first().map_or("", |file| file.name.as_str())
    }

    /// The start of the first file, if there is no span.
    pub(crate) fn locate(&self, span: Option<&Range<usize>>) -> Located<'_> {
        let span = span.cloned().unwrap_or(0..0);
        let index = self.files.partition_point(|file| file.start <= span.start).saturating_sub(1);
        let start = self.files.get(index).map_or(0, |file| file.start);
        let end = self.files.get(index + 1).map_or(self.text.len(), |next| next.start);
        Located {
            file: self.files.get(index).map_or("", |file| file.name.as_str()),
            source: self.text.get(start..end).unwrap_or_default(),
            span: span.start.saturating_sub(start)..span.end.min(end).saturating_sub(start),
        }
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

pub(crate) fn line_and_column(source: &str, offset: usize) -> (usize, usize) {
    let before = source.get(..offset).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |line_break| line_break + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
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
                (found.file, found.line_and_column(), &found.source[found.span.clone()]),
                (file, position, text)
            );
        }
        sources.hide(start..start + 5);
        assert_eq!(sources.locate(Some(&(start..start))).source, "*****");
    }
}
