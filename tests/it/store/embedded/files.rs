//! The files of the embedded store: torn commits, old schemas, locks and permissions.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use bearward::store::{FamilyStore, RevocationStore, RevokedBy, StoreUpkeep};
use bearward::types::reject::Reason;
use rusqlite::{Connection, OpenFlags};

use super::{database_path, open, try_open};
use crate::support::given::*;

fn open_error(path: &Path) -> String {
    try_open(path).err().expect("the store does not open").message
}

/// After a loss of power, the file has any part of the last commit, or random bytes in its place.
#[tokio::test]
async fn a_torn_last_commit_is_dropped_and_earlier_ones_are_kept() {
    let (folder, path) = database_path();
    let store = open(&path);
    let family = issued(&store, "alice", LOGIN).await;
    let ended = issued(&store, "bob", LOGIN).await;
    store.revoke_family(ended.id, RevokedBy::Admin, LOGIN.into()).await.expect("revokes");
    let second = rotated(&store, &family, 1, LOGIN).await;
    let wal = |path: &Path| fs::read(path.with_extension("db-wal")).expect("reads");
    let acknowledged = wal(&path).len();
    let third = rotated(&store, &family, 2, LOGIN).await;
    let (database, log) = (fs::read(&path).expect("reads"), wal(&path));
    assert!(log.len() > acknowledged, "SQLite has not moved the log into the database yet");

    let truncated = |kept: usize| log[..kept].to_vec();
    let with_noise = |from: usize| {
        let mut with_noise = log.clone();
        with_noise[from..].fill(0xa5);
        with_noise
    };
    let last_commit = log.len() - acknowledged;
    let cuts = [0, 1, 23, 24, last_commit / 3, last_commit / 2, last_commit - 4096, last_commit - 1]
        .map(|more| acknowledged + more);
    let logs = cuts.iter().flat_map(|cut| [truncated(*cut), with_noise(*cut)]);
    for (number, log) in logs.enumerate() {
        let copy = folder.path().join(format!("{number}.db"));
        fs::write(&copy, &database).expect("writes");
        fs::write(copy.with_extension("db-wal"), log).expect("writes");
        let store = open(&copy);
        assert_eq!(stored(&store, &family).await, second, "log {number}");
        assert_eq!(rejection(&store, &ended, 1, LOGIN).await, Reason::GrantRevoked);
        assert_eq!(store.revocations_since(0).await.expect("reads").len(), 1);
        // A client without a response retries, and gets the same token.
        assert_eq!(current_token(&rotated(&store, &family, 2, LOGIN).await), current_token(&third));
        drop(store);
        assert_eq!(stored(&open(&copy), &family).await.generation, 3);
    }
}

/// A database of the first version of this schema.
#[tokio::test]
async fn an_older_schema_is_migrated_and_keeps_its_rows() {
    let (_folder, path) = database_path();
    let older = Connection::open(&path).expect("opens");
    older.execute_batch(include_str!("../../../../src/store/sqlite/schema.sql")).expect("writes");
    older.execute_batch("pragma application_id = 0x62777264; pragma user_version = 1;").expect("writes");
    let id = bearward::types::ids::TokenId::random();
    older
        .execute(
            "insert into families values (?1, 'alice', '', '[]', '', '{}', '', zeroblob(32), 1, 1, 0, 0, 0, 0, null,
                 9000000000000, 9000000000000, null, null)",
            [id.to_string()],
        )
        .expect("writes");
    drop(older);
    let store = open(&path);
    let family = store.family(id).await.expect("reads").expect("it is there");
    assert_eq!((family.subject.as_str(), family.address), ("alice", None));
    rotated(&store, &family, 1, LOGIN).await;
}

#[tokio::test]
async fn a_second_open_fails_under_any_name() {
    let (folder, path) = database_path();
    let store = open(&path);
    let alias = folder.path().join("alias.db");
    symlink(&path, &alias).expect("links");
    for name in [&path, &alias] {
        let message = open_error(name);
        assert!(message.contains("in use") && message.contains(&std::process::id().to_string()), "{message}");
    }
    issued(&store, "alice", LOGIN).await;
    drop(store);
    open(&alias);
}

#[test]
fn an_unusable_lock_file_is_named_with_its_database() {
    let (_folder, path) = database_path();
    fs::create_dir(path.with_extension("db.lock")).expect("made");
    let message = open_error(&path);
    for expected in [&*format!("{}: cannot use the lock file ", path.display()), "bearward.db.lock", "writable"] {
        assert!(message.contains(expected), "{expected} is not in {message}");
    }
    assert!(!path.exists(), "no database is created");
}

#[tokio::test]
async fn an_operator_can_read_a_running_store() {
    let (_folder, path) = database_path();
    let store = open(&path);
    let family = issued(&store, "alice", LOGIN).await;
    let shell = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("opens");
    let subject: String = shell
        .query_row("select subject from families where id = ?1", [family.id.to_string()], |row| row.get(0))
        .expect("reads");
    assert_eq!(subject, "alice");
    issued(&store, "bob", LOGIN).await;
}

#[tokio::test]
async fn a_lock_of_another_program_is_a_temporary_error() {
    let (_folder, path) = database_path();
    let store = open(&path);
    let shell = Connection::open(&path).expect("opens");
    shell.execute_batch("begin immediate").expect("locks");
    let message = store.check().await.expect_err("is locked").message;
    assert!(message.contains("another program"), "{message}");
    shell.execute_batch("rollback").expect("unlocks");
    store.check().await.expect("works again");
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    let (folder, path) = database_path();
    let store = open(&path);
    issued(&store, "alice", LOGIN).await;
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).expect("lists") {
        let entry = entry.expect("lists");
        let mode = entry.metadata().expect("is there").permissions().mode() & 0o777;
        let name = entry.file_name().into_string().expect("is text");
        assert_eq!(mode, 0o600, "{name}");
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["bearward.db", "bearward.db-shm", "bearward.db-wal", "bearward.db.lock"]);
}

#[test]
fn a_newer_schema_is_rejected_and_unchanged() {
    let (_folder, path) = database_path();
    drop(open(&path));
    Connection::open(&path).expect("opens").pragma_update(None, "user_version", 999).expect("writes");
    let before = fs::read(&path).expect("reads");
    let message = open_error(&path);
    assert!(message.contains("schema 999") && message.contains("newer"), "{message}");
    assert_eq!(fs::read(&path).expect("reads"), before);
}

#[test]
fn a_file_of_another_program_is_rejected_and_unchanged() {
    let (_folder, path) = database_path();
    fs::write(&path, "not a database, but longer than the header of one. ".repeat(40)).expect("writes");
    let before = fs::read(&path).expect("reads");
    let message = open_error(&path);
    assert!(message.contains("not an SQLite database") && message.contains("bearward.db"), "{message}");
    assert_eq!(fs::read(&path).expect("reads"), before);

    fs::remove_file(&path).expect("removes");
    Connection::open(&path).expect("opens").execute_batch("create table contacts (name text)").expect("writes");
    let before = fs::read(&path).expect("reads");
    let message = open_error(&path);
    assert!(message.contains("another program"), "{message}");
    assert_eq!(fs::read(&path).expect("reads"), before);
}

#[test]
fn an_invalid_path_is_rejected_with_its_name() {
    let (folder, path) = database_path();
    assert!(open_error(folder.path()).contains("folder"));
    let nowhere = path.join("bearward.db");
    assert!(open_error(&nowhere).contains("bearward.db"), "{}", open_error(&nowhere));
}
