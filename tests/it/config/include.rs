//! `include`: a configuration in several files.

use std::fs;
use std::path::Path;

use bearward::config::{self, Config, ConfigErrors, Probe, ValueSource};
use serde_json::json;
use tempfile::TempDir;

use crate::support::program::bearward;

const UPSTREAM: &str = "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("conf.d")).expect("created");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}

fn load(folder: &Path) -> Result<Config, ConfigErrors> {
    config::load(&folder.join("gateway.toml"), Probe::None)
}

#[test]
fn lists_of_tables_are_continued_in_the_order_of_names() {
    let route =
        |path: &str| format!("[[route]]\npath = \"/{path}\"\n[[route.rate]]\nper = \"address\"\nrequests = 9\n");
    let (a, b, c) = (route("a"), route("b"), route("c"));
    let folder = folder(&[
        ("gateway.toml", &format!("include = [\"conf.d/*.toml\", \"more.toml\"]\n{UPSTREAM}[[route]]\npath = \"/\"\n")),
        ("conf.d/20-b.toml", &b),
        ("conf.d/10-a.toml", &format!("{a}[limits]\nuri_size = \"4KiB\"\n")),
        ("conf.d/.draft.toml", "nonsense"),
        ("conf.d/30.toml.bak", "nonsense"),
        ("more.toml", &c),
    ]);
    let config = load(folder.path()).unwrap_or_else(|errors| panic!("{errors}"));
    let paths: Vec<&str> = config.routes.iter().map(|route| route.path.as_str()).collect();
    assert_eq!(paths, ["/", "/a", "/b", "/c"]);
    assert!(config.routes[1..].iter().all(|route| route.rates.len() == 1));
    assert_eq!(config.connections.uri_size, 4096);
    let name = folder.path().join("conf.d/20-b.toml");
    let source = ValueSource::File { file: name.to_str().expect("UTF-8").into(), line: 2 };
    let found = config.values.all().iter().find(|setting| setting.key == "route[2].path").expect("a setting");
    assert_eq!((&found.value, found.source()), (&Some(json!("/b")), &source));
    let patterns = &config.include;
    assert_eq!(config::included(patterns).len(), 3);
}

/// The files, the key of the only error, its file and line, and a part of the message.
#[test]
fn an_error_names_the_included_file_and_its_line() {
    let main = |more: &str| format!("include = [\"conf.d/*.toml\"]\n{UPSTREAM}{more}");
    for (main, included, key, place, says) in [
        (main(""), "\n[[route]]\npath = 1", "route[0].path", ("conf.d/a.toml", 3), "wrong type"),
        (main(""), "\n[limits]\nuri_siz = \"1KiB\"", "limits.uri_siz", ("conf.d/a.toml", 3), "unknown key"),
        (
            main("[limits]\nuri_size = \"1KiB\""),
            "\n[limits]\ntoken_size = \"1KiB\"",
            "limits",
            ("conf.d/a.toml", 2),
            "two files set this",
        ),
        (format!("workers = 1\n{}", main("")), "workers = 2", "workers", ("conf.d/a.toml", 1), "two files set this"),
        (main(""), "[upstream]\nname = \"x\"", "upstream", ("conf.d/a.toml", 1), "two files set this"),
        (main(""), "include = [\"b.toml\"]", "include", ("conf.d/a.toml", 1), "includes others"),
        (main(""), "\n\n[[route]\npath = \"/\"", "", ("conf.d/a.toml", 3), "not TOML"),
        (format!("[[route]\n{}", main("")), "\n[limits]\nuri_size = \"1KiB\"", "", ("gateway.toml", 1), "not TOML"),
        (main("").replace("conf.d/*", "conf.e/*"), "", "include[0]", ("gateway.toml", 1), "cannot list"),
        (main("").replace("conf.d/*", "conf.*/*"), "", "include[0]", ("gateway.toml", 1), "wildcard in a folder"),
        (
            main("").replace("\"conf.d/*.toml\"", "{ env = \"HOME\" }"),
            "",
            "include[0]",
            ("gateway.toml", 1),
            "no variables",
        ),
        (main("").replace("conf.d/*", "b"), "", "include[0]", ("gateway.toml", 1), "cannot read"),
        (main("").replace("conf.d/*", "gateway"), "", "include[0]", ("gateway.toml", 1), "twice"),
        (main("").replace("]\n[[up", ", \"conf.d/a.toml\"]\n[[up"), "", "include[1]", ("gateway.toml", 1), "twice"),
    ] {
        let folder = folder(&[("gateway.toml", &main), ("conf.d/a.toml", included)]);
        let Err(errors) = load(folder.path()) else { panic!("{main}{included}: no error") };
        let [error] = errors.all() else { panic!("{main}\n{included}\n{errors}") };
        assert_eq!(error.place.key, key, "{errors}");
        assert!(error.message.contains(says), "{errors}");
        let listed: serde_json::Value = serde_json::from_str(&errors.json()).expect("JSON");
        let file = folder.path().join(place.0);
        assert_eq!((&listed[0]["file"], &listed[0]["line"]), (&json!(file), &json!(place.1)), "{errors}");
        let shown = errors.render(false);
        assert!(shown.contains(&format!("{}:{}", file.display(), place.1)), "{shown}");
        if says == "two files set this" {
            assert!(shown.contains("first set here") && shown.contains("gateway.toml:"), "{shown}");
        }
    }
}

