//! Operations that run again after their connection was lost, and calls that are written together.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::given::{PostgresServer, driver, settings, shared};
use crate::store::api::{Outbox, RevokeOutcome, RevokedBy};
use crate::store::pool::OperationKind;
use crate::store::postgres::append::NewLogEntry;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families::RevokeFamily;
use crate::store::postgres::issue::Issue;
use crate::store::postgres::lane::Lane;
use crate::store::postgres::lookup;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::schema;
use crate::store::postgres::session::Session;
use crate::tokens::family::Family;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

const LOGIN: UnixTime = UnixTime::from_millis(1_700_000_000_500);

fn family() -> Family {
    Family::sample(LOGIN)
}

/// Runs `work` on a connection to a database with empty tables.
pub(super) fn with_empty_tables<T, F, Fut>(outbox: Arc<Outbox>, work: F) -> T
where
    T: Send + 'static,
    F: Fn(Session, Arc<Shared>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<T, QueryError>> + Send + 'static,
{
    let settings = settings(PostgresServer::shared());
    let name = settings.schema.clone();
    let driver = driver(settings);
    let prepared = driver.submit(Lane::Log, OperationKind::Upkeep, move |session| {
        let name = name.clone();
        async move { schema::prepare(&session, &name, LOGIN).await }
    });
    driver.wait(prepared).expect("the tables are created");
    let shared = Arc::new(shared(driver.connections(), outbox));
    driver
        .wait(driver.submit(Lane::Log, OperationKind::Upkeep, move |session| work(session, shared.clone())))
        .expect("it works")
}

async fn events(session: &Session) -> Result<i64, QueryError> {
    let row = session.query_opt("select count(*) from audit", &[]).await?;
    Ok(row.expect("a row").try_get(0).expect("a number"))
}

#[test]
fn a_login_that_was_written_before_a_loss_is_not_taken() {
    with_empty_tables(Arc::default(), |session, shared| async move {
        let issue = Issue::new(family(), 10, LOGIN.into());
        assert_eq!(issue.run(&shared, &session).await?, Some(family()));
        let again = Issue::new(family(), 10, LOGIN.into());
        assert!(again.run(&shared, &session).await.is_err(), "nothing was lost, so that the id is taken");
        *again.uncertain.lock() = true;
        assert_eq!(again.run(&shared, &session).await?, Some(family()));
        assert_eq!(issue.run(&shared, &session).await?, Some(family()), "what follows the write may fail, too");
        assert_eq!(events(&session).await?, 1);

        let other = Issue::new(Family { salt: [1; 32], ..family() }, 10, LOGIN.into());
        *other.uncertain.lock() = true;
        assert!(other.run(&shared, &session).await.is_err(), "another login has this id");
        Ok(())
    });
}

/// Its caller has got an error, and the family that it never learns of must not end another one.
#[test]
fn a_login_that_comes_too_late_ends_no_other() {
    with_empty_tables(Arc::default(), |session, shared| async move {
        let connections = shared.log.connections.clone();
        let late = Shared { timeout: Duration::ZERO, ..super::given::shared(connections, Arc::default()) };
        let first = family();
        let second = Family { id: TokenId::from_bytes([9; 16]), ..family() };
        Issue::new(first.clone(), 1, LOGIN.into()).run(&shared, &session).await?;
        let issue = Issue::new(second.clone(), 1, LOGIN.into());
        assert!(issue.run(&late, &session).await.is_err());
        assert!(lookup::find(&session, second.id).await?.is_none());
        // An attempt before a pause has written it.
        let uncertain = Issue::new(second.clone(), 2, LOGIN.into());
        uncertain.run(&shared, &session).await?;
        assert!(uncertain.run(&late, &session).await.is_err());
        let end =
            async |id| Ok::<_, QueryError>(lookup::find(&session, id).await?.and_then(|found| found.family.revoked));
        assert!(end(second.id).await?.is_some() && end(first.id).await?.is_none());
        Ok(())
    });
}

#[test]
fn a_revocation_that_was_written_before_a_loss_is_its_own() {
    with_empty_tables(Arc::default(), |session, shared| async move {
        Issue::new(family(), 10, LOGIN.into()).run(&shared, &session).await?;
        let by_admin = |at: UnixTime| RevokeFamily::new(family().id, RevokedBy::Admin, at.into());
        let revoke = by_admin(LOGIN);
        assert_eq!(revoke.run(&shared, &session).await?, RevokeOutcome::Revoked);
        assert_eq!(revoke.run(&shared, &session).await?, RevokeOutcome::AlreadyEnded, "nothing was lost");
        *revoke.uncertain.lock() = true;
        assert_eq!(revoke.run(&shared, &session).await?, RevokeOutcome::Revoked);
        assert_eq!(events(&session).await?, 2);

        let other = by_admin(LOGIN + Duration::from_millis(1));
        *other.uncertain.lock() = true;
        assert_eq!(other.run(&shared, &session).await?, RevokeOutcome::AlreadyEnded, "another call was first");
        Ok(())
    });
}

/// Calls that wait are written by one statement, which the database accepts as a whole or not at all.
#[test]
fn a_rejected_entry_does_not_affect_calls_that_wait_too() {
    let entry = |jti: &str, generation| NewLogEntry {
        what: Revoked::Token { issuer: "https://login.example".into(), jti: jti.into() },
        at: LOGIN,
        reason: None,
        by: None,
        generation,
        event: None,
        is_lost: false,
    };
    // No integer of PostgreSQL.
    let entries = [entry("first", None), entry("bad", Some(u64::MAX)), entry("good", None)];
    let outbox: Arc<Outbox> = Arc::default();
    let (first, bad, good) = with_empty_tables(outbox.clone(), move |_, shared| {
        let entries = entries.clone();
        async move {
            let [first, bad, good] = entries.map(|entry| shared.log.append(vec![entry]));
            // The second and the third wait until the first is written.
            let (first, bad, good) = tokio::join!(first, bad, good);
            Ok((sequences(first?), matches!(bad, Err(QueryError::Rejected(_))), sequences(good?)))
        }
    });
    assert_eq!((first, bad, good), (vec![1], true, vec![2]));
    assert_eq!(outbox.lost.load(Ordering::Relaxed), 0, "entries without an event lose none");
}

fn sequences(appended: Vec<Option<Revocation>>) -> Vec<u64> {
    appended.into_iter().flatten().map(|revocation| revocation.sequence).collect()
}
