//! The operations on families.
//!
//! A decision is made from what was read, and written only if the family is still the same: the condition stands on the
//! row that changes. Otherwise the family is read again.

use std::sync::Mutex;
use std::time::Duration;

use tokio_postgres::Row;

use crate::store::api::{RevokeOutcome, RevokedBy};
use crate::store::endings::Revoker;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::postgres::append::Entry;
use crate::store::postgres::attempts::Attempts;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::lookup::{Found, find, found, mark_of};
use crate::store::postgres::maintenance;
use crate::store::postgres::operation::{Operation, Shared, lock};
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rows::{self, family_columns};
use crate::store::postgres::session::Session;
use crate::store::watermark::with_watermark;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::{Family, RevokeReason, RevokedAt};
use crate::types::ids::TokenId;
use crate::types::secret;

/// Maximum length of a list of families.
const MAX_LISTED: i64 = 1_000;

const OF_SUBJECT: &str = concat!(
    "select ",
    family_columns!(),
    ", ",
    mark_of!("$1"),
    " as mark from families f where f.subject = $1 order by f.created_at desc limit $2"
);

/// Inserts a family, unless a watermark voids it or its id is taken. It counts as used after all other live families of
/// the subject, even if the clock says otherwise: so all logins have one order for [`SURPLUS`].
const ISSUE: &str = concat!(
    "with found as (
        select ",
    mark_of!("$2"),
    " as mark, (
            select max(least(f.last_used_at, 9223372036854775806)) + 1 from families f
            where f.subject = $2 and f.revoked_at is null and f.key_hash is null and f.last_used_at >= $14
                and f.idle_expiry > $13 and f.absolute_expiry > $13
        ) as after_others
    ), inserted as (
        insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation, root,
            rotated_at, confirmed, created_at, last_used_at, idle, idle_expiry, absolute_expiry, revoked_at,
            revoked_reason, address, key_hash)
        select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
            case when $23::bytea is null then coalesce(found.after_others, $14) else $14 end, $15, $16, $17, $18, $19,
            $20, $23
        from found where coalesce(found.mark, -1) < $13
        on conflict (id) do nothing
        returning id
    ), recorded as (
        insert into audit (id, event) select e.id, e.event
        from inserted, unnest($21::bytea[], $22::text[]) as e (id, event) where e.event is not null
        on conflict (id) do nothing
    )
    select exists (select from inserted) as inserted, coalesce(found.mark, -1) >= $13 as void,
        (select o.salt = $8 from families o where o.id = $1) as repeated
    from found"
);

