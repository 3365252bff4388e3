//! `include`: a configuration in several files.

use std::fs;
use std::path::Path;

use bearward::config::{self, Config, ConfigErrors, Probe, ValueSource};
use serde_json::json;
use tempfile::TempDir;

use crate::support::program::{GatewayProcess, bearward};
use crate::support::{Gateway, Upstream};

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

/// A link to a secret must not show it: errors end up in logs, and in responses of the admin API.
#[tokio::test]
async fn a_file_that_is_not_toml_is_not_quoted() {
    const SECRET: &str = "8vcT3xVJq0pN5uQmZ1kLr7wYh2sDgBfA9eXiOoCtUlE=";
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "");
    let main = format!("include = [\"conf.d/*.toml\"]\n{text}");
    let folder = folder(&[("gateway.toml", &main)]);
    let path = folder.path().to_owned();
    let served = tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts");
    let shown = |arguments: &[&str]| {
        let output = bearward(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let secret = folder.path().join("other.secret");
    for content in [
        format!("{SECRET}\n"),
        format!("# a comment\n{SECRET}\n{SECRET}\n"),
        format!("password={SECRET}\n"),
        format!("workers = 1\npassword = x{SECRET}\n"),
        format!("-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"),
        format!("{{ \"k\": \"{SECRET}\" }}\n"),
    ] {
        bearward::types::secret::write_private(&secret, content.as_bytes()).expect("written");
        let link = folder.path().join("conf.d/a.toml");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&secret, &link).expect("a link");
        for arguments in
            [&["check"][..], &["check", "--json"], &["reload"], &["reload", "--json"], &["reload", "--dry-run"]]
        {
            let shown = shown(arguments);
            let part = &SECRET[..12];
            assert!(!shown.contains(part) && !shown.contains(&SECRET[20..30]), "{arguments:?} {shown}");
            assert!(shown.contains("not TOML") && shown.contains("a.toml"), "{arguments:?} {shown}");
        }
        // As the main file, if nothing in it is a key of the configuration.
        if !content.contains("workers") {
            let shown = shown(&["check", "--config", "other.secret"]);
            assert!(shown.contains("not TOML") && !shown.contains(&SECRET[..12]), "{shown}");
        }
    }
    let log = served.program.stderr_so_far();
    assert!(log.contains("not TOML") && !log.contains(&SECRET[..12]), "{log}");
    // The place is still named, and a file of which a key is known is quoted.
    fs::remove_file(folder.path().join("conf.d/a.toml")).expect("removed");
    fs::write(folder.path().join("gateway.toml"), format!("workers = four\n{text}")).expect("written");
    assert!(shown(&["check"]).contains("1 | workers = four"));
    fs::write(folder.path().join("gateway.toml"), [b"workers = 1\n# ", SECRET.as_bytes(), b"\xe9\n"].concat())
        .expect("written");
    let shown = shown(&["check"]);
    assert!(shown.contains("not UTF-8") && !shown.contains(&SECRET[..12]), "{shown}");
}

/// Such as the variables of another program: some of their files are TOML.
#[tokio::test]
async fn a_file_of_another_program_is_not_quoted() {
    const SECRET: &str = "hunter2hunter2";
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "");
    let main = format!("include = [\"conf.d/*.toml\"]\n{text}");
    let folder = folder(&[("gateway.toml", &main)]);
    let path = folder.path().to_owned();
    let served = tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts");
    let shown = |arguments: &[&str]| {
        let output = bearward(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let everywhere =
        [&["check"][..], &["check", "--json"], &["reload"], &["reload", "--json"], &["reload", "--dry-run"]];
    let included = folder.path().join("conf.d/a.toml");
    let write = |content: &str| bearward::types::secret::write_private(&included, content.as_bytes()).expect("written");
    for content in [
        format!("DB_PASSWORD=\"{SECRET}\"\n"),
        format!("# a comment\nDB_HOST = \"a\"\nDB_PASSWORD = \"\"\"\n{SECRET}\n\"\"\"\n"),
        format!("[DB_PASSWORD]\nvalue = \"{SECRET}\"\n"),
        format!("{SECRET} = 1\nDB_PASSWORD.a.b = [\"{SECRET}\"]\n"),
        // The name of a table of the configuration, and no table.
        format!("DB_PASSWORD = 1\nadmin = \"{SECRET}\"\n"),
    ] {
        write(&content);
        for arguments in everywhere {
            let shown = shown(arguments);
            assert!(!shown.contains(&SECRET[..7]) && !shown.contains("DB_"), "{arguments:?} {content} {shown}");
            assert!(shown.contains("no key of this file") && shown.contains("a.toml"), "{arguments:?} {shown}");
        }
        let shown = shown(&["check", "--config", "conf.d/a.toml"]);
        assert!(!shown.contains(&SECRET[..7]) && !shown.contains("DB_"), "{shown}");
    }
    // The key is named beside others that are known, and its value is not.
    for content in [
        format!("watch = \"off\"\nDB_PASSWORD = \"{SECRET}\"\n"),
        format!("watch = \"off\"\nDB_PASSWORD.a = {{ b = [\"{SECRET}\"] }}\n"),
        format!("[cors]\nDB_PASSWORD = [\"a\", {{ b = \"{SECRET}\" }}]\n"),
        format!("cors = {{ origins = [], DB_PASSWORD = \"{SECRET}\" }}\n"),
        format!("[cors]\nDB_PASSWORD = {{ env = \"{SECRET}\" }}\n"),
        format!("[cors]\nDB_PASSWORD = {{ credential = \"{SECRET}\" }}\n"),
    ] {
        write(&content);
        for arguments in everywhere {
            let shown = shown(arguments);
            assert!(shown.contains("DB_PASSWORD") && shown.contains("unknown key"), "{arguments:?} {content} {shown}");
            assert!(!shown.contains(&SECRET[..7]), "{arguments:?} {content} {shown}");
        }
    }
    let log = served.program.stderr_so_far();
    assert!(log.contains("no key of this file") && !log.contains(&SECRET[..7]), "{log}");
}
