//! Failures in the middle of a batch, at the commit, and of the disk, which only a unit test can cause.
//!
//! `tests/it/store.rs` tests the interface of the store.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use rusqlite::params;
use tempfile::TempDir;

use super::*;
use crate::store::api::{AuditStore, FamilyStore, RevocationStore, RevokeOutcome, RevokedBy, StoreUpkeep};
use crate::store::copy::Part;
use crate::tokens::family::RevokeReason;
use crate::tokens::family::revocation::Revoked;
use crate::types::clock::UnixTime;

const NOW: UnixTime = UnixTime::from_secs(1_000_000);

/// A store in a temporary folder, and the revocations that it enforced.
struct TestStore {
    store: SqliteStore,
    enforced: Arc<Mutex<Vec<Revocation>>>,
    folder: TempDir,
}

fn new_store() -> TestStore {
    let folder = TempDir::new().expect("a folder");
    let enforced = Arc::new(Mutex::new(Vec::new()));
    let seen = enforced.clone();
    let enforce: RevocationHook = Arc::new(move |revocation: &Revocation, _| {
        assert_ne!(revocation.what, token("unenforceable"));
        seen.lock().push(revocation.clone());
    });
    let options = StoreOptions {
        issuer: "https://gateway.example".into(),
        longest_life: Duration::from_secs(900),
        longest_family: Duration::from_secs(86_400),
        timeout: Duration::from_secs(5),
        audit: 1_000,
    };
    let store = SqliteStore::open(folder.path().join("bearward.db"), options, enforce).expect("opens");
    TestStore { store, enforced, folder }
}

impl TestStore {
    /// Blocks the thread of the store until the sender is used or dropped, so that the calls meanwhile form one batch.
    async fn pause(&self) -> Sender<()> {
        let (resume, wait) = channel();
        let (reached, arrived) = tokio::sync::oneshot::channel();
        let held: Mutex<(Receiver<()>, Option<tokio::sync::oneshot::Sender<()>>)> = Mutex::new((wait, Some(reached)));
        drop(self.store.writer.submit(move |_| {
            let mut held = held.lock();
            let _ = held.1.take().expect("runs once").send(());
            let _ = held.0.recv();
            Ok(())
        }));
        arrived.await.expect("the thread runs");
        resume
    }

    fn enforced(&self) -> Vec<u64> {
        self.enforced.lock().iter().map(|revocation| revocation.sequence).collect()
    }
}

fn token(jti: &str) -> Revoked {
    Revoked::Token { issuer: "https://login.example".into(), jti: jti.into() }
}

fn family(subject: &str) -> Family {
    Family {
        id: TokenId::random(),
        subject: subject.into(),
        scope: "orders:read orders:write".into(),
        audience: vec!["https://api.example".into(), "é\"\\".into()],
        client_id: "app".into(),
        claims: [("tier".to_string(), serde_json::json!({"level": [1, null, "gold"]}))].into_iter().collect(),
        label: "Ида's 📱\0".into(),
        salt: [7; 32],
        generation: 3,
        root: 255,
        rotated_at: NOW,
        confirmed: 2,
        created_at: NOW,
        last_used_at: NOW,
        address: Some("2001:db8::7".parse().expect("an address")),
        idle: Some(Duration::from_millis(3_600_001)),
        idle_expiry: NOW + Duration::from_secs(7),
        absolute_expiry: UnixTime::MAX,
        key_hash: None,
        key_rate: None,
        origin: None,
        grant: None,
        revoked: None,
    }
}

#[tokio::test]
async fn a_family_comes_back_as_it_was_written() {
    let test = new_store();
    let written = test.store.issue(family("alice"), 100, NOW.into()).await.expect("issues").expect("not void");
    assert_eq!(test.store.family(written.id).await.expect("reads"), Some(written));
}

#[tokio::test]
async fn every_kind_of_revocation_comes_back_as_it_was_written() {
    let test = new_store();
    let issuer = "https://login.example";
    let written = [
        token("a"),
        Revoked::Session { issuer: issuer.into(), session: "a".into() },
        Revoked::Subject { issuer: issuer.into(), subject: "alice".into(), not_after: NOW },
        Revoked::Issuer { issuer: issuer.into(), not_after: NOW },
        Revoked::Everything { not_after: NOW },
    ];
    for what in written.clone() {
        test.store.revoke(what, NOW.into()).await.expect("revokes");
    }
    let read = test.store.revocations_since(0).await.expect("reads");
    assert_eq!(read.into_iter().map(|revocation| revocation.what).collect::<Vec<_>>(), written);
}

#[tokio::test]
async fn only_a_subject_of_the_gateway_itself_has_families() {
    for (issuer, is_void) in [("https://login.example", false), ("https://gateway.example", true)] {
        let test = new_store();
        let what = Revoked::Subject { issuer: issuer.into(), subject: "alice".into(), not_after: NOW };
        test.store.revoke(what, NOW.into()).await.expect("revokes");
        let issued = test.store.issue(family("alice"), 100, NOW.into()).await.expect("works");
        assert_eq!(issued.is_none(), is_void, "{issuer}");
    }
}

