//! The store at the start: opened, and its revocations loaded.

use std::sync::Arc;
use std::time::Duration;

use super::error::StartError;
use crate::auth::revocations::Revocations;
use crate::config::Config;
use crate::store::sqlite::{self, SqliteStore};
use crate::store::{LogOrder, Store};
use crate::telemetry::audit_log::Target;
use crate::tokens::family::revocation::Revocation;
use crate::types::clock::{Clock, UnixTime};

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
    let settings = sqlite::Settings {
        issuer: config.tokens.issuer.clone(),
        longest_life: max_token_life(config) + CLOCK_STEP,
        longest_family: config.tokens.lifetimes.absolute + CLOCK_STEP,
        audit: if config.audit.target == Target::Off { 0 } else { config.audit.outbox },
    };
    let enforce = Arc::new(move |revocation: &Revocation, order| match order {
        LogOrder::InOrder => revocations.enforce(revocation, clock.now()),
        LogOrder::Ahead => revocations.enforce_ahead(revocation, clock.now()),
    });
    let file = &config.store.sqlite;
    let store = SqliteStore::open_within(patience, file, settings, enforce);
    let store = store.map_err(|error| StartError::OpenStore { file: file.clone(), source: error.into() })?;
    Ok(Arc::new(store))
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
    now: UnixTime,
) -> Result<(), StartError> {
    let file = || config.store.sqlite.clone();
    let entries = store.revocations_since(0, now).await;
    let entries = entries.map_err(|error| StartError::ReadStore { file: file(), source: error.into() })?;
    for entry in &entries {
        revocations.enforce(entry, now);
    }
    revocations.remove_expired();
    tracing::info!(entries = entries.len(), "loaded the revocations");
    Ok(())
}
