//! Lanes, repetitions, and what the errors of a server mean.

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::given::{PostgresServer, driver, settings};
use crate::store::error::StoreError;
use crate::store::pool::OperationKind;
use crate::store::postgres::connect::Connector;
use crate::store::postgres::driver::Driver;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::inspect;
use crate::store::postgres::lane::{Lane, MORE};
use crate::store::postgres::session::Session;
use crate::store::postgres::settings::{PostgresSettings, PostgresTarget};
use crate::types::ids::TokenId;

async fn backend(session: Session) -> Result<i32, QueryError> {
    let row = session.query_opt("select pg_backend_pid()", &[]).await?;
    Ok(row.expect("a row").try_get(0).map_err(StoreError::from)?)
}

#[test]
fn an_operation_runs_again_after_its_connection_was_lost() {
    let server = PostgresServer::shared();
    let settings = settings(server);
    let name = settings.schema.clone();
    let driver = driver(settings);
    let first = driver.wait(driver.submit(Lane::Any, OperationKind::Upkeep, backend)).expect("it works");
    assert!(first > 0);

    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    let slow = driver.submit(Lane::Log, OperationKind::Upkeep, move |session| {
        let attempt = counted.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            let seconds = if attempt == 1 { 60_f64 } else { 0.0 };
            let text = format!("select pg_sleep({seconds})");
            session.batch(&text).await?;
            Ok(attempt)
        }
    });
    let began = Instant::now();
    while server.terminate_connections(&format!("bearward/{name}")) == 0 || attempts.load(Ordering::Relaxed) == 0 {
        assert!(began.elapsed() < Duration::from_secs(10), "the operation never began");
    }
    assert!(driver.wait(slow).expect("it was repeated") >= 2);
    let second = driver.wait(driver.submit(Lane::Any, OperationKind::Upkeep, backend)).expect("it works again");
    assert_ne!(first, second);
}

fn kind(error: &QueryError) -> &'static str {
    match error {
        QueryError::Lost(_) => "lost",
        QueryError::Conflict(_) => "conflict",
        QueryError::NotPrimary(_) => "not primary",
        QueryError::Rejected(_) => "rejected",
    }
}

/// The outcome of a statement that fails.
async fn failure(ran: impl Future<Output = Result<(), QueryError>>) -> Result<(&'static str, String), QueryError> {
    let error = ran.await.expect_err("it fails");
    Ok((kind(&error), error.into_store_error().message))
}

#[test]
fn the_code_of_an_error_decides_about_a_repetition() {
    let driver = driver(settings(PostgresServer::shared()));
    for (code, expected, advice) in [
        ("40001", "conflict", ""),
        ("40P01", "conflict", ""),
        ("0A000", "conflict", ""),
        ("26000", "conflict", "store.prepared"),
        ("25006", "not primary", "name the primary"),
        ("08006", "lost", ""),
        ("08P01", "lost", "connection poolers"),
        ("57P01", "lost", ""),
        ("57P03", "lost", "starting or shutting down"),
        ("57014", "rejected", "took too long"),
        ("23505", "rejected", ""),
        ("28P01", "rejected", "the user or its password is wrong"),
        ("28000", "rejected", "pg_hba.conf"),
        ("3D000", "rejected", "no such database"),
        ("42501", "rejected", "lacks a right"),
        ("42P01", "rejected", "a table of the gateway is missing"),
        ("3F000", "rejected", "a table of the gateway is missing"),
        ("42703", "rejected", "a table of the gateway is missing"),
        ("53100", "rejected", "the disk"),
        ("53200", "rejected", "not enough memory"),
        ("53300", "rejected", "max_connections"),
        ("55P03", "rejected", "holds a lock"),
    ] {
        let failed = driver.submit(Lane::Any, OperationKind::Upkeep, move |session| async move {
            let raise = format!("do $$ begin raise exception 'some text' using errcode = '{code}'; end $$");
            failure(session.batch(&raise)).await
        });
        let (kind, message) = driver.wait(failed).expect("it reports");
        assert_eq!(kind, expected, "{code}");
        assert!(message.contains(&format!("PostgreSQL: {code} some text")), "{message}");
        assert!(message.contains(advice) && message.starts_with("PostgreSQL: ") == advice.is_empty(), "{message}");
    }
}

