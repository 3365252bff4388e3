//! Grants of which a spent refresh token has come back: the late refresh is counted, and the next grant of the user to
//! the same client ends them.

use std::sync::LazyLock;

use tokio_postgres::Row;

use crate::store::error::StoreError;
use crate::store::events;
use crate::store::postgres::append::NewLogEntry;
use crate::store::postgres::attempts::Attempts;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families::end;
use crate::store::postgres::lookup::{MarkedFamily, found, mark_of};
use crate::store::postgres::named::{NamedStatement, NamedValues};
use crate::store::postgres::operation::Shared;
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rows::{self, GrantColumns, family_columns};
use crate::store::postgres::session::Session;
use crate::store::watermark::with_watermark;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::{Family, RevokeReason, RevokedAt};
use crate::types::secret;

/// The condition stands on the row that changes, so that each of several late refreshes at the same time is counted.
static COUNT: LazyLock<NamedStatement> = LazyLock::new(|| {
    NamedStatement::new(
        "with locked as (
            select f.id from families f
            where f.id = :id and f.generation = :generation and f.revoked_at is null
                and f.late_refreshes = :seen_count and f.superseded_at is not distinct from :seen_at::bigint
            for update of f skip locked
        ), counted as (
            update families f set superseded_at = :superseded_at, late_refreshes = :late_refreshes
            from locked l where f.id = l.id and f.generation = :generation and f.revoked_at is null
                and f.late_refreshes = :seen_count and f.superseded_at is not distinct from :seen_at::bigint
            returning f.id
        ), recorded as (
            insert into audit (id, event) select e.id, e.event
            from counted, unnest(:event_ids::bytea[], :events::text[]) as e (id, event) where e.event is not null
            on conflict (id) do nothing
        )
        select exists (select from counted) as counted",
    )
});

const SUPERSEDED: &str = concat!(
    "select ",
    family_columns!(),
    ", ",
    mark_of!("$1", "$2"),
    " as mark from families f
    where f.subject = $1 and f.client_id = $2 and f.revoked_at is null and f.superseded_at is not null"
);

/// Counts a late refresh. Returns false if the family has changed since it was read, which was as `before`, or is
/// locked.
pub(super) async fn count_late_refresh(
    shared: &Shared,
    session: &Session,
    before: &Family,
    after: &Family,
    event: EventRow,
) -> Result<bool, QueryError> {
    let admitted = shared.audit.admit(session, [Some(event)]).await?;
    let seen = GrantColumns::of(before.grant);
    let next = GrantColumns::of(after.grant);
    let values = NamedValues::default()
        .with("id", before.id.to_string())
        .with("generation", rows::counter(before.generation)?)
        .with("seen_count", seen.late_refreshes)
        .with("seen_at", seen.superseded_at)
        .with("superseded_at", next.superseded_at)
        .with("late_refreshes", next.late_refreshes)
        .with("event_ids", admitted.ids.clone())
        .with("events", admitted.events.clone());
    let counted = session.query_named_opt(&COUNT, &values).await?;
    let is_counted = counted.map(|row| rows::get(&row, "counted")).transpose()?.unwrap_or_default();
    shared.audit.report(&admitted, std::iter::once(is_counted));
    Ok(is_counted)
}

/// Ends the grants that this new one supersedes. It is committed, and its caller does not know it yet.
pub(super) async fn end_superseded(
    shared: &Shared,
    session: &Session,
    new: &Family,
    context: &EventContext,
) -> Result<(), QueryError> {
    let context = context.clone().by_grant(new.id);
    let mut attempts = Attempts::default();
    loop {
        let found = session.query(SUPERSEDED, &[&rows::text(&new.subject), &rows::text(&new.client_id)]).await?;
        let mut entries = Vec::new();
        for row in &found {
            entries.extend(ending(row, new, &context)?);
        }
        if entries.is_empty() || shared.log.append(entries).await?.iter().all(Option::is_some) {
            return Ok(());
        }
        attempts.again("a superseded grant").await?;
    }
}

fn ending(row: &Row, new: &Family, context: &EventContext) -> Result<Option<NewLogEntry>, StoreError> {
    let MarkedFamily { family, mark } = found(row)?;
    let old = with_watermark(family, mark);
    // The new one is dated by the consent.
    let now = new.created_at.max(context.at);
    if !old.is_superseded_by(new) || !old.is_live(now) {
        return Ok(None);
    }
    let revoked = RevokedAt { at: now, reason: RevokeReason::Reuse };
    let event = EventRow::new(secret::random(), &events::ended(&old, revoked.reason, context), context);
    Ok(Some(end(&old, revoked, None, event, context)))
}
