//! The form of printed errors.

use std::path::Path;

use bearward::config::{self, Probe};

use super::{parse, reference};
use crate::support::random::{Random, seed};
use crate::support::repetitions::repetitions;

const SEVERAL: &str = r#"
workers = "four"

[tokens]
acces_lifetime = "5m"
refresh_idle = 7

[[upstream]]
name = "orders"
servers = ["http://127.0.0.1:3000/api"]

[[route]]
path = "/orders/"
upstream = "order"

[[route]]
path = "/orders/"
"#;

#[test]
fn all_errors_are_printed_as_rustc_prints_errors() {
    let errors = parse(SEVERAL).expect_err("there are several errors");
    assert_eq!(errors.render(false), include_str!("several_errors.txt"));
    assert!(!errors.render(false).contains('\u{1b}'));
    assert!(errors.render(true).contains('\u{1b}'), "colour if requested");
}

#[test]
fn errors_are_printed_as_json_for_programs() {
    let errors = parse(SEVERAL).expect_err("there are several errors");
    let json: serde_json::Value = serde_json::from_str(&errors.json()).expect("JSON");
    let json = json.as_array().expect("an array");
    assert_eq!(json.len(), errors.all().len());
    let first = serde_json::json!({
        "severity": "error",
        "file": "gateway.toml",
        "line": 2,
        "column": 11,
        "key": "workers",
        "message": "wrong type: this is a string",
        "expected": "expected a whole number from 0 to 1024",
        "help": "",
    });
    assert_eq!(json[0], first);
}

#[test]
fn text_and_json_have_the_same_positions() {
    // Characters of several bytes, a byte order mark, line breaks of Windows, and an error at the end of the file.
    for text in [SEVERAL, "name = \"é\"\r\n\"日本\" = 1\r\n", "\u{feff}a = 1\n", "[tokens]\nissuer = [\"é\", ", "x = "]
    {
        let errors = parse(text).expect_err("all are invalid");
        let shown = errors.render(false);
        for error in errors.all().iter().filter(|error| error.place.span.is_some()) {
            let (line, column) = errors.line_and_column(&error.place);
            let arrow = format!("--> gateway.toml:{line}:{column}\n");
            assert!(shown.contains(&arrow), "{arrow}{shown}");
        }
    }
}

#[test]
fn followups_of_a_syntax_error_are_not_reported() {
    let text = "[[upstream]]\nservers = [\"http://a\"]\nname = orders\n\
                [[route]]\npath = \"/\"\nupstream = \"orders\"\n[limits]\nrequest_header_count = 1\n";
    let errors = parse(text).expect_err("two errors");
    let keys: Vec<&str> = errors.all().iter().map(|error| error.place.key.as_str()).collect();
    assert_eq!(keys, ["", "limits.request_header_count"], "{errors:?}");
}

#[test]
fn a_file_that_is_missing_or_not_utf8_is_an_error() {
    let errors = config::load(Path::new("no/such/gateway.toml"), Probe::None).expect_err("no file");
    let shown = errors.render(false);
    assert!(shown.contains("No such file") && shown.contains("--> no/such/gateway.toml"), "{shown}");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, b"workers = 1\n# caf\xe9\n").expect("a file");
    let errors = config::load(&file, Probe::None).expect_err("not UTF-8");
    assert_eq!(errors.line_and_column(&errors.all()[0].place), (2, 6), "{errors:?}");
    assert!(errors.render(false).contains("not UTF-8"));
}

#[test]
fn escape_codes_in_the_file_do_not_reach_the_terminal() {
    let errors = parse("[[route]]\npath = \"/\"\nupstream = \"\\u001b[2J\"\n[[upstream]]\nservers = [\"http://a\"]\n");
    let shown = errors.expect_err("no such upstream").render(false);
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

/// A value in the wrong place may be a secret, and errors end up in logs.
#[test]
fn possible_secrets_are_not_printed() {
    let errors = parse(
        "[store]\nsecret = \"\"\"\nhunter2\"\"\"\n[admin]\ntoken_env = \"hunter2!\"\n\
         [tokens]\nissuer = \"https://me:hunter2@a\"\n[[upstream]]\nservers = [\"ftp://me:hunter2@a\"]\n",
    )
    .expect_err("four errors");
    assert_eq!(errors.all().len(), 4, "{errors:?}");
    assert!(!errors.render(false).contains("hunter2"), "{errors:?}");
    assert!(!errors.json().contains("hunter2"), "{}", errors.json());
    assert_eq!(errors.line_and_column(&errors.all()[3].place), (9, 12), "{errors:?}");
}

/// One place of this number is damaged in each run.
const PARTS: usize = 10;

/// For any text, the result is a configuration or a list of errors that can be printed. Each run damages other places;
/// `BEARWARD_ROUNDS=10` damages all of them, and `BEARWARD_SEED` those of an earlier run.
#[test]
fn no_text_causes_a_panic() {
    let text = reference::everything();
    let first = Random(seed("no_text_causes_a_panic")).below(PARTS);
    let places: Vec<_> = text.char_indices().step_by(61).map(|(place, _)| place).collect();
    let rounds = repetitions(1).min(PARTS);
    let chosen = (0..rounds).flat_map(|round| places.iter().skip((first + round) % PARTS).step_by(PARTS));
    for &place in chosen {
        let rest = text[place..].chars().next().map_or("", |next| &text[place + next.len_utf8()..]);
        for replacement in ["", "[", "\"", "\n", "é\u{1b}\0"] {
            let broken = format!("{}{replacement}{rest}", &text[..place]);
            if let Err(errors) = parse(&broken) {
                assert!(!errors.all().is_empty());
                errors.render(true);
            }
        }
    }
}