/// Without a code of the server, only a broken connection is worth a repetition.
#[test]
fn an_error_of_the_client_itself_is_not_repeated() {
    let driver = driver(settings(PostgresServer::shared()));
    let failed = driver.submit(Lane::Any, OperationKind::Upkeep, |session| async move {
        let too_few = async { session.query("select $1::int4 + $2::int4", &[&1_i32]).await.map(drop) };
        failure(too_few).await
    });
    assert_eq!(driver.wait(failed).expect("it reports").0, "rejected");
    let failed = driver.submit(Lane::Any, OperationKind::Upkeep, |session| async move {
        session.close();
        failure(async { session.query("select 1", &[]).await.map(drop) }).await
    });
    assert_eq!(driver.wait(failed).expect("it reports").0, "lost");
}

/// A connection works on one statement after the other. So one may wait for longer than the server may be silent.
#[test]
fn a_statement_that_waits_behind_others_is_not_lost() {
    let driver = driver(PostgresSettings { timeout: Duration::from_secs(20), ..settings(PostgresServer::shared()) });
    let attempts = Arc::new(AtomicU32::new(0));
    let slow = [(); 2].map(|()| {
        let attempts = attempts.clone();
        driver.submit(Lane::Log, OperationKind::Upkeep, move |session| {
            attempts.fetch_add(1, Ordering::Relaxed);
            async move { session.query("select pg_sleep(3)", &[]).await.map(drop) }
        })
    });
    slow.into_iter().for_each(|slow| driver.wait(slow).expect("it works"));
    assert_eq!(attempts.load(Ordering::Relaxed), 2);
}

/// The server has stopped waiting for a standby, and says so before it reports success.
#[test]
fn a_change_that_may_not_be_durable_runs_again() {
    let driver = driver(settings(PostgresServer::shared()));
    for (severity, code, expected) in [("warning", "01000", 2), ("warning", "01004", 1), ("notice", "00000", 1)] {
        let attempts = Arc::new(AtomicU32::new(0));
        let run = driver.submit(Lane::Any, OperationKind::Upkeep, move |session| {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                let severity = if attempt == 1 { severity } else { "debug" };
                let raise = format!("do $$ begin raise {severity} 'some text' using errcode = '{code}'; end $$");
                session.batch(&raise).await.map(|()| attempt)
            }
        });
        assert_eq!(driver.wait(run).expect("it works"), expected, "{severity} {code}");
    }
}

#[test]
fn an_operation_runs_again_after_conflicts_but_not_for_ever() {
    let driver = driver(settings(PostgresServer::shared()));
    for (conflicts, expected) in [(1, Some(2)), (3, Some(4)), (4, None), (100, None)] {
        let attempts = Arc::new(AtomicU32::new(0));
        let counted = attempts.clone();
        let outcome = driver.submit(Lane::Any, OperationKind::Upkeep, move |_| {
            let attempt = counted.fetch_add(1, Ordering::Relaxed) + 1;
            let error = QueryError::Conflict(StoreError::new("another transaction was faster"));
            async move { if attempt <= conflicts { Err(error) } else { Ok(attempt) } }
        });
        assert_eq!(driver.wait(outcome).ok(), expected, "{conflicts} conflicts");
        assert_eq!(attempts.load(Ordering::Relaxed), expected.unwrap_or(4));
    }
}

/// A lane shares the connection of another one until its own has passed its first checks.
fn wait_until_each_has_its_own(driver: &Driver, lanes: [Lane; 3]) {
    let began = Instant::now();
    loop {
        let used =
            lanes.map(|lane| driver.wait(driver.submit(lane, OperationKind::Upkeep, backend)).expect("it works"));
        if HashSet::from(used).len() == lanes.len() {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "not all are connected");
    }
}

