//! Text from elsewhere, made safe for a terminal.

use serde_json::Value;

/// Escapes control characters, which could change what the terminal shows or does, and what it does not show:
/// characters without a shape, and spaces at the start and the end. Two subjects that differ only there look different.
/// Letters that are alike, such as those of Latin and Cyrillic, stay as they are.
///
/// For one value. A line of a report is for [`printable_line`].
pub(super) fn printable(text: &str) -> String {
    let start = text.len() - text.trim_start_matches(' ').len();
    let end = text.trim_end_matches(' ').len();
    escaped(text, |at| at < start || at >= end)
}

/// As [`printable`], for a line that the gateway has composed: its outer spaces are indentation.
pub(super) fn printable_line(line: &str) -> String {
    escaped(line, |_| false)
}

/// `is_outer_space`: says whether the character at this place is one.
fn escaped(text: &str, is_outer_space: impl Fn(usize) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        // What looks like an escape is one.
        let looks_like_escape = text[at..].starts_with("\\u{");
        if is_outer_space(at) || looks_like_escape || is_hidden(c) {
            shown.extend(c.escape_unicode())
        } else {
            shown.push(c)
        }
    }
    shown
}

/// Returns true for a character that a terminal obeys, that changes the order or the lines of a text, or that it does
/// not show.
fn is_hidden(c: char) -> bool {
    c.is_control() || c.is_whitespace() && c != ' ' || is_ignorable(c) || is_format(c) || is_blank(c)
}

/// Returns true for `Default_Ignorable_Code_Point` of Unicode, among them what changes the order of a text.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
        | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFF8}'
        | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Returns true for the other characters of the category Cf of Unicode 16: they change the form of their neighbours.
fn is_format(c: char) -> bool {
    matches!(c,
        '\u{0600}'..='\u{0605}' | '\u{06DD}' | '\u{070F}' | '\u{0890}' | '\u{0891}' | '\u{08E2}'
        | '\u{FFF9}'..='\u{FFFB}' | '\u{110BD}' | '\u{110CD}' | '\u{13430}'..='\u{1343F}')
}

/// Returns true for a letter or a symbol that looks like a space, or like nothing.
fn is_blank(c: char) -> bool {
    matches!(c, '\u{2800}' | '\u{303F}' | '\u{FFFC}' | '\u{13441}' | '\u{13442}' | '\u{16FE4}' | '\u{1D159}')
}

/// A text member of a JSON object; empty if it is missing or no text.
pub(super) fn text_member(object: &Value, name: &str) -> String {
    printable(object.get(name).and_then(Value::as_str).unwrap_or_default())
}

/// The elements of an array member; none if it is missing or no array.
pub(super) fn array_member<'a>(object: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    object.get(name).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_hides_or_reorders_a_text() {
        let hostile = "a\u{9B}31m\u{202E}evil\u{2028}b\u{2066}\u{200F}é€";
        assert_eq!(printable(hostile), "a\\u{9b}31m\\u{202e}evil\\u{2028}b\\u{2066}\\u{200f}é€");
        let hidden = "\u{200B}\u{200C}\u{200D}\u{2060}\u{FEFF}\u{AD}\u{A0}\u{2003}\u{3000}\u{3164}\u{2800}\u{E0041}\u{600}\
                      \u{6DD}\u{FFF9}\u{110CD}\u{13430}\u{1343F}\u{13441}\u{16FE4}\u{1D159}\n\t";
        for hidden in hidden.chars() {
            assert_eq!(printable(&format!("a{hidden}b")), format!("a{}b", hidden.escape_unicode()));
        }
        for (text, shown) in [
            ("", ""),
            ("alice", "alice"),
            ("alice ", "alice\\u{20}"),
            ("  al ice  ", "\\u{20}\\u{20}al ice\\u{20}\\u{20}"),
            (" ", "\\u{20}"),
            ("a\\u{20}", "a\\u{5c}u{20}"),
            ("a\\\\u{20}\\n", "a\\\\u{5c}u{20}\\n"),
            ("a\\\n", "a\\\\u{a}"),
        ] {
            assert_eq!(printable(text), shown, "{text:?}");
        }
        assert_eq!(printable_line("  1 | a\u{200B}\\u{20} = 2 "), "  1 | a\\u{200b}\\u{5c}u{20} = 2 ");
        let shown = "Zoë Ærøe, 北京, नमस्ते, e\u{301}, 😀 \"'\\";
        assert_eq!((printable(shown).as_str(), printable_line(shown).as_str()), (shown, shown));
    }
}
