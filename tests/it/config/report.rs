//! How faults are shown.

use std::path::Path;

use bearward::config::{self, Probe};

use super::{parse, reference};

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
fn all_faults_are_shown_at_once_as_rustc_shows_them() {
    let faults = parse(SEVERAL).expect_err("it is full of faults");
    assert_eq!(faults.render(false), include_str!("several_faults.txt"));
    assert!(!faults.render(false).contains('\u{1b}'));
    assert!(faults.render(true).contains('\u{1b}'), "colour when asked");
}

#[test]
fn faults_are_shown_as_json_for_programs() {
    let faults = parse(SEVERAL).expect_err("it is full of faults");
    let json: serde_json::Value = serde_json::from_str(&faults.json()).expect("JSON");
    let json = json.as_array().expect("an array");
    assert_eq!(json.len(), faults.all().len());
    let first = serde_json::json!({
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
fn both_forms_agree_about_lines_and_columns() {
    // Characters of several bytes, a byte order mark, line breaks of Windows, and a fault at the very end.
    for text in [SEVERAL, "name = \"é\"\r\n\"日本\" = 1\r\n", "\u{feff}a = 1\n", "[tokens]\nissuer = [\"é\", ", "x = "]
    {
        let faults = parse(text).expect_err("none of them is right");
        let shown = faults.render(false);
        for fault in faults.all().iter().filter(|fault| fault.place.span.is_some()) {
            let (line, column) = faults.line_and_column(&fault.place);
            let arrow = format!("--> gateway.toml:{line}:{column}\n");
            assert!(shown.contains(&arrow), "{arrow}{shown}");
        }
    }
}

#[test]
fn what_follows_from_a_syntax_error_is_not_reported() {
    let text = "[[upstream]]\nservers = [\"http://a\"]\nname = orders\n\
                [[route]]\npath = \"/\"\nupstream = \"orders\"\n[limits]\nrequest_header_count = 1\n";
    let faults = parse(text).expect_err("two faults");
    let keys: Vec<&str> = faults.all().iter().map(|fault| fault.place.key.as_str()).collect();
    assert_eq!(keys, ["", "limits.request_header_count"], "{faults:?}");
}

#[test]
fn a_file_that_is_not_there_or_not_text_is_a_fault_too() {
    let faults = config::load(Path::new("no/such/gateway.toml"), Probe::None).expect_err("no file");
    let shown = faults.render(false);
    assert!(shown.contains("No such file") && shown.contains("--> no/such/gateway.toml"), "{shown}");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, b"workers = 1\n# caf\xe9\n").expect("a file");
    let faults = config::load(&file, Probe::None).expect_err("not UTF-8");
    assert_eq!(faults.line_and_column(&faults.all()[0].place), (2, 6), "{faults:?}");
    assert!(faults.render(false).contains("not UTF-8"));
}

#[test]
fn the_terminal_does_not_obey_what_the_file_says() {
    let faults = parse("[[route]]\npath = \"/\"\nupstream = \"\\u001b[2J\"\n[[upstream]]\nservers = [\"http://a\"]\n");
    let shown = faults.expect_err("no such upstream").render(false);
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

/// What was written in the wrong place may be a secret, and faults end up in journals.
#[test]
fn what_may_be_a_secret_is_not_shown() {
    let faults = parse(
        "[store]\nsecret = \"\"\"\nhunter2\"\"\"\n[admin]\ntoken_env = \"hunter2!\"\n\
         [tokens]\nissuer = \"https://me:hunter2@a\"\n[[upstream]]\nservers = [\"ftp://me:hunter2@a\"]\n",
    )
    .expect_err("four faults");
    assert_eq!(faults.all().len(), 4, "{faults:?}");
    assert!(!faults.render(false).contains("hunter2"), "{faults:?}");
    assert!(!faults.json().contains("hunter2"), "{}", faults.json());
    assert_eq!(faults.line_and_column(&faults.all()[3].place), (9, 12), "{faults:?}");
}

/// Whatever is in the file, the answer is a configuration or a list of faults that can be shown.
#[test]
fn no_text_makes_it_panic() {
    let text = reference::everything();
    for (place, _) in text.char_indices().step_by(61) {
        let rest = text[place..].chars().next().map_or("", |next| &text[place + next.len_utf8()..]);
        for replacement in ["", "[", "\"", "\n", "é\u{1b}\0"] {
            let broken = format!("{}{replacement}{rest}", &text[..place]);
            if let Err(faults) = parse(&broken) {
                assert!(!faults.all().is_empty());
                faults.render(true);
            }
        }
    }
}
