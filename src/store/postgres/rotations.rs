//! Reads and writes the families of all refreshes that wait, each time by one statement.

use std::sync::Arc;

use crate::store::error::StoreError;
use crate::store::postgres::clock::{DatabaseClock, database_time};
use crate::store::postgres::error::QueryError;
use crate::store::postgres::gather::Gather;
use crate::store::postgres::lane::family_lane;
use crate::store::postgres::lookup::{FoundAt, find_all};
use crate::store::postgres::outbox::{Audit, EventRow};
use crate::store::postgres::rows;
use crate::store::postgres::session::Session;
use crate::tokens::family::Family;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// The condition stands on the row that changes, so that one of several rotations at the same time wins. Rows are
/// locked in the order of their ids, and a row that another transaction has locked is left out, so that two gateways
/// never wait for each other: see `attempts`.
///
/// The time of a rotation is that of this statement, by the clock of the database: a gateway may have been paused since
/// it read the family. It is at least the time of the decision.
const ROTATE: &str = concat!(
    "with locked as (
        select f.id, g.seen, g.generation, g.root, g.rotated_at, g.is_timed, g.last_used_at, g.idle_expiry, g.address,
            g.event_id, g.event, g.n
        from unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[],
                $8::text[], $9::bytea[], $10::text[], $11::boolean[])
            with ordinality as g (id, seen, generation, root, rotated_at, last_used_at, idle_expiry, address, event_id,
                event, is_timed, n)
            join families f on f.id = g.id
        where f.generation = g.seen and f.revoked_at is null
        order by f.id, g.n for update of f skip locked
    ), rotated as (
        update families f set generation = l.generation, root = l.root, last_used_at = l.last_used_at,
            idle_expiry = l.idle_expiry, address = l.address,
            rotated_at = case when l.is_timed then greatest(l.rotated_at, t.clock + t.set_back) else l.rotated_at end
        from locked l cross join ",
    database_time!(),
    " where f.id = l.id and f.generation = l.seen and f.revoked_at is null
        returning l.n, f.rotated_at, l.event_id, l.event
    ), recorded as (
        insert into audit (id, event) select r.event_id, r.event from rotated r where r.event is not null order by r.n
        on conflict (id) do nothing
    )
    select n, rotated_at from rotated"
);

/// The rotations that wait: those of one connection are read by one statement and written by another.
pub(super) struct Rotations {
    lanes: Vec<RotationLane>,
    audit: Arc<Audit>,
    clock: Arc<DatabaseClock>,
}

#[derive(Default)]
struct RotationLane {
    reads: Gather<TokenId, Result<Option<FoundAt>, StoreError>>,
    writes: Gather<Change, Option<UnixTime>>,
}

impl Rotations {
    pub(super) fn new(lanes: usize, audit: Arc<Audit>, clock: Arc<DatabaseClock>) -> Self {
        Rotations { lanes: (0..lanes.max(1)).map(|_| RotationLane::default()).collect(), audit, clock }
    }

    pub(super) async fn read(&self, session: &Session, id: TokenId) -> Result<Option<FoundAt>, QueryError> {
        Ok(self.lane(id)?.reads.join(id, 1, |ids| self.read_all(session, ids)).await??)
    }

    /// Reads again after a time that lacks a step of the clock.
    async fn read_all(
        &self,
        session: &Session,
        ids: Vec<TokenId>,
    ) -> Result<Vec<Result<Option<FoundAt>, StoreError>>, QueryError> {
        let found = find_all(session, &ids).await?;
        let reading = found.iter().find_map(|found| Some(found.as_ref().ok()?.as_ref()?.reading));
        let Some(set_back) = reading.and_then(|reading| self.clock.compare(&reading)) else { return Ok(found) };
        self.clock.write(session, set_back).await?;
        find_all(session, &ids).await
    }