#[tokio::test]
async fn an_export_has_pages_of_the_given_size() {
    for (count, sizes) in [(4, vec![2, 2]), (5, vec![2, 2, 1])] {
        let TestStore { store, folder, .. } = new_store();
        for number in 0..count {
            store.revoke(token(&number.to_string()), NOW.into()).await.expect("revokes");
        }
        drop(store);
        let mut pages = Vec::new();
        let export = Export::open(&folder.path().join("bearward.db")).expect("opens");
        let read = export.read(Part::Revocations, 2, &mut |page| {
            pages.push(page.len());
            Ok(())
        });
        assert_eq!((read.is_ok(), pages), (true, sizes));
    }
}

#[tokio::test]
async fn a_durable_event_wakes_its_delivery() {
    let test = new_store();
    test.store.revoke(token("a"), NOW.into()).await.expect("revokes");
    let woken = tokio::time::timeout(Duration::from_secs(10), test.store.outbox().written.notified()).await;
    assert!(woken.is_ok(), "the event waits for a later one");
}

#[tokio::test]
async fn a_generation_too_large_for_sqlite_is_an_error() {
    let test = new_store();
    let beyond = Family { generation: u64::MAX, ..family("alice") };
    let id = beyond.id;
    assert!(test.store.issue(beyond, 100, NOW.into()).await.is_err());
    test.store.confirm(vec![(id, u64::MAX)]).await.expect("does nothing");
}

#[tokio::test]
async fn a_failed_operation_does_not_affect_the_others() {
    let test = new_store();
    let resume = test.pause().await;
    let before = test.store.revoke(token("before"), NOW.into());
    let halfway = test.store.writer.submit(|batch| {
        revocations::revoke(batch, &token("halfway"), &NOW.into())?;
        batch.execute("insert into meta (name, value) values ('checks', 1)", [])
    });
    let panics = test.store.writer.submit(|batch| -> Result<(), StoreError> {
        batch.revoke(token("panics"), NOW, RevokeReason::Admin, &NOW.into())?;
        panic!("a fault in an operation");
    });
    let no_such_table = test.store.writer.submit(|batch| batch.execute("delete from absent", []));
    let after = test.store.revoke(token("after"), NOW.into());
    drop(resume);

    assert_eq!(before.await.expect("succeeds"), 1);
    assert!(halfway.await.expect_err("fails").message.contains("UNIQUE"));
    assert!(panics.await.expect_err("fails").message.contains("panicked"));
    assert!(no_such_table.await.expect_err("fails").message.contains("no such table"));
    assert_eq!(after.await.expect("succeeds"), 2, "the rolled-back operations left no gap");
    assert_eq!(test.enforced(), [1, 2]);
    let events = test.store.undelivered(10).await.expect("reads");
    assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [1, 2], "the events have no gap either");
    let log = test.store.revocations_since(0).await.expect("reads");
    assert_eq!(log.iter().map(|each| each.what.clone()).collect::<Vec<_>>(), [token("before"), token("after")]);
}

#[tokio::test]
async fn a_failure_without_a_write_does_not_roll_back_the_batch() {
    let test = new_store();
    let resume = test.pause().await;
    let runs = Arc::new(Mutex::new(0));
    let counted = runs.clone();
    let beside = test.store.writer.submit(move |_| {
        *counted.lock() += 1;
        Ok(())
    });
    let fails = test.store.revoke(Revoked::Family(TokenId::random()), NOW.into());
    drop(resume);
    assert!(fails.await.is_err());
    beside.await.expect("succeeds");
    assert_eq!(*runs.lock(), 1);
}

#[tokio::test]
async fn a_failed_commit_fails_all_calls_and_enforces_nothing() {
    let test = new_store();
    let resume = test.pause().await;
    let beside = test.store.revoke(token("beside"), NOW.into());
    // A violated foreign key that SQLite checks at the commit.
    let breaks_the_commit = test.store.writer.submit(|batch| {
        Ok(batch.connection.execute_batch(
            "create temp table parent (id integer primary key);
             create temp table child (parent integer references parent deferrable initially deferred);
             pragma defer_foreign_keys = on;
             insert into child values (1);",
        )?)
    });
    drop(resume);
    assert!(beside.await.expect_err("fails").message.contains("FOREIGN KEY"));
    assert!(breaks_the_commit.await.is_err());
    assert!(test.enforced().is_empty());

    assert_eq!(test.store.revoke(token("later"), NOW.into()).await.expect("the next batch works"), 1);
    assert_eq!(test.enforced(), [1]);
}

#[tokio::test]
async fn a_revocation_that_is_not_enforced_is_an_error() {
    let test = new_store();
    assert!(test.store.revoke(token("unenforceable"), NOW.into()).await.is_err());
    assert_eq!(test.store.revoke(token("next"), NOW.into()).await.expect("the thread still runs"), 2);
}