#[test]
fn a_file_that_every_user_can_write_is_not_included() {
    use std::os::unix::fs::PermissionsExt;
    let folder =
        folder(&[("gateway.toml", &format!("include = [\"conf.d/*.toml\"]\n{UPSTREAM}")), ("conf.d/a.toml", "")]);
    load(folder.path()).expect("valid");
    fs::set_permissions(folder.path().join("conf.d/a.toml"), fs::Permissions::from_mode(0o666)).expect("set");
    let errors = load(folder.path()).expect_err("it is writable");
    assert!(errors.render(false).contains("every user of this machine can change"), "{errors}");
}

/// The default socket may be that of another gateway.
#[test]
fn a_broken_file_that_may_name_the_socket_stops_commands() {
    use std::os::unix::fs::PermissionsExt;
    let main = format!("include = [\"conf.d/*.toml\"]\n{UPSTREAM}");
    let socket = "[admin]\nsocket = \"x.sock\"\n";
    let cases = [
        (main.clone(), socket.to_owned(), 0o600, true, "x.sock"),
        (main.clone(), format!("{socket}nonsense\n"), 0o600, false, "not TOML"),
        (main.clone(), socket.to_owned(), 0o666, false, "every user of this machine can change"),
        (format!("{main}{socket}"), "nonsense\n".to_owned(), 0o600, true, "x.sock"),
    ];
    // All at once, because a command waits for a gateway that may still be starting.
    std::thread::scope(|scope| {
        for (main, included, mode, called, says) in &cases {
            for arguments in [&["keys", "list"][..], &["reload", "--dry-run"]] {
                scope.spawn(move || {
                    let folder = folder(&[("gateway.toml", main), ("conf.d/a.toml", included)]);
                    let file = folder.path().join("conf.d/a.toml");
                    fs::set_permissions(file, fs::Permissions::from_mode(*mode)).expect("set");
                    let output = bearward(folder.path(), arguments);
                    let shown = String::from_utf8(output.stderr).expect("UTF-8");
                    assert!(shown.contains(says), "{included}{shown}");
                    assert_eq!(shown.contains("no gateway listens"), *called, "{included}{shown}");
                    assert_eq!(output.status.code(), Some(if *called { 1 } else { 2 }), "{included}{shown}");
                });
            }
        }
    });
}

/// The sticky bit does not stop another user from adding a file.
#[test]
fn a_wildcard_needs_a_folder_that_others_cannot_write() {
    use std::os::unix::fs::PermissionsExt;
    let main = format!("include = [\"conf.d/*.toml\"]\n{UPSTREAM}");
    let folder = folder(&[("gateway.toml", &main), ("conf.d/a.toml", "")]);
    let open = |mode| {
        fs::set_permissions(folder.path().join("conf.d"), fs::Permissions::from_mode(mode)).expect("set");
        load(folder.path()).err().map(|errors| errors.render(false))
    };
    assert_eq!(open(0o755), None);
    for mode in [0o1777, 0o777] {
        let shown = open(mode).expect("it is open");
        assert!(shown.contains("every user of this machine can") && shown.contains("chmod o-w"), "{shown}");
    }
    fs::write(folder.path().join("gateway.toml"), main.replace('*', "a")).expect("written");
    assert_eq!(open(0o1777), None, "one file is named, which others cannot replace");
}

#[test]
fn the_last_line_names_the_file_with_the_errors() {
    let main = format!("include = [\"conf.d/*.toml\"]\n{UPSTREAM}");
    let folder = folder(&[("gateway.toml", &main), ("conf.d/a.toml", "[limits]\nuri_siz = 1\n")]);
    let last = || {
        let shown = load(folder.path()).expect_err("an error").render(false);
        shown.lines().last().expect("a line").replace(&format!("{}/", folder.path().display()), "")
    };
    assert_eq!(last(), "error: 1 error in conf.d/a.toml");
    fs::write(folder.path().join("gateway.toml"), format!("wrkers = 1\n{main}")).expect("written");
    assert_eq!(last(), "error: 2 errors in 2 files");
}
