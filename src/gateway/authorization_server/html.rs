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

/// A name that a client gives itself, as a page may show it: letters, digits and a few signs, and not too long.
/// Quotation marks would end the quotes around it, a picture could be a seal, and many characters have no width or turn
/// the direction of a text. `None` if it mixes letters of several scripts, so that it could look like another one.
pub(super) fn shown_name(name: &str) -> Option<String> {
    let shown: String = name.chars().filter(|character| is_shown(*character)).take(MAX_NAME).collect();
    let shown = shown.trim();
    if !shown.chars().any(char::is_alphanumeric) || has_several_scripts(shown) { None } else { Some(shown.to_owned()) }
}

/// The name of a client in quotes. What it does to the direction of its letters ends with it.
pub(super) fn quoted(name: &str) -> String {
    format!("“\u{2068}{}\u{2069}”", escaped(name))
}

fn is_shown(character: char) -> bool {
    let is_sign =
        matches!(character, ' ' | '-' | '.' | '_' | ',' | '&' | '\'' | '(' | ')' | '+' | '/' | ':' | '#' | '@');
    // The words of Hebrew, Arabic, and the scripts of India and Thailand need their vowel signs and marks.
    let is_mark = ('\u{591}'..='\u{eff}').contains(&character);
    !is_invisible(character) && (character.is_alphanumeric() || is_sign || is_mark)
}

/// Zero-width characters, marks of direction and other format characters, and variation selectors.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}'
        | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns true if a word of one script could be read as one of another: Latin beside letters that may look like it, or
/// Greek beside Cyrillic.
fn has_several_scripts(text: &str) -> bool {
    let has = |script: Script| text.chars().any(|character| script_of(character) == Some(script));
    let alphabets = [Script::Latin, Script::Greek, Script::Cyrillic, Script::Other];
    has(Script::Imitation) || alphabets.into_iter().filter(|script| has(*script)).count() > 1
}

/// The scripts of names that a page tells apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Latin,
    Greek,
    Cyrillic,
    /// Chinese, Japanese and Korean, the scripts of India and Thailand, Arabic and Hebrew. Their words do not look
    /// Latin, and names in them often have Latin words.
    Distinct,
    /// Such as Armenian, Cherokee and Lisu: many of them have letters that look Latin.
    Other,
    /// Letters that are Latin in another shape: of full width, and of formulas.
    Imitation,
}

fn script_of(character: char) -> Option<Script> {
    // Apostrophes of several languages count as letters.
    if !character.is_alphabetic() || ('\u{2b0}'..='\u{2ff}').contains(&character) {
        return None;
    }
    Some(match character {
        'a'..='z' | 'A'..='Z' | '\u{aa}' | '\u{b5}' | '\u{ba}' | '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' => {
            Script::Latin
        }
        '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => Script::Greek,
        '\u{400}'..='\u{52f}' | '\u{1c80}'..='\u{1c8f}' | '\u{2de0}'..='\u{2dff}' | '\u{a640}'..='\u{a69f}' => {
            Script::Cyrillic
        }
        '\u{2100}'..='\u{218f}' | '\u{24b6}'..='\u{24e9}' | '\u{ff21}'..='\u{ff5a}' | '\u{1d400}'..='\u{1d7ff}' => {
            Script::Imitation
        }
        '\u{590}'..='\u{eff}'
        | '\u{1100}'..='\u{11ff}'
        | '\u{3005}'..='\u{3006}'
        | '\u{3021}'..='\u{312f}'
        | '\u{31a0}'..='\u{31ff}'
        | '\u{3400}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7ff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9f}'
        | '\u{20000}'..='\u{3ffff}' => Script::Distinct,
        _ => Script::Other,
    })
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
            ("Goog\u{13e2}e", None),
            ("G\u{585}\u{585}gle", None),
            ("\u{1d406}oogle", None),
            ("\u{ff27}oogle", None),
            ("\u{a4d6}oogle", None),
            ("Αррle", None),
            ("Αрр", None),
            ("Café Zürich", Some("Café Zürich")),
            ("Հայերեն 2", Some("Հայերեն 2")),
            ("東京 Notes カナ", Some("東京 Notes カナ")),
            ("노트 app", Some("노트 app")),
            ("ऐप AI", Some("ऐप AI")),
            ("µTorrent Hawaiʻi", Some("µTorrent Hawaiʻi")),
            ("G\u{3007}\u{3007}gle", None),
            ("Googl\u{3163}", None),
            ("\u{200b}", None),
            ("Google” — verified by your administrator. “", Some("Google  verified by your administrator.")),
            ("✅ Verified", Some("Verified")),
            ("Goo\u{2800}gle", Some("Google")),
            ("a\u{301}\u{301}\u{301}b", Some("ab")),
            ("ｇｏｏｇｌｅ", None),
            ("ภาษาไทย", Some("ภาษาไทย")),
            ("...", None),
            ("Goo\u{6dd}gle", Some("Google")),
            ("", None),
        ] {
            assert_eq!(shown_name(name).as_deref(), expected, "{name:?}");
        }
        assert_eq!(shown_name(&"a".repeat(10_000)).map(|name| name.len()), Some(MAX_NAME));
    }
}