/// What the lost attempt wrote may be visible, and not yet on the standby. The follower reads it all the same.
#[test]
fn a_success_after_a_loss_waits_until_it_is_durable() {
    for (lane, losses, waits) in [(Lane::Log, 0, 0), (Lane::Log, 1, 1), (Lane::Follower, 1, 0)] {
        let driver = driver(settings(PostgresServer::shared()));
        wait_until_each_has_its_own(&driver, [Lane::Log, Lane::Follower, Lane::Upkeep]);
        let attempts = AtomicU32::new(0);
        let run = driver.submit(lane, OperationKind::Upkeep, move |_| {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            let lost = QueryError::Lost(StoreError::new("the connection is lost"));
            async move { if attempt < losses { Err(lost) } else { Ok(()) } }
        });
        driver.wait(run).expect("it works");
        let barriers = driver.submit(lane, OperationKind::Upkeep, |session| async move {
            let prepared = "select count(*) from pg_prepared_statements where statement like 'select pg_logical_emit%'";
            let row = session.query_opt(prepared, &[]).await?;
            Ok(row.expect("a row").try_get::<_, i64>(0).map_err(StoreError::from)?)
        });
        assert_eq!(driver.wait(barriers).expect("it works"), waits, "{lane:?} {losses}");
    }
}

#[test]
fn an_operation_that_always_loses_its_connection_ends() {
    let patient = PostgresSettings { timeout: Duration::from_secs(30), ..settings(PostgresServer::shared()) };
    let driver = driver(patient);
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    let lost = driver.submit(Lane::Any, OperationKind::Upkeep, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Err::<(), _>(QueryError::Lost(StoreError::new("the connection is lost"))) }
    });
    assert!(driver.wait(lost).is_err());
    // Fewer if new connections take too long.
    assert!((2..=6).contains(&attempts.load(Ordering::Relaxed)), "{attempts:?}");
}

/// As one that was served by a statement on another connection.
#[test]
fn a_loss_elsewhere_does_not_end_a_connection() {
    let driver = driver(settings(PostgresServer::shared()));
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let numbers = seen.clone();
    let repeated = driver.submit(Lane::Log, OperationKind::Upkeep, move |session| {
        let mut numbers = numbers.lock();
        numbers.push(session.number());
        let is_lost = numbers.len() == 1;
        async move { if is_lost { Err(QueryError::Lost(StoreError::new("elsewhere"))) } else { Ok(()) } }
    });
    driver.wait(repeated).expect("it was repeated");
    let numbers = seen.lock();
    assert!(numbers.len() == 2 && numbers[0] == numbers[1], "{numbers:?}");
}

#[test]
fn each_lane_has_connections_of_its_own() {
    const POOL: usize = 3;
    let server = PostgresServer::shared();
    let settings = PostgresSettings { pool: POOL, ..settings(server) };
    let open = format!("select pid from pg_stat_activity where application_name = 'bearward/{}'", settings.schema);
    let driver = driver(settings);
    let began = Instant::now();
    while server.sql("postgres", &open).lines().count() < POOL + MORE {
        assert!(began.elapsed() < Duration::from_secs(20), "not all are connected");
    }
    let on = |lane| driver.wait(driver.submit(lane, OperationKind::Upkeep, backend)).expect("it works");
    // The last connection may not have passed its first checks yet.
    let first = Lane::Family(TokenId::from_bytes([0; 16]));
    while on(Lane::Upkeep) == on(first) {
        assert!(began.elapsed() < Duration::from_secs(20), "not all are connected");
    }
    let family = |number: u8| on(Lane::Family(TokenId::from_bytes([number; 16])));
    let of_families: HashSet<i32> = (0..30).map(family).collect();
    let of_any: HashSet<i32> = (0..200).map(|_| on(Lane::Any)).collect();
    assert_eq!((of_families.len(), &of_families), (POOL, &of_any));
    assert!((0..30).all(|number| family(number) == family(number)));
    let others = [on(Lane::Upkeep), on(Lane::Follower)];
    assert!(others[0] != others[1] && !others.iter().any(|other| of_any.contains(other)), "{others:?}");
    assert!(!of_any.contains(&on(Lane::Log)));
}

