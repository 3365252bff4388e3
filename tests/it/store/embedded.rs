//! The embedded store: the suite, and what concerns its file.

use std::fs;
use std::future::Future;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bearward::store::sqlite::{Settings, SqliteStore};
use bearward::store::{RevocationHook, RevokedBy, Store, StoreError};
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::tokens::family::rotation::Rotation;
use bearward::types::reject::Reason;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use super::given::*;

super::suite::run_the_suite!(crate::store::embedded::with_an_empty_store);

/// What a function of the suite does with a store.
type Trace<'store> = Pin<Box<dyn Future<Output = ()> + 'store>>;

fn with_an_empty_store(trace: impl for<'store> FnOnce(&'store dyn Store) -> Trace<'store>) {
    let folder = TempDir::new().expect("a folder");
    let store = open(&folder.path().join("bearward.db"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(trace(&store));
}

pub(crate) fn try_open(path: &Path) -> Result<SqliteStore, StoreError> {
    let settings =
        Settings { issuer: ISSUER.into(), longest_life: LONGEST_LIFE, longest_family: LONGEST_FAMILY, audit: 1_000 };
    SqliteStore::open(path, settings, Arc::new(|_| {}))
}

pub(crate) fn open(path: &Path) -> SqliteStore {
    try_open(path).expect("the store opens")
}

/// A folder with a database's place in it.
fn place() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("bearward.db");
    (folder, path)
}

fn refusal(path: &Path) -> String {
    try_open(path).err().expect("the store does not open").message
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let (_folder, path) = place();
    let store = open(&path);
    let family = issued(&store, "alice", LOGIN).await;
    let living = rotated(&store, &family, 1, LOGIN).await;
    let stolen = issued(&store, "bob", LOGIN).await;
    rotated(&store, &stolen, 1, LOGIN).await;
    store.confirm(vec![(stolen.id, 2)]).await.expect("confirms");
    assert!(matches!(refresh(&store, &stolen, 1, LOGIN + AFTER_GRACE).await, Rotation::Reused(_)));
    store.revoke(Revoked::Everything { not_after: LOGIN - GRACE }, LOGIN.into()).await.expect("revokes");
    let log = store.revocations_since(0, LOGIN).await.expect("reads");
    drop(store);

    let store = open(&path);
    assert_eq!(stored(&store, &family).await, living);
    assert_eq!(
        refused(&store, &stolen, 2, LOGIN + AFTER_GRACE).await,
        Reason::GrantRevoked,
        "a reuse is not forgotten"
    );
    assert_eq!(store.revocations_since(0, LOGIN).await.expect("reads"), log);
    let next = store.revoke(Revoked::Everything { not_after: LOGIN }, LOGIN.into()).await.expect("revokes");
    assert_eq!(next, log.len() as u64 + 1);
}

#[tokio::test]
async fn an_operation_is_done_even_if_nobody_waits_for_it() {
    let (_folder, path) = place();
    let store = open(&path);
    let family = issued(&store, "alice", LOGIN).await;
    drop(store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()));
    drop(store);
    assert!(stored(&open(&path), &family).await.revoked.is_some());
}

#[tokio::test]
async fn a_revocation_is_enforced_before_its_caller_is_answered() {
    let (_folder, path) = place();
    let enforced: Arc<Mutex<Vec<Revocation>>> = Arc::default();
    let seen = enforced.clone();
    let enforce: RevocationHook = Arc::new(move |revocation: &Revocation| {
        // Long enough for an answer to come first, if it could.
        std::thread::sleep(Duration::from_millis(20));
        seen.lock().expect("not poisoned").push(revocation.clone());
    });
    let store = SqliteStore::open(
        path,
        Settings { issuer: ISSUER.into(), longest_life: LONGEST_LIFE, longest_family: LONGEST_FAMILY, audit: 1_000 },
        enforce,
    )
    .expect("opens");
    let family = issued(&store, "alice", LOGIN).await;
    store.revoke_family(family.id, RevokedBy::Admin, LOGIN.into()).await.expect("revokes");
    let log = store.revocations_since(0, LOGIN).await.expect("reads");
    assert_eq!(*enforced.lock().expect("not poisoned"), log);
    assert_eq!(log.len(), 1);
}

