//! Leases for work that only one gateway does at a time: sweeping, delivering audit events, polling for and verifying
//! security events, ordering certificates, and writing lost revocations back.
//!
//! A lease ends by the clock of the database. Each new holder gets another epoch, unless the one before has given it
//! up. The deletion of delivered events depends on the epoch: a gateway that was paused for longer than its lease
//! deletes none when it goes on. All other work may be done twice.

use std::time::Duration;

use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::rows;
use crate::store::postgres::session::Session;

/// Rounding of times in the database.
pub(super) const TOLERANCE: Duration = Duration::from_millis(10);

/// The leases of this folder. Callers of `StoreUpkeep::hold_lease` name theirs.
pub(super) const DELIVERY: &str = "delivery";
pub(super) const WRITE_BACK: &str = "write_back";

/// How long a lease lasts. A gateway that dies delays what it did for so long.
pub(super) const DURATION: Duration = Duration::from_secs(15);

/// Takes the lease if it is free, or renews it. Returns its epoch. One that ends later than any lease can is free: the
/// clock was set back since, and its holder may be gone.
const HOLD: &str = "insert into leases as l (name, holder, epoch, until)
    select $1, $2, 1, c.now + $3 from (select (extract(epoch from clock_timestamp()) * 1000)::bigint as now) c
    on conflict (name) do update set holder = excluded.holder, until = excluded.until,
        epoch = l.epoch + case when l.holder = excluded.holder then 0 else 1 end
    where l.holder = excluded.holder or l.until < excluded.until - $3 or l.until > excluded.until + $3
    returning l.epoch";

/// The epoch of the lease, if this gateway holds it. `None` if another one does.
pub(super) async fn hold(session: &Session, name: &str, holder: &str) -> Result<Option<i64>, QueryError> {
    let row = session.query_opt(HOLD, &[&name, &holder, &rows::millis(DURATION)]).await?;
    Ok(row.map(|row| rows::get(&row, "epoch")).transpose()?)
}

const RELEASE: &str = "delete from leases where name = $1 and holder = $2";

/// Lets another gateway take the lease at once.
pub(super) async fn release(session: &Session, name: &str, holder: &str) -> Result<(), QueryError> {
    session.execute(RELEASE, &[&name, &holder]).await?;
    Ok(())
}

/// See [`StoreUpkeep::hold_lease`](crate::store::StoreUpkeep::hold_lease).
pub(super) struct HoldLease {
    pub(super) name: String,
}

impl Operation for HoldLease {
    type Output = bool;

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<bool, QueryError> {
        Ok(hold(session, &self.name, &shared.replica).await?.is_some())
    }
}
