//! Forms of code that the lints do not know.

use crate::support::source;

/// Returns how many names a `let` takes from a tuple that is written beside it: `let (a, b) = (x, y)`. `code` begins
/// after the `let`. 0: it takes one value, or its values come from elsewhere.
fn names_of_a_written_tuple(code: &[String]) -> usize {
    let Some(end) = code.iter().position(|word| word == ")") else { return 0 };
    let is_name = |word: &String| {
        word.chars().all(|symbol| symbol == '_' || symbol.is_ascii_lowercase() || symbol.is_ascii_digit())
    };
    let inside = code.get(1..end).unwrap_or_default();
    let are_names = inside.iter().all(|word| word == "," || is_name(word));
    let is_written = code.get(end + 1..end + 3).is_some_and(|next| next == ["=", "("]);
    if code.first().is_some_and(|first| first == "(") && are_names && is_written {
        inside.iter().filter(|word| *word == ",").count() + 1
    } else {
        0
    }
}

#[test]
fn a_let_binds_one_value() {
    let mut found = Vec::new();
    for file in source::files() {
        for (place, _) in file.words.iter().enumerate().filter(|(_, word)| *word == "let") {
            let code = &file.words[place + 1..];
            if names_of_a_written_tuple(code) > 1 {
                found.push(format!("src/{}: let {}", file.path, code[..12.min(code.len())].join(" ")));
            }
        }
    }
    assert!(found.is_empty(), "one binding a line:\n{}", found.join("\n"));
}

#[test]
fn a_written_tuple_is_found() {
    let words = |code: &str| source::words(code).into_iter().map(str::to_owned).collect::<Vec<_>>();
    for (code, names) in [
        ("(a, mut b) = (x, y);", 2),
        ("(a, b) = pair();", 0),
        ("(Some(a), b) = (x, y) else { return };", 0),
        ("a = (x, y);", 0),
        ("[a, b] = (x);", 0),
    ] {
        assert_eq!(names_of_a_written_tuple(&words(code)), names, "{code}");
    }
}
