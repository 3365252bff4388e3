//! The frame of all operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::api::Outbox;
use crate::store::freshness::Freshness;
use crate::store::late::{LOOK_INTERVAL, Pauses, doubt_after_pause};
use crate::store::options::StoreOptions;
use crate::store::pool::OperationKind;
use crate::store::postgres::append::Log;
use crate::store::postgres::clock::DatabaseClock;
use crate::store::postgres::connections::Connections;
use crate::store::postgres::enforcement::Enforcement;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::outbox::Audit;
use crate::store::postgres::rotations::Rotations;
use crate::store::postgres::session::Session;
use crate::store::provider_login::SweepTimes;
use crate::types::clock::every;

/// One call of the store. It may run again after a lost connection, when its changes may have been committed already:
/// the same changes must not be made twice.
///
/// A success that rests on what was only read must call [`Session::wait_until_durable`] first.
pub(super) trait Operation: Send + Sync + 'static {
    type Output: Send + 'static;

    const KIND: OperationKind;

    fn run(&self, shared: &Shared, session: &Session) -> impl Future<Output = Result<Self::Output, QueryError>> + Send;
}

pub(super) struct Shared {
    /// The `iss` of the gateway's own access tokens.
    pub(super) issuer: String,
    /// The name of this gateway.
    pub(super) replica: String,
    /// The epoch of the lease for deliveries, when this gateway last held it; 0: never.
    pub(super) delivery_epoch: AtomicI64,
    /// The store is being closed.
    pub(super) has_left: AtomicBool,
    pub(super) enforcement: Arc<Enforcement>,
    pub(super) audit: Arc<Audit>,
    pub(super) log: Log,
    pub(super) rotations: Rotations,
    pub(super) sweeps: SweepTimes,
    pub(super) clock: Arc<DatabaseClock>,
    /// Of the thread of the store.
    pub(super) pauses: Mutex<Pauses>,
    /// `timeouts.store`
    pub(super) timeout: Duration,
    /// Held while the signing keys change, so that calls of this gateway do not overtake each other.
    pub(super) keys: tokio::sync::Mutex<()>,
}

impl Shared {
    pub(super) fn new(
        options: &StoreOptions,
        replica: String,
        connections: Connections,
        enforcement: Arc<Enforcement>,
        freshness: Arc<Freshness>,
        outbox: Arc<Outbox>,
    ) -> Self {
        let audit = Arc::new(Audit::new(options.audit, outbox));
        let lanes = connections.writers();
        let clock = Arc::new(DatabaseClock::new(freshness));
        Shared {
            issuer: options.issuer.clone(),
            replica,
            delivery_epoch: AtomicI64::new(0),
            has_left: AtomicBool::new(false),
            log: Log::new(connections, options.issuer.clone(), enforcement.clone(), audit.clone()),
            enforcement,
            rotations: Rotations::new(lanes, audit.clone(), clock.clone()),
            audit,
            clock,
            sweeps: SweepTimes::default(),
            pauses: Mutex::default(),
            timeout: options.timeout,
            keys: tokio::sync::Mutex::default(),
        }
    }

    /// Returns true if this process or its machine was paused a moment ago, or if the database was set forward: what
    /// comes now may be older than it looks.
    pub(super) fn was_paused(&self) -> bool {
        let doubt = doubt_after_pause(self.timeout);
        // After a pause of the machine, the time of the database has jumped. A step of the machine's clock is none.
        self.pauses.lock().ended_within(doubt, None) || self.clock.jumped_within(doubt)
    }

    /// Runs on the thread of the store until it is closed.
    pub(super) async fn look_for_pauses(self: Arc<Self>) {
        let mut due = every(LOOK_INTERVAL);
        loop {
            due.tick().await;
            self.was_paused();
        }
    }
}
