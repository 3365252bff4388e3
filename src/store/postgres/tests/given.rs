//! A connection to the server that all tests share.

use std::time::Duration;

use crate::store::postgres::connect::Connector;
use crate::store::postgres::driver::Driver;
use crate::store::postgres::settings::{OnStale, Settings, Target};

#[allow(dead_code, unreachable_pub, clippy::expect_used, clippy::unwrap_used)]
#[path = "../../../../tests/it/support/postgres.rs"]
mod server;

pub(in crate::store::postgres) use server::PostgresServer;

pub(in crate::store::postgres) fn settings(server: &PostgresServer) -> Settings {
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

pub(in crate::store::postgres) fn driver(settings: Settings) -> Driver {
    let name = settings.schema.clone();
    Driver::start(Connector::new(settings, None, &name), Duration::ZERO).expect("it connects")
}
