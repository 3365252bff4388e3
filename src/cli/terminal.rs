//! Text from elsewhere, made safe for a terminal.

use serde_json::Value;

/// Escapes control characters, which could change what the terminal shows or does.
pub(super) fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// A text member of a JSON object; empty if it is missing or no text.
pub(super) fn text_member(object: &Value, name: &str) -> String {
    printable(object.get(name).and_then(Value::as_str).unwrap_or_default())
}

/// The elements of an array member; none if it is missing or no array.
pub(super) fn array_member<'a>(object: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    object.get(name).and_then(Value::as_array).into_iter().flatten()
}
