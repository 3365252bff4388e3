//! The store at the start: opened, and its revocations loaded.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use super::error::StartError;
use super::stored;
use crate::auth::revocations::Revocations;
use crate::config::{Config, Database};
use crate::store::postgres::{self, PostgresStore};
use crate::store::sqlite::SqliteStore;
use crate::store::{LogOrder, Store, StoreOptions};
use crate::telemetry::audit_log::AuditLogTarget;
use crate::tokens::family::revocation::Revocation;
use crate::types::clock::Clock;
use crate::types::ids::to_base62;
use crate::types::secret;

/// How far the clock may be set back while a token lives: an hour, as by a wrong time zone, and a little more. The
/// token then lives that much longer than its revocation expects, and must stay revoked.
const CLOCK_STEP: Duration = Duration::from_mins(65);

/// `patience` is how long to wait for another gateway to close the store.
pub(super) fn open(
    config: &Config,
    revocations: Arc<Revocations>,
    clock: Arc<dyn Clock>,
    patience: Duration,
) -> Result<Arc<dyn Store>, StartError> {
    let options = StoreOptions {
        issuer: config.tokens.issuer.clone(),
        longest_life: max_token_life(config) + CLOCK_STEP,
        longest_family: config.tokens.lifetimes.absolute + CLOCK_STEP,
        timeout: config.store.timeout,
        audit: if config.audit.target == AuditLogTarget::Off { 0 } else { config.audit.outbox },
    };
    let now = clock.now();
    let enforce = Arc::new(move |revocation: &Revocation, order| match order {
        LogOrder::InOrder => revocations.enforce(revocation),
        LogOrder::Ahead => revocations.enforce_ahead(revocation),
    });
    let failed = |error| stored::open_error(&config.store, error);
    match &config.store.database {
        Database::Sqlite(file) => {
            let opened = SqliteStore::open_within(patience, file, options, enforce);
            Ok(Arc::new(opened.map_err(failed)?))
        }
        Database::Postgres(of_database) => {
            let tls = stored::encryption(of_database)?;
            let database = postgres::Database { settings: (**of_database).clone(), tls, replica: replica_name() };
            let opened = PostgresStore::open(database, options, enforce, config.store.start_patience, now);
            Ok(Arc::new(opened.map_err(failed)?))
        }
    }
}

/// The name of this gateway among those that share the store: the name of the machine, and a part that no other process
/// has. A restarted gateway is another one.
fn replica_name() -> String {
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let machine: String = machine.trim().chars().filter(is_plain).take(40).collect();
    format!("{machine}-{}", to_base62(&secret::random::<4>(), 6))
}

/// The maximum life of an accepted token, clock skew included.
pub(super) fn max_token_life(config: &Config) -> Duration {
    let own = config.tokens.lifetimes.access + config.tokens.clock_skew;
    let others = config.issuers.iter().map(|issuer| issuer.policy.max_lifetime + issuer.policy.clock_skew);
    others.fold(own, Duration::max)
}

/// Loads every revocation. It runs before the first connection, because a gateway with only some of them accepts
/// revoked tokens.
pub(super) async fn load_revocations(
    config: &Config,
    store: &dyn Store,
    revocations: &Revocations,
) -> Result<(), StartError> {
    if let Some(freshness) = store.freshness() {
        // The follower reads them.
        freshness.loaded().await;
        tracing::info!(entries = revocations.count(), "loaded the revocations");
        return Ok(());
    }
    loop {
        let entries = store.revocations_since(revocations.sequence()).await;
        let entries = entries.map_err(|error| stored::read_error(&config.store, error))?;
        if entries.is_empty() {
            break;
        }
        for entry in &entries {
            revocations.enforce(entry);
        }
    }
    tracing::info!(entries = revocations.count(), "loaded the revocations");
    Ok(())
}
