//! Reads and writes the families of all refreshes that wait, each time by one statement.

use std::sync::Arc;

use crate::store::error::StoreError;
use crate::store::postgres::connections::family_lane;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::gather::Gather;
use crate::store::postgres::lookup::{Found, find_all};
use crate::store::postgres::outbox::{Audit, EventRow};
use crate::store::postgres::rows;
use crate::store::postgres::session::Session;
use crate::tokens::family::Family;
use crate::types::ids::TokenId;

/// The condition stands on the row that changes, so that one of several rotations at the same time wins. Rows are
/// locked in the order of their ids, as everywhere, so that two gateways never wait for each other. A row that another
/// transaction has locked is left out: see `attempts`.
const ROTATE: &str = "with locked as (
        select f.id, g.seen, g.generation, g.root, g.rotated_at, g.last_used_at, g.idle_expiry, g.address, g.event_id,
            g.event, g.n
        from unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[],
                $8::text[], $9::bytea[], $10::text[])
            with ordinality as g (id, seen, generation, root, rotated_at, last_used_at, idle_expiry, address, event_id,
                event, n)
            join families f on f.id = g.id
        where f.generation = g.seen and f.revoked_at is null
        order by f.id, g.n for update of f skip locked
    ), rotated as (
        update families f set generation = l.generation, root = l.root, rotated_at = l.rotated_at,
            last_used_at = l.last_used_at, idle_expiry = l.idle_expiry, address = l.address
        from locked l where f.id = l.id and f.generation = l.seen and f.revoked_at is null
        returning l.n, l.event_id, l.event
    ), recorded as (
        insert into audit (id, event) select r.event_id, r.event from rotated r where r.event is not null order by r.n
        on conflict (id) do nothing
    )
    select n from rotated";

/// The rotations that wait: those of one connection are read by one statement and written by another.
pub(super) struct Rotations {
    lanes: Vec<RotationLane>,
    audit: Arc<Audit>,
}

#[derive(Default)]
struct RotationLane {
    reads: Gather<TokenId, Result<Option<Found>, StoreError>>,
    writes: Gather<Change, bool>,
}

impl Rotations {
    pub(super) fn new(lanes: usize, audit: Arc<Audit>) -> Self {
        Rotations { lanes: (0..lanes.max(1)).map(|_| RotationLane::default()).collect(), audit }
    }

    pub(super) async fn read(&self, session: &Session, id: TokenId) -> Result<Option<Found>, QueryError> {
        Ok(self.lane(id)?.reads.join(id, 1, |ids| find_all(session, ids)).await??)
    }

    /// Returns false if the family has changed since it was read, or is locked.
    pub(super) async fn write(&self, session: &Session, change: Change) -> Result<bool, QueryError> {
        let lane = self.lane(change.next.id)?;
        lane.writes.join(change, 1, |changes| self.write_all(session, changes)).await
    }

    fn lane(&self, id: TokenId) -> Result<&RotationLane, StoreError> {
        let lane = self.lanes.get(family_lane(id, self.lanes.len()));
        lane.ok_or_else(|| StoreError::new("the store has no connection for changes"))
    }

    /// Writes the columns that a rotation changes. Not `confirmed`, which may have risen since the family was read.
    /// Returns for each change if it was written: if not, its family has changed since it was read, or is locked.
    async fn write_all(&self, session: &Session, changes: Vec<Change>) -> Result<Vec<bool>, QueryError> {
        let mut columns = Columns::default();
        for change in &changes {
            columns.push(change)?;
        }
        let admitted = self.audit.admit(session, changes.into_iter().map(|change| Some(change.event))).await?;
        let Columns { ids, seen, generations, roots, rotated_at, last_used_at, idle_expiry, addresses } = columns;
        let mut written = vec![false; ids.len()];
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
                ],
            )
            .await?;
        for row in &rows {
            let n = usize::try_from(rows::read_counter(row, "n")?).unwrap_or_default();
            if let Some(place) = n.checked_sub(1).and_then(|index| written.get_mut(index)) {
                *place = true;
            }
        }
        self.audit.report(&admitted, written.iter().copied());
        Ok(written)
    }
}

/// A family that gets a new refresh token: as it was read, and as it is written.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) seen: u64,
    pub(super) next: Family,
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
    last_used_at: Vec<i64>,
    idle_expiry: Vec<i64>,
    addresses: Vec<Option<String>>,
}

impl Columns {
    fn push(&mut self, Change { seen, next, .. }: &Change) -> Result<(), StoreError> {
        self.ids.push(next.id.to_string());
        self.seen.push(rows::counter(*seen)?);
        self.generations.push(rows::counter(next.generation)?);
        self.roots.push(i32::from(next.root));
        self.rotated_at.push(rows::time(next.rotated_at));
        self.last_used_at.push(rows::time(next.last_used_at));
        self.idle_expiry.push(rows::time(next.idle_expiry));
        self.addresses.push(next.address.map(|address| address.to_string()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_of_one_connection_share_their_statements() {
        let rotations = Rotations::new(2, Arc::new(Audit::new(0, Arc::default())));
        let lane = |last: u8| {
            let mut id = [0; 16];
            id[15] = last;
            rotations.lane(TokenId::from_bytes(id)).expect("each family has one")
        };
        assert!(std::ptr::eq(lane(0), lane(2)));
        assert!(!std::ptr::eq(lane(0), lane(1)));
    }
}