/// SQLite returns the same error for a database that may not grow as for a full disk.
#[tokio::test]
async fn after_a_full_disk_the_store_works_without_a_restart() {
    let test = new_store();
    let limit_pages = |pages: i64| {
        test.store.writer.submit(move |batch| {
            Ok(batch
                .connection
                .query_row(&format!("pragma max_page_count = {pages}"), [], |row| row.get::<_, i64>(0))?)
        })
    };
    let kept = test.store.issue(family("alice"), 100, NOW.into()).await.expect("issues").expect("not void");
    limit_pages(1).await.expect("the smallest limit is the present size");

    let large = || Family { label: "x".repeat(100_000), ..family("alice") };
    let resume = test.pause().await;
    let beside = test.store.revoke_family(kept.id, RevokedBy::Admin, NOW.into());
    let rejected = test.store.issue(large(), 100, NOW.into());
    drop(resume);
    assert!(rejected.await.expect_err("there is no room").message.contains("disk"));
    assert_eq!(beside.await.expect("needs no room"), RevokeOutcome::Revoked);

    limit_pages(1_000_000).await.expect("there is room again");
    test.store.issue(large(), 100, NOW.into()).await.expect("issues");
    let kept = test.store.family(kept.id).await.expect("reads").expect("is there");
    assert_eq!(kept.revoked.map(|revoked| revoked.reason), Some(RevokeReason::Admin));
}

#[tokio::test]
async fn a_damaged_row_is_an_error_only_for_its_readers() {
    let test = new_store();
    let damaged = test.store.issue(family("mallory"), 100, NOW.into()).await.expect("issues").expect("not void").id;
    let intact = test.store.issue(family("alice"), 100, NOW.into()).await.expect("issues").expect("not void").id;
    let damage = move |batch: &mut batch::Batch<'_>| {
        batch.execute("update families set claims = '[' where id = ?1", params![damaged])
    };
    test.store.writer.submit(damage).await.expect("writes");
    let error = test.store.family(damaged).await.expect_err("is damaged");
    assert!(error.message.contains(&damaged.to_string()) && error.message.contains("claims"), "{error}");
    assert!(test.store.family(intact).await.expect("reads").is_some());
}

#[tokio::test]
async fn operations_beyond_the_queue_limit_fail_immediately() {
    let test = new_store();
    let resume = test.pause().await;
    let results: Vec<_> = (0..8_193).map(|_| test.store.check()).collect();
    drop(resume);
    let mut rejected = 0;
    for result in results {
        rejected += usize::from(result.await.is_err());
    }
    assert_eq!(rejected, 1);
}

/// Otherwise each login of a subject would cost as much as all its earlier logins.
#[tokio::test]
async fn the_limit_of_live_families_skips_ended_families() {
    let test = new_store();
    let plan = test.store.writer.submit(|batch| {
        let sql = format!("explain query plan {}", families::LEAST_RECENTLY_USED);
        batch.query(&sql, params!["", "", 0, 0, 0, 0, ""], |row| Ok(row.get::<_, String>("detail")?))
    });
    let plan = plan.await.expect("explains");
    assert!(plan[0].contains("families_unrevoked"), "{plan:?}");
    let plan = test.store.writer.submit(|batch| {
        let sql = format!("explain query plan {}", families::SUPERSEDED);
        batch.query(&sql, params!["", ""], |row| Ok(row.get::<_, String>("detail")?))
    });
    let plan = plan.await.expect("explains");
    assert!(plan[0].contains("families_unrevoked"), "{plan:?}");
}

/// Otherwise each page would sort all families, which takes seconds.
#[tokio::test]
async fn a_page_of_a_search_reads_one_index_in_its_order() {
    let test = new_store();
    for (index, statements) in [("families_unrevoked", search::OF_LIVE), ("families_of_subject", search::OF_ALL)] {
        for (sql, range) in
            statements.into_iter().zip(["subject=? AND (created_at,id)<(?,?)", "subject>? AND subject<?"])
        {
            let plan = test.store.writer.submit(move |batch| {
                let sql = format!("explain query plan {sql}");
                let params = if range.contains("id") { params!["", "", ""] } else { params!["", ""] };
                batch.query(&sql, params, |row| Ok(row.get::<_, String>("detail")?))
            });
            let plan = plan.await.expect("explains");
            assert_eq!(plan, [format!("SEARCH families USING INDEX {index} ({range})")]);
        }
    }
}

/// A reader, such as a backup, keeps SQLite from moving commits out of the `-wal`.
#[tokio::test]
async fn the_wal_shrinks_after_a_long_read() {
    let test = new_store();
    let path = test.folder.path().join("bearward.db");
    let wal_size = || std::fs::metadata(path.with_file_name("bearward.db-wal")).expect("a file").len();
    let limit = 8_388_608;
    let write = async || {
        let large = Family { label: "x".repeat(200_000), ..family("alice") };
        test.store.issue(large, 1_000, NOW.into()).await.expect("issues");
    };
    let reader = Connection::open(&path).expect("opens");
    reader.execute_batch("begin; select count(*) from families").expect("reads");
    for _ in 0..60 {
        write().await;
    }
    assert!(wal_size() > limit, "{} bytes", wal_size());
    drop(reader);
    // The first commit moves everything, the next one starts the file again.
    write().await;
    write().await;
    assert_eq!(wal_size(), limit);
}
