//! The gateways that use the database: each has a row, which it renews.
//!
//! The row tells the others what this gateway has applied, so that a strict revocation knows for which gateways it
//! waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use crate::store::api::{Outbox, StoreFuture};
use crate::store::error::StoreError;
use crate::store::freshness::Freshness;
use crate::store::pool::OperationKind;
use crate::store::postgres::connections::Connections;
use crate::store::postgres::driver::Driver;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::lane::Lane;
use crate::store::postgres::leases;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::rows;
use crate::store::postgres::sequences;
use crate::store::postgres::session::Session;
use crate::types::boot_time::BootTime;

/// From one heartbeat to the next.
const INTERVAL: Duration = Duration::from_secs(2);
/// A gateway counts as live for this many intervals.
const LIVE: u32 = 3;

/// `$1` this gateway, `$2` what it has applied, `$3` its version, `$4` after how long a silent gateway is forgotten,
/// `$5` for how long it counts as live. All by the clock of the database. After an outage, two gateways may take each
/// other for silent: neither waits for the row that the other one has locked. After the clock was set back, some were
/// seen in the future: they count as seen now, so that one that is gone is forgotten as soon as any other.
const HEARTBEAT: &str = "with clock as (
        select (extract(epoch from clock_timestamp()) * 1000)::bigint as now
    ), beat as (
        insert into replicas as r (id, applied, seen_at, version) select $1, $2, c.now, $3 from clock c
        on conflict (id) do update set applied = excluded.applied, seen_at = excluded.seen_at,
            version = excluded.version
        returning r.xmax = 0 as is_new
    ), silent as (
        select r.id from replicas r, clock c where r.id <> $1 and r.seen_at < c.now - $4 for update of r skip locked
    ), ahead as (
        select r.id from replicas r, clock c where r.id <> $1 and r.seen_at > c.now for update of r skip locked
    ), corrected as (
        update replicas r set seen_at = c.now from ahead a, clock c where r.id = a.id
    ), gone as (
        delete from replicas r using silent s where r.id = s.id
    )
    select b.is_new, (select count(*) from replicas r, clock c where r.id <> $1 and r.seen_at >= c.now - $5) + 1 as live
    from beat b";

const LEAVE: &str = "with released as (delete from leases where holder = $1)
    delete from replicas where id = $1";

/// The gateways that may still accept what the entry `$1` (null: the newest one) revokes: they have not applied it, and
/// they have not been silent for so long (`$2`) that they reject everything.
const BEHIND: &str = "select h.sequence, (select count(*) from replicas r where r.applied < h.sequence
            and r.seen_at + $2 >= (extract(epoch from clock_timestamp()) * 1000)::bigint) as behind
    from (select coalesce($1, m.value) as sequence from meta m where m.name = 'revocation_sequence') h";

/// How often a strict revocation looks whether all gateways have applied it.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The task that renews the row. Runs on the thread of the store.
pub(super) struct Heartbeat {
    connections: Connections,
    shared: Arc<Shared>,
    freshness: Arc<Freshness>,
    outbox: Arc<Outbox>,
    /// The connection over which the sequences were compared with their tables.
    compared: Arc<AtomicU64>,
}

impl Heartbeat {
    pub(super) fn new(
        connections: Connections,
        shared: Arc<Shared>,
        freshness: Arc<Freshness>,
        outbox: Arc<Outbox>,
    ) -> Self {
        Heartbeat { connections, shared, freshness, outbox, compared: Arc::default() }
    }

    pub(super) async fn run(self) {
        let moved = self.freshness.moved();
        let mut last_error = String::new();
        loop {
            if self.shared.has_left.load(Ordering::Acquire) {
                return;
            }
            match self.beat().await {
                Ok(()) => {
                    if !std::mem::take(&mut last_error).is_empty() {
                        tracing::info!("the other gateways know again that this one lives");
                    }
                }
                Err(error) if error.message != last_error => {
                    tracing::error!(%error, "cannot tell the other gateways that this one lives");
                    last_error = error.message;
                }
                Err(_) => {}
            }
            // Events of other gateways may wait, and the one that delivered them may be gone.
            self.outbox.written.notify_one();
            self.pause(&moved).await;
        }
    }