#[tokio::test]
async fn a_shorter_access_lifetime_does_not_make_older_tokens_irrevocable() {
    let (_folder, path) = place();
    for (configured, remembered) in [(3_600, 3_600), (300, 3_600), (7_200, 7_200)] {
        let settings = Settings {
            issuer: ISSUER.into(),
            longest_life: Duration::from_secs(configured),
            longest_family: LONGEST_FAMILY,
            audit: 1_000,
        };
        let store = SqliteStore::open(&path, settings, Arc::new(|_| {})).expect("opens");
        let revoked = Revoked::Token { issuer: "https://login.example".into(), jti: configured.to_string() };
        let sequence = store.revoke(revoked, LOGIN.into()).await.expect("revokes");
        let log = store.revocations_since(sequence - 1, LOGIN).await.expect("reads");
        assert_eq!(log[0].until, LOGIN + Duration::from_secs(remembered));
    }
}

#[tokio::test]
async fn a_shorter_life_of_families_does_not_make_older_tokens_irrevocable() {
    let (_folder, path) = place();
    let hour = Duration::from_secs(3_600);
    for (configured, remembered) in [(48 * hour, 48 * hour), (24 * hour, 48 * hour), (72 * hour, 72 * hour)] {
        let settings =
            Settings { issuer: ISSUER.into(), longest_life: LONGEST_LIFE, longest_family: configured, audit: 1_000 };
        let store = SqliteStore::open(&path, settings, Arc::new(|_| {})).expect("opens");
        let revoked = Revoked::Token { issuer: ISSUER.into(), jti: configured.as_secs().to_string() };
        let sequence = store.revoke(revoked, LOGIN.into()).await.expect("revokes");
        let log = store.revocations_since(sequence - 1, LOGIN).await.expect("reads");
        assert_eq!(log[0].until, LOGIN + remembered);
    }
}

/// What a loss of power leaves of a commit that was being written: any part of it, or noise where it was to be.
#[tokio::test]
async fn a_torn_commit_at_the_end_of_the_log_never_was_and_all_before_it_is_there() {
    let (folder, path) = place();
    let store = open(&path);
    let family = issued(&store, "alice", LOGIN).await;
    let ended = issued(&store, "bob", LOGIN).await;
    store.revoke_family(ended.id, RevokedBy::Admin, LOGIN.into()).await.expect("revokes");
    let second = rotated(&store, &family, 1, LOGIN).await;
    let wal = |path: &Path| fs::read(path.with_extension("db-wal")).expect("reads");
    let answered = wal(&path).len();
    let third = rotated(&store, &family, 2, LOGIN).await;
    let (database, log) = (fs::read(&path).expect("reads"), wal(&path));
    assert!(log.len() > answered, "nothing was moved into the database yet");

    let torn = |kept: usize| log[..kept].to_vec();
    let noisy = |from: usize| {
        let mut noisy = log.clone();
        noisy[from..].fill(0xa5);
        noisy
    };
    let span = log.len() - answered;
    let cuts = [0, 1, 23, 24, span / 3, span / 2, span - 4096, span - 1].map(|more| answered + more);
    let logs = cuts.iter().flat_map(|cut| [torn(*cut), noisy(*cut)]);
    for (number, log) in logs.enumerate() {
        let copy = folder.path().join(format!("{number}.db"));
        fs::write(&copy, &database).expect("writes");
        fs::write(copy.with_extension("db-wal"), log).expect("writes");
        let store = open(&copy);
        assert_eq!(stored(&store, &family).await, second, "log {number}");
        assert_eq!(refused(&store, &ended, 1, LOGIN).await, Reason::GrantRevoked);
        assert_eq!(store.revocations_since(0, LOGIN).await.expect("reads").len(), 1);
        // Whoever asked and heard nothing asks again, and gets what would have been the answer.
        assert_eq!(current_token(&rotated(&store, &family, 2, LOGIN).await), current_token(&third));
        drop(store);
        assert_eq!(stored(&open(&copy), &family).await.generation, 3);
    }
}

