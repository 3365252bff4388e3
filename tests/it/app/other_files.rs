//! Files that are no configuration: neither a command nor the log of a running gateway quotes them.

use std::fs;

use bearward::types::secret::write_private;
use tempfile::TempDir;

use crate::support::program::{GatewayProcess, bearward};
use crate::support::{Gateway, Upstream};

/// `gateway.toml` with this text, and a folder for what it includes.
fn folder(text: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("conf.d")).expect("created");
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    folder
}

/// A link to a secret must not show it: errors end up in logs, and in responses of the admin API.
#[tokio::test]
async fn a_file_that_is_not_toml_is_not_quoted() {
    const SECRET: &str = "8vcT3xVJq0pN5uQmZ1kLr7wYh2sDgBfA9eXiOoCtUlE=";
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "");
    let main = format!("include = [\"conf.d/*.toml\"]\n{text}");
    let folder = folder(&main);
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
        write_private(&secret, content.as_bytes()).expect("written");
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
    let folder = folder(&main);
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
    let write = |content: &str| write_private(&included, content.as_bytes()).expect("written");
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
