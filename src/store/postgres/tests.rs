//! The driver against a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::connect::Connector;
use super::connections::Lane;
use super::driver::Driver;
use super::error::QueryError;
use super::session::Session;
use super::settings::{OnStale, Settings, Target};
use crate::store::error::StoreError;

#[allow(dead_code, unreachable_pub, clippy::expect_used, clippy::unwrap_used)]
#[path = "../../../tests/it/support/postgres.rs"]
mod server;

use server::PostgresServer;

fn settings(server: &PostgresServer) -> Settings {
    Settings {
        target: Target::parse(&server.url()).expect("valid"),
        password: None,
        ca_file: None,
        schema: server.schema(),
        pool: 2,
        prepared: true,
        timeout: Duration::from_secs(3),
        max_staleness: Duration::from_secs(30),
        on_stale: OnStale::Deny,
        strict: false,
    }
}

fn driver(settings: Settings) -> Driver {
    let name = settings.schema.clone();
    Driver::start(Connector::new(settings, None, &name), Duration::ZERO).expect("it connects")
}

async fn backend(session: Session) -> Result<i32, QueryError> {
    let row = session.query_opt("select pg_backend_pid()", &[]).await?;
    Ok(row.expect("a row").try_get(0).map_err(StoreError::from)?)
}

#[test]
fn an_operation_runs_again_after_its_connection_was_lost() {
    let server = PostgresServer::shared();
    let settings = settings(server);
    let (name, driver) = (settings.schema.clone(), driver(settings));
    let first = driver.wait(driver.submit(Lane::Any, backend)).expect("it works");
    assert!(first > 0);

    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    let slow = driver.submit(Lane::Log, move |session| {
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
    let second = driver.wait(driver.submit(Lane::Any, backend)).expect("it works again");
    assert_ne!(first, second);
}
