//! Text from elsewhere, made safe for a terminal.

use serde_json::Value;

/// Escapes control characters, which could change what the terminal shows or does, and characters that it does not
/// show: two subjects that look the same are the same.
pub(super) fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if is_hidden(c) { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Returns true for a character that a terminal obeys, that changes the order or the lines of a text, or that it does
/// not show.
fn is_hidden(c: char) -> bool {
    c.is_control() || c.is_whitespace() && c != ' ' || is_ignorable(c)
}

/// Returns true for a character without a shape of its own: `Default_Ignorable_Code_Point` of Unicode, among them what
/// changes the order of a text, and the blank characters that are no spaces.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
        | '\u{2800}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}'
        | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D159}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
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
        for hidden in
            "\u{200B}\u{200C}\u{200D}\u{2060}\u{FEFF}\u{AD}\u{A0}\u{2003}\u{3000}\u{3164}\u{2800}\u{E0041}".chars()
        {
            assert_eq!(printable(&format!("a{hidden}b")), format!("a{}b", hidden.escape_default()));
        }
        let shown = "Zoë Ærøe, 北京, नमस्ते, e\u{301}, 😀 \"'\\";
        assert_eq!(printable(shown), shown);
    }
}
