//! Writes again what the database has lost.
//!
//! One gateway at a time does it, by a lease. The others find in the log what it has written, and then write what only
//! they remember. Each page is a transaction of its own, and is followed by a pause as long as it took: revocations of
//! all gateways wait for the same counter, and go between.
//!
//! A gateway takes the lease when it finds that the log is another one. A gateway that starts waits until no gateway
//! has it, see `Follower`: so it knows what was lost before it accepts a token.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::memory::Known;
use super::state::{INTERVAL, MIN_INTERVAL, spread};
use crate::store::error::StoreError;
use crate::store::freshness::Freshness;
use crate::store::pool::OperationKind;
use crate::store::postgres::connections::Connections;
use crate::store::postgres::lane::Lane;
use crate::store::postgres::leases;
use crate::store::postgres::operation::Shared;
use crate::tokens::family::revocation::Revocation;
use crate::types::boot_time::BootTime;
use crate::types::secret;

/// From one look to the next if another gateway still has the lease.
const TURN_INTERVAL: Duration = Duration::from_secs(1);
/// A third of the duration of a lease.
const RENEWAL: Duration = Duration::from_secs(5);
/// Maximum pause after a page.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause after a failure.
const MAX_BACKOFF: Duration = Duration::from_secs(8);

/// The task. Runs on the thread of the store.
pub(super) struct WriteBack {
    connections: Connections,
    shared: Arc<Shared>,
    known: Known,
    freshness: Arc<Freshness>,
}

impl WriteBack {
    pub(super) fn new(connections: Connections, shared: Arc<Shared>, known: Known, freshness: Arc<Freshness>) -> Self {
        WriteBack { connections, shared, known, freshness }
    }

    pub(super) async fn run(self) {
        let mut backoff = INTERVAL;
        let mut last_error = String::new();
        loop {
            self.known.may_lack().await;
            let pause = match self.take_turn().await {
                Ok(true) => {
                    backoff = INTERVAL;
                    last_error.clear();
                    continue;
                }
                Ok(false) => TURN_INTERVAL,
                Err(error) => {
                    if error.message != last_error {
                        let count = self.known.lost.lock().len();
                        tracing::error!(%error, count, "cannot write lost revocations; trying again");
                        last_error = error.message;
                    }
                    backoff = (2 * backoff).min(MAX_BACKOFF);
                    backoff
                }
            };
            sleep(spread(pause, secret::random::<1>()[0])).await;
        }
    }

    /// Writes all that is lost. Returns false if another gateway has the lease.
    async fn take_turn(&self) -> Result<bool, StoreError> {
        let began = BootTime::now();
        if !self.hold().await? {
            return Ok(false);
        }
        let written = self.write_all(began).await;
        // Also after a failure: another gateway may succeed, and one that starts waits only for progress.
        let released = self.release().await;
        written?;
        released?;
        Ok(true)
    }

    async fn write_all(&self, began: BootTime) -> Result<(), StoreError> {
        let mut renewed = began;
        // Of what another gateway has written before, this one knows when it has read the log since.
        while !self.known.has_read_since(began) {
            sleep(MIN_INTERVAL).await;
            self.renew(&mut renewed).await?;
        }
        let mut is_any = false;
        loop {
            let page = self.known.lost.lock().next();
            if page.is_empty() {
                break;
            }
            is_any = true;
            let took = self.write(&page).await?;
            sleep(took.min(MAX_PAUSE)).await;
            self.renew(&mut renewed).await?;
        }
        if is_any {
            tracing::info!("the database has the lost revocations again");
        }
        Ok(())
    }

    /// Returns how long it took.
    async fn write(&self, page: &[Revocation]) -> Result<Duration, StoreError> {
        let sent = Instant::now();
        let shared = self.shared.clone();
        let entries: Arc<[Revocation]> = page.into();
        let appended = self.connections.run(Lane::Upkeep, OperationKind::WriteBack, |session| {
            let shared = shared.clone();
            let entries = entries.clone();
            async move { shared.log.append_lost(&session, &entries).await }
        });
        let appended = appended.await;
        let mut lost = self.known.lost.lock();
        let appended = match appended {
            Ok(appended) => appended,
            Err(error) => {
                lost.failed(page);
                return Err(error);
            }
        };
        let is_written: Vec<bool> = appended.iter().map(Option::is_some).collect();
        let took = sent.elapsed();
        let count = lost.written(page, &is_written, took);
        let counts = &self.freshness.counts;
        counts.written_back.fetch_add(count as u64, Ordering::Relaxed);
        counts.lost.store(lost.len() as u64, Ordering::Relaxed);
        match count {
            0 => {
                Err(StoreError::new("the sessions are locked by another transaction; look in pg_stat_activity for it"))
            }
            _ => Ok(took),
        }
    }

    /// Also a gateway that was paused for longer than its lease notices that another one writes.
    async fn renew(&self, renewed: &mut BootTime) -> Result<(), StoreError> {
        let now = BootTime::now();
        if now.since(*renewed) < RENEWAL {
            return Ok(());
        }
        *renewed = now;
        if self.hold().await? { Ok(()) } else { Err(StoreError::new("another gateway writes them now")) }
    }

    async fn hold(&self) -> Result<bool, StoreError> {
        let shared = self.shared.clone();
        let held = self.connections.run(Lane::Upkeep, OperationKind::Upkeep, |session| {
            let shared = shared.clone();
            async move { leases::hold(&session, leases::WRITE_BACK, &shared.replica).await }
        });
        Ok(held.await?.is_some())
    }

    async fn release(&self) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let released = self.connections.run(Lane::Upkeep, OperationKind::Upkeep, |session| {
            let shared = shared.clone();
            async move { leases::release(&session, leases::WRITE_BACK, &shared.replica).await }
        });
        released.await
    }
}
