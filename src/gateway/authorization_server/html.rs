//! HTML with texts of others in it.

/// The text, so that it is nothing but text in an element and in a quoted attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    escaped
}

/// The longest name that a page shows, in characters.
const MAX_NAME: usize = 64;

/// A name that a client gives itself, as a page may show it: without the characters that turn the direction of a text,
/// or that have no width, and not too long. `None` if it mixes letters of several scripts, so that it could look like
/// another one.
pub(super) fn shown_name(name: &str) -> Option<String> {
    let is_shown = |character: &char| !character.is_control() && !is_invisible(*character);
    let shown: String = name.chars().filter(is_shown).take(MAX_NAME).collect();
    let shown = shown.trim();
    if shown.is_empty() || has_several_scripts(shown) { None } else { Some(shown.to_owned()) }
}

/// Zero-width characters, marks of direction, and variation selectors.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Latin beside Greek or Cyrillic: the scripts that have the same letters.
fn has_several_scripts(text: &str) -> bool {
    let is_latin = |letter: char| letter.is_ascii_alphabetic() || ('\u{c0}'..='\u{24f}').contains(&letter);
    let is_similar =
        |letter: char| ('\u{370}'..='\u{52f}').contains(&letter) || ('\u{ff00}'..='\u{ffef}').contains(&letter);
    text.chars().any(is_latin) && text.chars().any(is_similar)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hostile case 33.
    #[test]
    fn a_name_is_text_and_looks_like_itself() {
        assert_eq!(escaped("<script>\"'&"), "&lt;script&gt;&quot;&#39;&amp;");
        for (name, expected) in [
            ("Codex", Some("Codex")),
            ("  My  app ", Some("My  app")),
            ("evil\u{202e}elgooG", Some("evilelgooG")),
            ("G\u{200b}oogle", Some("Google")),
            ("a\nb\u{0}", Some("ab")),
            ("Бот", Some("Бот")),
            ("G\u{43e}\u{43e}gle", None),
            ("\u{200b}", None),
            ("", None),
        ] {
            assert_eq!(shown_name(name).as_deref(), expected, "{name:?}");
        }
        assert_eq!(shown_name(&"a".repeat(10_000)).map(|name| name.len()), Some(MAX_NAME));
    }
}
