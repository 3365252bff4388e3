//! The refresh of a family: read, decided here, and written if no other rotation and no revocation came between.

use std::sync::Mutex;

use crate::store::api::DecideRotation;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::postgres::connections::family_lane;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families::{Found, MAX_DECISIONS, changed_often, end, find_all};
use crate::store::postgres::gather::Gather;
use crate::store::postgres::operation::{Operation, Shared, lock};
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rows;
use crate::store::postgres::session::Session;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::rotation::Rotation;
use crate::types::ids::TokenId;
use crate::types::reject::Reason;
use crate::types::secret;

/// The condition stands on the row that changes, so that one of several rotations at the same time wins. Rows are locked
/// in the order of their ids, as everywhere, so that two gateways never wait for each other.
const ROTATE: &str = "with locked as (
        select f.id, g.seen, g.generation, g.root, g.rotated_at, g.last_used_at, g.idle_expiry, g.address, g.event_id,
            g.event, g.n
        from unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[],
                $8::text[], $9::bytea[], $10::text[])
            with ordinality as g (id, seen, generation, root, rotated_at, last_used_at, idle_expiry, address, event_id,
                event, n)
            join families f on f.id = g.id
        where f.generation = g.seen and f.revoked_at is null
        order by f.id, g.n for update of f
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
pub(super) struct Rotations(Vec<RotationLane>);

#[derive(Default)]
struct RotationLane {
    reads: Gather<TokenId, Result<Option<Found>, StoreError>>,
    writes: Gather<Change, bool>,
}

impl Rotations {
    pub(super) fn new(lanes: usize) -> Self {
        Rotations((0..lanes.max(1)).map(|_| RotationLane::default()).collect())
    }

    fn lane(&self, id: TokenId) -> Result<&RotationLane, StoreError> {
        let lane = self.0.get(family_lane(id, self.0.len()));
        lane.ok_or_else(|| StoreError::new("the store has no connection for changes"))
    }
}

/// A family whose refresh token is replaced: as it was read, and as it is written.
#[derive(Clone)]
struct Change {
    seen: u64,
    next: Family,
    event: EventRow,
}

pub(super) struct Rotate {
    presented: PresentedToken,
    decide: Mutex<DecideRotation>,
    context: EventContext,
    event: [u8; 16],
    /// What an earlier attempt tried to write before its connection was lost.
    uncertain: Mutex<Option<Rotation>>,
}

impl Rotate {
    pub(super) fn new(presented: PresentedToken, decide: DecideRotation, context: EventContext) -> Self {
        Rotate { presented, decide: Mutex::new(decide), context, event: secret::random(), uncertain: Mutex::new(None) }
    }

    fn decide(&self, found: Option<&Found>) -> Rotation {
        let family = found.map(|found| &found.family);
        let decided = lock(&self.decide)(family, found.and_then(|found| found.mark), &self.presented);
        let uncertain = lock(&self.uncertain);
        match (&decided, &*uncertain, family) {
            // The lost attempt has written this family. `confirmed` may have changed since.
            (Rotation::Replayed(child) | Rotation::Recovered(child), Some(Rotation::Rotated(written)), _)
                if *child == (Family { confirmed: child.confirmed, ..written.clone() }) =>
            {
                Rotation::Rotated(child.clone())
            }
            (Rotation::Rejected(Reason::GrantRevoked), Some(Rotation::Reused(written)), Some(family))
                if family.revoked == written.revoked =>
            {
                Rotation::Reused(family.clone())
            }
            _ => decided,
        }
    }

    /// Returns false if the family has changed since it was read.
    async fn write(
        &self,
        shared: &Shared,
        session: &Session,
        rotation: &Rotation,
        family: Option<&Family>,
    ) -> Result<bool, QueryError> {
        let event = EventRow::new(self.event, &events::rotation(rotation, family, &self.presented), &self.context);
        match (rotation, family) {
            (Rotation::Rotated(next), Some(before)) if next.generation != before.generation => {
                let change = Change { seen: before.generation, next: next.clone(), event };
                let lane = shared.rotations.lane(next.id)?;
                lane.writes.join(change, 1, |changes| write_rotated(shared, session, changes)).await
            }
            (Rotation::Reused(ended), Some(before)) if before.revoked.is_none() => {
                let revoked = ended
                    .revoked
                    .ok_or_else(|| StoreError::new("a reuse of a refresh token did not revoke its family"))?;
                let entry = end(before, revoked, Some(before.generation), event);
                Ok(shared.log.append(session, vec![entry]).await?.iter().any(Option::is_some))
            }
            _ => {
                if let Some(family) = family {
                    shared.enforcement.enforce_ended(family, self.context.at)?;
                }
                shared.audit.write(session, vec![event]).await?;
                Ok(true)
            }
        }
    }
}

impl Operation for Rotate {
    type Output = Rotation;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Rotation, QueryError> {
        for _ in 0..MAX_DECISIONS {
            let id = self.presented.token_id;
            let found = shared.rotations.lane(id)?.reads.join(id, 1, |ids| find_all(session, ids)).await??;
            let rotation = self.decide(found.as_ref());
            let written = self.write(shared, session, &rotation, found.as_ref().map(|found| &found.family)).await;
            if matches!(written, Err(QueryError::Lost(_))) {
                *lock(&self.uncertain) = Some(rotation.clone());
            }
            if written? {
                return Ok(rotation);
            }
        }
        Err(changed_often(self.presented.token_id))
    }
}

/// Writes the columns that a rotation changes. Not `confirmed`, which may have risen since the family was read. Returns
/// for each change if it was written: if not, its family has changed since it was read.
async fn write_rotated(shared: &Shared, session: &Session, changes: Vec<Change>) -> Result<Vec<bool>, QueryError> {
    let mut columns = Columns::default();
    for change in &changes {
        columns.push(change)?;
    }
    let admitted = shared.audit.admit(session, changes.into_iter().map(|change| Some(change.event))).await?;
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
    shared.audit.report(&admitted, written.iter().copied());
    Ok(written)
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
