//! Text from elsewhere, made safe for a terminal.

use serde_json::Value;

/// Escapes control characters, which could change what the terminal shows or does.
pub(super) fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if is_hidden(c) { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Returns true for a character that a terminal obeys, or that changes the order or the lines of a text.
fn is_hidden(c: char) -> bool {
    let changes_order =
        matches!(c, '\u{200E}' | '\u{200F}' | '\u{061C}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    c.is_control() || changes_order || matches!(c, '\u{2028}' | '\u{2029}')
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
    }
}