#[test]
fn a_start_waits_for_a_server_but_not_for_a_correction() {
    let server = PostgresServer::shared();
    let start = |url: &str, patience| {
        let target = PostgresTarget::parse(url).expect("valid");
        let settings = PostgresSettings { target, ..settings(server) };
        let began = Instant::now();
        assert!(Driver::start(Connector::new(settings, None, "a"), patience).is_err());
        began.elapsed()
    };
    let patience = Duration::from_secs(60);
    assert!(start(&server.url().replacen("/bearward?", "/nothing?", 1), patience) < patience);
    // Port 1 has no server.
    let nowhere = "postgres://a@127.0.0.1:1/a?sslmode=disable";
    let patience = Duration::from_millis(300);
    assert!(start(nowhere, patience) >= patience);
    let settings = PostgresSettings { target: PostgresTarget::parse(nowhere).expect("valid"), ..settings(server) };
    let began = Instant::now();
    assert!(inspect::is_initialized(&settings, None, patience).is_err());
    assert!(began.elapsed() >= patience, "what a start reads before it opens the store waits, too");
}

#[test]
fn a_dropped_driver_finishes_what_is_queued() {
    let server = PostgresServer::shared();
    let settings = settings(server);
    let schema = settings.schema.clone();
    let driver = driver(settings);
    let created = format!("create schema {schema}; create table {schema}.finished ()");
    drop(driver.submit(Lane::Log, OperationKind::Upkeep, move |session| {
        let created = created.clone();
        async move {
            session.query("select pg_sleep(0.3)", &[]).await?;
            session.batch(&created).await
        }
    }));
    drop(driver);
    assert_eq!(server.sql("bearward", &format!("select to_regclass('{schema}.finished') is not null")), "t");
}

#[test]
fn a_host_that_does_not_work_is_followed_by_the_next_one() {
    let server = PostgresServer::shared();
    // Port 1 has no server.
    let url = server.url().replacen("@", "@127.0.0.1:1,", 1);
    let settings = PostgresSettings { target: PostgresTarget::parse(&url).expect("valid"), ..settings(server) };
    let driver = driver(settings);
    assert!(driver.wait(driver.submit(Lane::Any, OperationKind::Upkeep, backend)).is_ok());
}

/// Everything that a start opens has one look at all hosts in common.
#[test]
fn a_host_that_hangs_delays_a_start_once() {
    let server = PostgresServer::shared();
    // It accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = silent.local_addr().expect("bound");
    let url = server.url().replacen("/bearward?", &format!(",{silent}/bearward?connect_timeout=1&"), 1);
    let settings = PostgresSettings { target: PostgresTarget::parse(&url).expect("valid"), ..settings(server) };
    let limit = settings.target.connect_timeout;
    let began = Instant::now();
    for _ in 0..3 {
        assert!(!inspect::is_initialized(&settings, None, Duration::ZERO).expect("the first host works"));
    }
    drop(driver(settings));
    let took = began.elapsed();
    assert!(limit <= took && took < 2 * limit, "{took:?}");
}

/// As an operator or a provider does when the disk is nearly full. The others notice it when they write.
#[test]
fn a_connection_that_became_read_only_is_replaced() {
    let driver = driver(settings(PostgresServer::shared()));
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let numbers = seen.clone();
    let created = driver.submit(Lane::Log, OperationKind::Upkeep, move |session| {
        let mut numbers = numbers.lock();
        numbers.push(session.number());
        let is_first = numbers.len() == 1;
        async move {
            if is_first {
                session.batch("set default_transaction_read_only = on").await?;
            }
            session.execute("create table written ()", &[]).await
        }
    });
    driver.wait(created).expect("it runs again");
    let numbers = seen.lock();
    assert!(numbers.len() == 2 && numbers[0] != numbers[1], "{numbers:?}");
}