    /// With strict revocations, another gateway may wait for this one to have applied an entry.
    async fn pause(&self, moved: &Notify) {
        tokio::select! {
            () = sleep(INTERVAL.min(self.freshness.max_staleness() / 4)) => {}
            () = moved.notified(), if self.freshness.is_strict() => {}
        }
    }

    async fn beat(&self) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let freshness = self.freshness.clone();
        let compared = self.compared.clone();
        let beat = move |session: Session| {
            let shared = shared.clone();
            let freshness = freshness.clone();
            let compared = compared.clone();
            async move {
                // A new connection may lead to another server, such as a logically replicated copy.
                if compared.load(Ordering::Relaxed) != session.number() {
                    match sequences::advance(&session).await {
                        Err(QueryError::Rejected(error)) => tracing::error!(%error, "changes of sessions fail"),
                        advanced => advanced?,
                    }
                    compared.store(session.number(), Ordering::Relaxed);
                }
                // Both before it is sent.
                let polled = freshness.polled_at();
                let sent = BootTime::now();
                let applied = freshness.counts.applied.load(Ordering::Relaxed);
                let row = session
                    .query_opt(
                        HEARTBEAT,
                        &[
                            &shared.replica.as_str(),
                            &rows::counter(applied)?,
                            &env!("CARGO_PKG_VERSION"),
                            &rows::millis(shared.enforcement.longest_life),
                            &rows::millis(INTERVAL * LIVE),
                        ],
                    )
                    .await?;
                let row = row.ok_or_else(|| StoreError::new("the heartbeat reported nothing"))?;
                let is_new: bool = rows::get(&row, "is_new")?;
                let live: i64 = rows::get(&row, "live")?;
                freshness.counts.live.store(live.unsigned_abs(), Ordering::Relaxed);
                freshness.acknowledged(sent, polled, is_new);
                Ok(())
            }
        };
        self.connections.run(Lane::Upkeep, OperationKind::Upkeep, beat).await
    }
}

/// Removes this gateway from the list, so that no other waits for it.
pub(super) struct Leave;

impl Operation for Leave {
    type Output = ();

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        session.execute(LEAVE, &[&shared.replica.as_str()]).await?;
        Ok(())
    }
}

/// Waits until each gateway has applied what `sequence` names (0: all that is in the log), or rejects all tokens since
/// it was cut off for too long. Does not wait for `None`.
pub(super) fn when_applied<T: Send + 'static>(
    driver: &Driver,
    max_staleness: Duration,
    revoked: StoreFuture<T>,
    sequence: fn(&T) -> Option<u64>,
) -> StoreFuture<T> {
    let connections = driver.connections();
    let (caller, result) = oneshot::channel();
    driver.spawn(async move {
        let outcome = async {
            let outcome = revoked.await?;
            if let Some(sequence) = sequence(&outcome) {
                until_applied(&connections, sequence, max_staleness).await?;
            }
            Ok(outcome)
        };
        // The caller may have stopped waiting.
        let _ = caller.send(outcome.await);
    });
    Box::pin(async { result.await.unwrap_or_else(|_| Err(StoreError::new("the store was closed"))) })
}

/// Waits until each gateway has applied the entry `sequence` (0: the newest one), or rejects all tokens.
async fn until_applied(connections: &Connections, sequence: u64, max_staleness: Duration) -> Result<(), StoreError> {
    // 1 % more, because the clock of a machine and that of the database do not run at exactly the same rate.
    let silence = rows::millis(max_staleness + max_staleness / 100 + leases::TOLERANCE);
    let mut newest = i64::try_from(sequence).ok().filter(|sequence| *sequence > 0);
    loop {
        let known = newest;
        let count = move |session: Session| async move {
            let row = session.query_opt(BEHIND, &[&known, &silence]).await?;
            let row = row.ok_or_else(|| StoreError::new("the table meta lacks a row; restore a backup"))?;
            Ok((rows::get::<i64>(&row, "sequence")?, rows::get::<i64>(&row, "behind")?))
        };
        match connections.run(Lane::Upkeep, OperationKind::Upkeep, count).await? {
            (_, 0) => return Ok(()),
            (sequence, _) => newest = Some(sequence),
        }
        sleep(CHECK_INTERVAL).await;
    }
}
