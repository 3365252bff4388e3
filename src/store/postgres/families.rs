//! The operations on families.
//!
//! A decision is made from what was read, and written only if the family is still the same: the condition stands on the
//! row that changes. Otherwise the family is read again.

use std::time::Duration;

use parking_lot::Mutex;
use tokio_postgres::Row;

use crate::store::api::{RevokeOutcome, RevokedBy};
use crate::store::endings::Revoker;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::pool::OperationKind;
use crate::store::postgres::append::NewLogEntry;
use crate::store::postgres::attempts::Attempts;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::lookup::{MarkedFamily, find, found, mark_of};
use crate::store::postgres::maintenance;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rows::{self, family_columns};
use crate::store::postgres::session::Session;
use crate::store::watermark::with_watermark;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::{Family, RevokedAt};
use crate::types::ids::TokenId;
use crate::types::secret;

/// Maximum length of a list of families.
const MAX_LISTED: i64 = 1_000;

const OF_SUBJECT: &str = concat!(
    "select ",
    family_columns!(),
    ", ",
    mark_of!("$1", "f.client_id"),
    " as mark from families f where f.subject = $1 and f.key_hash is null order by f.created_at desc limit $2"
);

/// Only an unused token can be lost, so that this change need not survive a crash: it does not wait for the disk.
/// Returns what is left: families that another transaction has locked.
const CONFIRM: &str = "with due as (
        select f.id, g.generation from unnest($1::text[], $2::bigint[]) as g (id, generation)
            join families f on f.id = g.id
        where f.confirmed < g.generation and f.generation >= g.generation
    ), locked as (
        select f.id, d.generation from due d join families f on f.id = d.id
        where f.confirmed < d.generation
        order by f.id for update of f skip locked
    ), confirmed as (
        update families f set confirmed = l.generation from locked l
        where f.id = l.id and f.confirmed < l.generation
            and (select set_config('synchronous_commit', 'off', true)) is not null
        returning f.id
    )
    select d.id, d.generation from due d where d.id not in (select id from confirmed)";
/// Maximum number of families in one statement.
const MAX_CONFIRMED: usize = 512;

/// Ends a family: its row stops refreshes, the log of revocations stops its access tokens.
pub(super) fn end(
    family: &Family,
    revoked: RevokedAt,
    generation: Option<u64>,
    event: EventRow,
    context: &EventContext,
) -> NewLogEntry {
    let what = Revoked::Family(family.id);
    let reason = Some(revoked.reason);
    let by = Revoker::of(revoked.reason, context);
    NewLogEntry { what, at: revoked.at, reason, by, generation, event: Some(event), is_lost: false }
}

pub(super) struct RevokeFamily {
    id: TokenId,
    by: RevokedBy,
    context: EventContext,
    event: [u8; 16],
    /// If true, an earlier attempt may have revoked the family before its connection was lost.
    pub(super) uncertain: Mutex<bool>,
}

impl RevokeFamily {
    pub(super) fn new(id: TokenId, by: RevokedBy, context: EventContext) -> Self {
        RevokeFamily { id, by, context, event: secret::random(), uncertain: Mutex::new(false) }
    }
}

impl RevokeFamily {
    /// An access token that was issued just before the family expired is valid longer than the family. Another gateway
    /// may have been started with a longer lifetime since.
    async fn is_over(&self, family: &Family, shared: &Shared, session: &Session) -> Result<bool, QueryError> {
        let ended = family.idle_expiry.min(family.absolute_expiry);
        let known = shared.enforcement.longest_life;
        let is_after = |life: Duration| ended + life <= self.context.at;
        Ok(is_after(known) && is_after(maintenance::longest_ever(session, "longest_life", known).await?))
    }
}

impl Operation for RevokeFamily {
    type Output = RevokeOutcome;

    const KIND: OperationKind = OperationKind::Revoke;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<RevokeOutcome, QueryError> {
        let revoked = RevokedAt { at: self.context.at, reason: self.by.reason() };
        let mut attempts = Attempts::default();
        loop {
            let found = find(session, self.id).await?.filter(|found| self.by.can_revoke(&found.family));
            let Some(MarkedFamily { family, .. }) = found else { return Ok(RevokeOutcome::NotFound) };
            if family.revoked.is_some() {
                shared.enforcement.enforce_ended(&family, self.context.at)?;
                session.wait_until_durable().await?;
                let was_this = *self.uncertain.lock() && family.revoked == Some(revoked);
                return Ok(if was_this { RevokeOutcome::Revoked } else { RevokeOutcome::AlreadyEnded });
            }
            if self.is_over(&family, shared, session).await? {
                return Ok(RevokeOutcome::AlreadyEnded);
            }
            let event = events::ended(&family, revoked.reason, &self.context);
            let event = EventRow::new(self.event, &event, &self.context);
            let entry = end(&family, revoked, None, event, &self.context);
            let appended = shared.log.append(vec![entry]).await;
            if matches!(appended, Err(QueryError::Lost(_))) {
                *self.uncertain.lock() = true;
            }
            if appended?.iter().any(Option::is_some) {
                return Ok(RevokeOutcome::Revoked);
            }
            attempts.again(&format!("family {}", self.id)).await?;
        }
    }
}

pub(super) struct Confirm {
    pub(super) seen: Vec<(TokenId, u64)>,
}

impl Operation for Confirm {
    type Output = ();

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, _: &Shared, session: &Session) -> Result<(), QueryError> {
        // PostgreSQL cannot store a larger generation, so it does not exist.
        let known = |(id, generation): &(TokenId, u64)| Some((id.to_string(), rows::counter(*generation).ok()?));
        let mut seen: Vec<(String, i64)> = self.seen.iter().filter_map(known).collect();
        let mut attempts = Attempts::default();
        loop {
            let mut left = Vec::new();
            for seen in seen.chunks(MAX_CONFIRMED) {
                let (ids, generations): (Vec<String>, Vec<i64>) = seen.iter().cloned().unzip();
                for row in session.query(CONFIRM, &[&ids, &generations]).await? {
                    left.push((rows::get(&row, "id")?, rows::get(&row, "generation")?));
                }
            }
            let Some((id, _)) = left.first() else { return Ok(()) };
            attempts.again(&format!("family {id}")).await?;
            seen = left;
        }
    }
}

pub(super) struct OfSubject {
    pub(super) subject: String,
}

impl Operation for OfSubject {
    type Output = Vec<Family>;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Vec<Family>, QueryError> {
        let rows = session.query(OF_SUBJECT, &[&rows::text(&self.subject), &MAX_LISTED]).await?;
        Ok(rows.iter().map(as_listed).collect::<Result<_, _>>()?)
    }
}

pub(super) struct Show {
    pub(super) id: TokenId,
}

impl Operation for Show {
    type Output = Option<Family>;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Option<Family>, QueryError> {
        let found = find(session, self.id).await?;
        Ok(found.map(|MarkedFamily { family, mark }| with_watermark(family, mark)))
    }
}

fn as_listed(row: &Row) -> Result<Family, StoreError> {
    let MarkedFamily { family, mark } = found(row)?;
    Ok(with_watermark(family, mark))
}