/// As the first version of this schema left it.
#[tokio::test]
async fn an_older_schema_is_brought_up_to_date_and_keeps_what_it_has() {
    let (_folder, path) = place();
    let older = Connection::open(&path).expect("opens");
    older.execute_batch(include_str!("../../../src/store/sqlite/schema.sql")).expect("writes");
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

/// A gap in the sequence says how many are missing.
#[tokio::test]
async fn events_beyond_the_limit_are_lost_and_leave_a_gap() {
    let (_folder, path) = place();
    let settings =
        Settings { issuer: ISSUER.into(), longest_life: LONGEST_LIFE, longest_family: LONGEST_FAMILY, audit: 3 };
    let store = SqliteStore::open(&path, settings.clone(), Arc::new(|_| {})).expect("opens");
    for _ in 0..5 {
        issued(&store, "alice", LOGIN).await;
    }
    let sequence = async |store: &SqliteStore| {
        let events = store.undelivered(10).await.expect("reads");
        events.iter().map(|event| event.sequence).collect::<Vec<_>>()
    };
    assert_eq!(sequence(&store).await, [1, 2, 3]);
    let lost = store.outbox().lost.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((lost, store.families_of("alice".into()).await.expect("reads").len()), (2, 5), "the logins are there");
    drop(store);
    let store = SqliteStore::open(&path, settings, Arc::new(|_| {})).expect("opens");
    assert_eq!(store.outbox().waiting.load(std::sync::atomic::Ordering::Relaxed), 3, "what waits survives a restart");
    store.delivered(3).await.expect("writes");
    issued(&store, "alice", LOGIN).await;
    assert_eq!(sequence(&store).await, [6]);
}

/// The families stay ours when the gateway is renamed, and so do their watermarks.
#[tokio::test]
async fn a_watermark_survives_a_change_of_the_issuers_name() {
    let (_folder, path) = place();
    let store = open(&path);
    let family = issued(&store, "alice", LOGIN).await;
    let what = Revoked::Subject { issuer: ISSUER.into(), subject: "alice".into(), not_after: LOGIN };
    store.revoke(what, LOGIN.into()).await.expect("revokes");
    drop(store);

    let settings = Settings {
        issuer: "https://new.example".into(),
        longest_life: LONGEST_LIFE,
        longest_family: LONGEST_FAMILY,
        audit: 1_000,
    };
    let store = SqliteStore::open(&path, settings, Arc::new(|_| {})).expect("opens");
    assert_eq!(refused(&store, &family, 1, LOGIN).await, Reason::GrantRevoked);
}

#[tokio::test]
async fn a_second_opening_is_refused_under_whatever_name() {
    let (folder, path) = place();
    let store = open(&path);
    let alias = folder.path().join("alias.db");
    symlink(&path, &alias).expect("links");
    for name in [&path, &alias] {
        let message = refusal(name);
        assert!(message.contains("in use") && message.contains(&std::process::id().to_string()), "{message}");
    }
    issued(&store, "alice", LOGIN).await;
    drop(store);
    open(&alias);
}

#[test]
fn a_lock_file_that_cannot_be_used_is_named_beside_its_database() {
    let (_folder, path) = place();
    fs::create_dir(path.with_extension("db.lock")).expect("made");
    let message = refusal(&path);
    for says in [&*format!("{}: cannot use the lock file ", path.display()), "bearward.db.lock", "writable"] {
        assert!(message.contains(says), "{says} is not in {message}");
    }
    assert!(!path.exists(), "nothing is made");
}

#[tokio::test]
async fn an_operator_can_look_into_a_running_store() {
    let (_folder, path) = place();
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
async fn a_lock_held_by_another_program_is_an_error_that_passes() {
    let (_folder, path) = place();
    let store = open(&path);
    let shell = Connection::open(&path).expect("opens");
    shell.execute_batch("begin immediate").expect("locks");
    let message = store.check().await.expect_err("is locked").message;
    assert!(message.contains("another program"), "{message}");
    shell.execute_batch("rollback").expect("unlocks");
    store.check().await.expect("works again");
}

#[tokio::test]
async fn its_files_are_for_their_owner_only() {
    let (folder, path) = place();
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
fn a_newer_schema_is_refused_and_left_alone() {
    let (_folder, path) = place();
    drop(open(&path));
    Connection::open(&path).expect("opens").pragma_update(None, "user_version", 7).expect("writes");
    let before = fs::read(&path).expect("reads");
    let message = refusal(&path);
    assert!(message.contains("schema 7") && message.contains("newer"), "{message}");
    assert_eq!(fs::read(&path).expect("reads"), before);
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_left_alone() {
    let (_folder, path) = place();
    fs::write(&path, "not a database, but longer than the header of one. ".repeat(40)).expect("writes");
    let before = fs::read(&path).expect("reads");
    let message = refusal(&path);
    assert!(message.contains("not an SQLite database") && message.contains("bearward.db"), "{message}");
    assert_eq!(fs::read(&path).expect("reads"), before);

    fs::remove_file(&path).expect("removes");
    Connection::open(&path).expect("opens").execute_batch("create table contacts (name text)").expect("writes");
    let before = fs::read(&path).expect("reads");
    let message = refusal(&path);
    assert!(message.contains("another program"), "{message}");
    assert_eq!(fs::read(&path).expect("reads"), before);
}

#[test]
fn a_place_that_cannot_be_is_refused_with_its_name() {
    let (folder, path) = place();
    assert!(refusal(folder.path()).contains("folder"));
    let nowhere = path.join("bearward.db");
    assert!(refusal(&nowhere).contains("bearward.db"), "{}", refusal(&nowhere));
}
