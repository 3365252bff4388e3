//! The tokens of a text that need not be TOML. Unlike the parser, this finds some in every text.

use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The characters between quotes. Without a closing quote, up to the end of the line, or of the text for three.
    String,
    /// Other characters up to a space or a mark, for example a key.
    Word,
    /// One of `= , { } [ ]`
    Punctuation(char),
    LineEnd,
    Comment,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Range<usize>,
}

pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = &text[at..];
        let (kind, span, next) = match first {
            '\n' => (Kind::LineEnd, at..at + 1, at + 1),
            '#' => {
                let end = at + line_length(rest);
                (Kind::Comment, at..end, end)
            }
            '"' | '\'' => {
                let (span, next) = string(rest, first);
                (Kind::String, at + span.start..at + span.end, at + next)
            }
            '=' | ',' | '{' | '}' | '[' | ']' => (Kind::Punctuation(first), at..at + 1, at + 1),
            space if space.is_whitespace() => {
                at += space.len_utf8();
                continue;
            }
            _ => {
                let end = at + rest.find(ends_word).unwrap_or(rest.len());
                (Kind::Word, at..end, end)
            }
        };
        tokens.push(Token { kind, span });
        at = next;
    }
    tokens
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, '=' | ',' | '{' | '}' | '[' | ']' | '"' | '\'' | '#')
}

fn line_length(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Where the content of the string is with which `text` begins, and where the text after it begins.
fn string(text: &str, quote: char) -> (Range<usize>, usize) {
    let three = quote.to_string().repeat(3);
    if text.starts_with(&three) {
        let end = closing(text, 3, &three, quote == '"').unwrap_or(text.len());
        return (3..end, (end + 3).min(text.len()));
    }
    let line = &text[..line_length(text)];
    let end = closing(line, 1, &quote.to_string(), quote == '"').unwrap_or(line.len());
    (1..end, (end + 1).min(line.len()))
}

/// Where `quotes` are, from this byte on.
fn closing(text: &str, from: usize, quotes: &str, has_escapes: bool) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = text.get(at..)?;
        if rest.starts_with(quotes) {
            return Some(at);
        }
        let mut characters = rest.chars();
        let first = characters.next()?;
        at += first.len_utf8();
        if has_escapes && first == '\\' {
            at += characters.next().map_or(0, char::len_utf8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_tokens_also_if_it_is_no_toml() {
        for (text, expected) in [
            ("a.b = 'c\\' # d", &["a.b", "=", "c\\", "# d"][..]),
            ("\"a\\\"b\"=[1, 2]", &["a\\\"b", "=", "[", "1", ",", "2", "]"]),
            ("a = \"b\nc", &["a", "=", "b", "\n", "c"]),
            ("a = '''b\n'c''' d", &["a", "=", "b\n'c", "d"]),
            ("a = '''b\nc", &["a", "=", "b\nc"]),
            ("\"\"\"", &[""]),
            ("''", &[""]),
            ("é=\u{a0}ß", &["é", "=", "ß"]),
        ] {
            let found: Vec<_> = tokens(text).into_iter().map(|token| &text[token.span]).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
