//! A database or a root secret that was lost or damaged: what a start says, and `bearward check` before it.

use std::fs;
use std::path::Path;

use bearward::types::secret::write_private;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::files::names;
use crate::support::program::{GatewayProcess, Program, bearward};
use crate::support::{Gateway, Upstream};

const RESTORE: &str = "restore the file from its backup (deploy/backup.md)";

fn folder(upstream: &Upstream) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("gateway.toml"), Gateway::config_text(&upstream.address.to_string(), ""))
        .expect("written");
    folder
}

/// A folder in which a gateway has run and ended.
fn used_folder(upstream: &Upstream) -> TempDir {
    let folder = folder(upstream);
    let gateway = GatewayProcess::start(folder.path());
    gateway.program.signal("TERM");
    assert!(gateway.program.wait().0.success());
    folder
}

/// Exit status, and all that it prints, with single spaces.
fn check(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = bearward(folder, &[&["check"], arguments].concat());
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
    (output.status.code(), text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// `change` gets the paths of the database and the root secret.
type Case = (&'static str, fn(&Path, &Path), &'static str);

const CASES: [Case; 10] = [
    ("store.secret_file", |_, secret| fs::write(secret, "").expect("written"), RESTORE),
    (
        "store.secret_file",
        |_, secret| {
            let text = fs::read_to_string(secret).expect("read");
            fs::write(secret, &text[..20]).expect("written");
        },
        RESTORE,
    ),
    (
        "store.secret_file",
        |_, secret| fs::write(secret, format!("1 {}\n", "0".repeat(43))).expect("written"),
        "under another root secret 1",
    ),
    ("store.secret_file", |_, secret| fs::remove_file(secret).expect("removed"), "cannot be used without it"),
    ("store.sqlite", |database, _| fs::write(database, "").expect("written"), "has 0 bytes"),
    (
        "store.sqlite",
        |database, _| {
            fs::write(database, "no database, but longer than the header of one. ".repeat(40)).expect("written")
        },
        "is not an SQLite database",
    ),
    (
        "store.sqlite",
        |database, _| {
            let content = fs::read(database).expect("read");
            fs::write(database, &content[..content.len() / 2]).expect("written");
        },
        "the database is damaged",
    ),
    (
        "store.sqlite",
        |database, _| {
            fs::write(database, "").expect("emptied");
            Connection::open(database)
                .expect("opens")
                .execute_batch("create table contacts (name text)")
                .expect("writes");
        },
        "belongs to another program",
    ),
    (
        "store.sqlite",
        |database, _| {
            Connection::open(database).expect("opens").pragma_update(None, "user_version", 999).expect("writes");
        },
        "a newer version wrote it",
    ),
    (
        "store.sqlite",
        |database, _| fs::rename(database, database.with_extension("db-wal")).expect("moved"),
        "bearward.db-wal has its newest changes",
    ),
];

#[test]
fn check_finds_what_stops_a_start() {
    let upstream = Upstream::start();
    let folder = used_folder(&upstream);
    let [database, secret] = ["bearward.db", "bearward.secret"].map(|name| folder.path().join(name));
    let [kept_database, kept_secret] = [&database, &secret].map(|file| fs::read(file).expect("read"));
    for (key, change, says) in CASES {
        change(&database, &secret);
        let before = names(folder.path());
        let (status, shown) = check(folder.path(), &[]);
        assert_eq!((status, shown.contains(says), shown.contains(key)), (Some(2), true, true), "{says}: {shown}");
        assert!(!shown.contains("remove the file; the gateway then creates a new secret"), "{shown}");
        assert_eq!(names(folder.path()), before, "{says}: it creates nothing");
        let (status, _, error) = Program::start(folder.path(), &["serve"]).wait();
        let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!status.success() && error.contains(says), "{says}: {error}");
        for (file, content) in [(&database, &kept_database), (&secret, &kept_secret)] {
            let _ = fs::remove_file(file);
            write_private(file, content).expect("written");
        }
        let _ = fs::remove_file(database.with_extension("db-wal"));
        let _ = fs::remove_file(database.with_extension("db-shm"));
    }
    assert_eq!(check(folder.path(), &["--deny-warnings"]).0, Some(0));
    GatewayProcess::start(folder.path()).program.kill();
}

/// SQLite would make the changes of the old database in the new one, under another root secret.
#[test]
fn no_change_of_a_lost_database_comes_into_a_new_one() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    GatewayProcess::start(folder.path()).program.kill();
    for name in ["bearward.db", "bearward.secret"] {
        fs::remove_file(folder.path().join(name)).expect("removed");
    }
    let (status, _, error) = Program::start(folder.path(), &["serve"]).wait();
    assert!(!status.success() && error.contains("bearward.db-wal has its newest changes"), "{error}");
    assert!(!folder.path().join("bearward.db").exists(), "it is not created");
    fs::remove_file(folder.path().join("bearward.db-wal")).expect("removed");
    GatewayProcess::start(folder.path()).program.kill();
}

#[test]
fn an_empty_secret_without_a_database_may_be_removed() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    write_private(&folder.path().join("bearward.secret"), b"").expect("written");
    let (status, shown) = check(folder.path(), &[]);
    assert!(status == Some(2) && shown.contains("remove the file; the gateway then creates a new secret"), "{shown}");
}

/// An operator may provide the root secret before the first start, so that this is no error.
#[test]
fn a_new_database_beside_an_old_secret_is_a_warning() {
    let upstream = Upstream::start();
    let folder = used_folder(&upstream);
    fs::remove_file(folder.path().join("bearward.db")).expect("removed");
    let says = ["bearward.db is new, but its root secret bearward.secret is not", "revoked tokens", "deploy/backup.md"];
    let (status, shown) = check(folder.path(), &[]);
    assert!(status == Some(0) && says.iter().all(|part| shown.contains(part)), "{shown}");
    assert_eq!(check(folder.path(), &["--deny-warnings"]).0, Some(2));
    let started = GatewayProcess::start(folder.path());
    let log = started.program.stderr_so_far();
    assert!(log.contains(" WARN ") && says.iter().all(|part| log.contains(part)), "{log}");
    started.program.kill();
    let first = GatewayProcess::start(self::folder(&upstream).path());
    assert!(!first.program.stderr_so_far().contains("is new"), "{}", first.program.stderr_so_far());
}

/// Also after a kill, when the log has commits that are not in the database yet.
#[test]
fn check_works_beside_a_running_gateway_and_leaves_no_file() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    assert_eq!(check(folder.path(), &[]).0, Some(0));
    assert_eq!(names(folder.path()), ["gateway.toml"]);
    let running = GatewayProcess::start(folder.path());
    let before = names(folder.path());
    assert_eq!(check(folder.path(), &["--deny-warnings"]), (Some(0), "gateway.toml: no errors".to_owned()));
    assert_eq!(names(folder.path()), before);
    running.program.kill();
    let before = names(folder.path());
    assert_eq!(check(folder.path(), &["--deny-warnings"]).0, Some(0));
    assert_eq!(names(folder.path()), before);
    let stopped = used_folder(&upstream);
    let before = names(stopped.path());
    assert!(!before.iter().any(|name| name.ends_with("-shm")), "{before:?}");
    assert_eq!(check(stopped.path(), &["--deny-warnings"]).0, Some(0));
    assert_eq!(names(stopped.path()), before);
}