    /// Returns the time of the rotation. `None` if the family has changed since it was read, or is locked.
    pub(super) async fn write(&self, session: &Session, change: Change) -> Result<Option<UnixTime>, QueryError> {
        let lane = self.lane(change.next.id)?;
        lane.writes.join(change, 1, |changes| self.write_all(session, changes)).await
    }

    fn lane(&self, id: TokenId) -> Result<&RotationLane, StoreError> {
        let lane = self.lanes.get(family_lane(id, self.lanes.len()));
        lane.ok_or_else(|| StoreError::new("the store has no connection for changes"))
    }

    /// Writes the columns that a rotation changes. Not `confirmed`, which may have risen since the family was read.
    /// Returns the time of each change. `None`: its family has changed since it was read, or is locked.
    async fn write_all(&self, session: &Session, changes: Vec<Change>) -> Result<Vec<Option<UnixTime>>, QueryError> {
        let mut columns = Columns::default();
        for change in &changes {
            columns.push(change)?;
        }
        let admitted = self.audit.admit(session, changes.into_iter().map(|change| Some(change.event))).await?;
        let Columns { ids, seen, generations, roots, rotated_at, is_timed, last_used_at, idle_expiry, addresses } =
            columns;
        let mut written = vec![None; ids.len()];
        let rows = session
            .query(
                ROTATE,
                &[
                    &ids,
                    &seen,
                    &generations,
                    &roots,
                    &rotated_at,
                    &last_used_at,
                    &idle_expiry,
                    &addresses,
                    &admitted.ids,
                    &admitted.events,
                    &is_timed,
                ],
            )
            .await?;
        for row in &rows {
            let n = usize::try_from(rows::read_counter(row, "n")?).unwrap_or_default();
            if let Some(place) = n.checked_sub(1).and_then(|index| written.get_mut(index)) {
                *place = Some(rows::read_time(row, "rotated_at")?);
            }
        }
        self.audit.report(&admitted, written.iter().map(Option::is_some));
        Ok(written)
    }
}

/// A family that gets a new refresh token: as it was read, and as it is written.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) seen: u64,
    pub(super) next: Family,
    /// It gets the time of the write: it was decided by the time of the database.
    pub(super) is_timed: bool,
    pub(super) event: EventRow,
}

/// The parameters of the statement, one item for each family.
#[derive(Default)]
struct Columns {
    ids: Vec<String>,
    seen: Vec<i64>,
    generations: Vec<i64>,
    roots: Vec<i32>,
    rotated_at: Vec<i64>,
    is_timed: Vec<bool>,
    last_used_at: Vec<i64>,
    idle_expiry: Vec<i64>,
    addresses: Vec<Option<String>>,
}

impl Columns {
    fn push(&mut self, Change { seen, next, is_timed, .. }: &Change) -> Result<(), StoreError> {
        self.ids.push(next.id.to_string());
        self.seen.push(rows::counter(*seen)?);
        self.generations.push(rows::counter(next.generation)?);
        self.roots.push(i32::from(next.root));
        self.rotated_at.push(rows::time(next.rotated_at));
        self.is_timed.push(*is_timed);
        self.last_used_at.push(rows::time(next.last_used_at));
        self.idle_expiry.push(rows::time(next.idle_expiry));
        self.addresses.push(next.address.map(|address| address.to_string()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::freshness::Freshness;

    #[test]
    fn rotations_of_one_connection_share_their_statements() {
        let freshness = Arc::new(Freshness::new(Duration::ZERO, false, false));
        let audit = Arc::new(Audit::new(0, Arc::default()));
        let rotations = Rotations::new(2, audit, Arc::new(DatabaseClock::new(freshness)));
        let lane = |last: u8| {
            let mut id = [0; 16];
            id[15] = last;
            rotations.lane(TokenId::from_bytes(id)).expect("each family has one")
        };
        assert!(std::ptr::eq(lane(0), lane(2)));
        assert!(!std::ptr::eq(lane(0), lane(1)));
    }
}
