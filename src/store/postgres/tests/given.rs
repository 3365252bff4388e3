//! A connection to the server that all tests share, and what operations share.

use std::sync::Arc;
use std::time::Duration;

use crate::store::api::Outbox;
use crate::store::freshness::Freshness;
use crate::store::options::StoreOptions;
use crate::store::postgres::connect::Connector;
use crate::store::postgres::connections::Connections;
use crate::store::postgres::driver::Driver;
use crate::store::postgres::enforcement::Enforcement;
use crate::store::postgres::operation::Shared;
use crate::store::postgres::settings::{OnStale, PostgresSettings, PostgresTarget};

#[allow(dead_code, unreachable_pub, clippy::expect_used, clippy::unwrap_used)]
#[path = "../../../../tests/it/support/postgres.rs"]
mod server;

pub(in crate::store::postgres) use server::PostgresServer;

pub(in crate::store::postgres) fn settings(server: &PostgresServer) -> PostgresSettings {
    PostgresSettings {
        target: PostgresTarget::parse(&server.url()).expect("valid"),
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

pub(in crate::store::postgres) fn driver(settings: PostgresSettings) -> Driver {
    let name = settings.schema.clone();
    Driver::start(Connector::new(settings, None, &name), Duration::ZERO).expect("it connects")
}

pub(in crate::store::postgres) fn shared(connections: Connections, outbox: Arc<Outbox>) -> Shared {
    let longest_life = Duration::from_secs(60);
    let options = StoreOptions {
        issuer: "https://gateway.example".into(),
        longest_life,
        longest_family: longest_life,
        timeout: longest_life,
        audit: 10,
    };
    let enforcement = Arc::new(Enforcement { hook: Arc::new(|_, _| {}), longest_life });
    let freshness = Arc::new(Freshness::new(longest_life, false, false));
    Shared::new(&options, "a".into(), connections, enforcement, freshness, outbox)
}