/// The live families of a subject beyond the limit, the most recently used first. Each login asks when its family is
/// committed, and before it is answered: the last one of several at the same time sees all of them. It may be that one
/// of the others, and not an old family, is the surplus.
const SURPLUS: &str = concat!(
    "select f.id from families f
    where f.subject = $1 and f.revoked_at is null and f.key_hash is null and f.idle_expiry > $2
        and f.absolute_expiry > $2
        and f.created_at > coalesce(",
    mark_of!("$1"),
    ", -1)
    order by f.last_used_at desc, f.created_at desc, f.id desc offset $3"
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

pub(super) struct Issue {
    family: Family,
    max_live: usize,
    context: EventContext,
    event: [u8; 16],
    /// If true, an earlier attempt has written the family, or may have before its connection was lost.
    pub(super) uncertain: Mutex<bool>,
}

impl Issue {
    pub(super) fn new(family: Family, max_live: usize, context: EventContext) -> Self {
        Issue { family, max_live, context, event: secret::random(), uncertain: Mutex::new(false) }
    }

    async fn insert(&self, shared: &Shared, session: &Session) -> Result<Row, QueryError> {
        let family = &self.family;
        let event = EventRow::new(self.event, &events::issued(family), &self.context);
        let admitted = shared.audit.admit(session, [Some(event)]).await?;
        let inserted = session
            .query_opt(
                ISSUE,
                &[
                    &family.id.to_string(),
                    &rows::text(&family.subject),
                    &rows::text(&family.scope),
                    &rows::to_json(&family.audience)?,
                    &rows::text(&family.client_id),
                    &rows::to_json(&family.claims)?,
                    &rows::text(&family.label),
                    &family.salt.to_vec(),
                    &rows::counter(family.generation)?,
                    &i32::from(family.root),
                    &rows::time(family.rotated_at),
                    &rows::counter(family.confirmed)?,
                    &rows::time(family.created_at),
                    &rows::time(family.last_used_at),
                    &family.idle.map(rows::millis),
                    &rows::time(family.idle_expiry),
                    &rows::time(family.absolute_expiry),
                    &family.revoked.map(|revoked| rows::time(revoked.at)),
                    &family.revoked.map(|revoked| revoked.reason.as_str()),
                    &family.address.map(|address| address.to_string()),
                    &admitted.ids,
                    &admitted.events,
                    &family.key_hash.map(|hash| hash.to_vec()),
                ],
            )
            .await?;
        let inserted = inserted.ok_or_else(|| StoreError::new("a login was not written"))?;
        shared.audit.report(&admitted, std::iter::once(rows::get(&inserted, "inserted")?));
        Ok(inserted)
    }

    /// Ends the families beyond the limit.
    async fn keep_limit(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        let (subject, now) = (rows::text(&self.family.subject), rows::time(self.family.created_at));
        let mut attempts = Attempts::default();
        loop {
            let beyond = session.query(SURPLUS, &[&subject, &now, &rows::limit(self.max_live.max(1))]).await?;
            let end = |row: &Row| Ok::<_, StoreError>(self.end(rows::token_id(rows::get(row, "id")?)?));
            let surplus: Vec<Entry> = beyond.iter().map(end).collect::<Result<_, _>>()?;
            if surplus.is_empty() || shared.log.append(session, surplus).await?.iter().all(Option::is_some) {
                return Ok(());
            }
            attempts.again("a family beyond the limit").await?;
        }
    }

    fn end(&self, surplus: TokenId) -> Entry {
        let reason = RevokeReason::Limit;
        let ended = Family { id: surplus, ..self.family.clone() };
        Entry {
            what: Revoked::Family(surplus),
            at: self.family.created_at,
            reason: Some(reason),
            by: None,
            generation: None,
            event: Some(EventRow::new(secret::random(), &events::ended(&ended, reason), &self.context)),
            is_lost: false,
        }
    }
}

impl Operation for Issue {
    type Output = Option<Family>;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Option<Family>, QueryError> {
        let inserted = self.insert(shared, session).await;
        let was_uncertain = *lock(&self.uncertain);
        // Also if it was written: the rest of this attempt may fail.
        if matches!(inserted, Ok(_) | Err(QueryError::Lost(_))) {
            *lock(&self.uncertain) = true;
        }
        let inserted = inserted?;
        if rows::get(&inserted, "void")? {
            return Ok(None);
        }
        // Only the lost attempt has the same random salt.
        let is_repeated = was_uncertain && rows::get::<Option<bool>>(&inserted, "repeated")?.unwrap_or_default();
        if !rows::get::<bool>(&inserted, "inserted")? && !is_repeated {
            return Err(StoreError::new(format!("there is already a family {}", self.family.id)).into());
        }
        if self.family.key_hash.is_none() {
            self.keep_limit(shared, session).await?;
        }
        Ok(Some(self.family.clone()))
    }
}

/// Ends a family: its row stops refreshes, the log of revocations stops its access tokens.
pub(super) fn end(
    family: &Family,
    revoked: RevokedAt,
    generation: Option<u64>,
    event: EventRow,
    context: &EventContext,
) -> Entry {
    let (what, reason) = (Revoked::Family(family.id), Some(revoked.reason));
    let by = Revoker::of(revoked.reason, context);
    Entry { what, at: revoked.at, reason, by, generation, event: Some(event), is_lost: false }
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
        let (ended, known) = (family.idle_expiry.min(family.absolute_expiry), shared.enforcement.longest_life);
        let is_after = |life: Duration| ended + life <= self.context.at;
        Ok(is_after(known) && is_after(maintenance::longest_ever(session, "longest_life", known).await?))
    }
}

impl Operation for RevokeFamily {
    type Output = RevokeOutcome;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<RevokeOutcome, QueryError> {
        let revoked = RevokedAt { at: self.context.at, reason: self.by.reason() };
        let mut attempts = Attempts::default();
        loop {
            let found = find(session, self.id).await?.filter(|found| self.by.can_revoke(&found.family));
            let Some(Found { family, .. }) = found else { return Ok(RevokeOutcome::NotFound) };
            if family.revoked.is_some() {
                shared.enforcement.enforce_ended(&family, self.context.at)?;
                session.wait_until_durable().await?;
                let was_this = *lock(&self.uncertain) && family.revoked == Some(revoked);
                return Ok(if was_this { RevokeOutcome::Revoked } else { RevokeOutcome::AlreadyEnded });
            }
            if self.is_over(&family, shared, session).await? {
                return Ok(RevokeOutcome::AlreadyEnded);
            }
            let event = EventRow::new(self.event, &events::ended(&family, revoked.reason), &self.context);
            let entry = end(&family, revoked, None, event, &self.context);
            let appended = shared.log.append(session, vec![entry]).await;
            if matches!(appended, Err(QueryError::Lost(_))) {
                *lock(&self.uncertain) = true;
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

    async fn run(&self, _: &Shared, session: &Session) -> Result<Option<Family>, QueryError> {
        let found = find(session, self.id).await?;
        Ok(found.map(|Found { family, mark }| with_watermark(family, mark)))
    }
}

fn as_listed(row: &Row) -> Result<Family, StoreError> {
    let Found { family, mark } = found(row)?;
    Ok(with_watermark(family, mark))
}
