//! Deleting old rows, and the settings that are remembered.

use std::time::Duration;

use crate::store::error::StoreError;
use crate::store::expired::Expired;
use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::rows;
use crate::store::postgres::session::{Param, Session};
use crate::store::provider_login::TELL_TIME;
use crate::types::clock::UnixTime;

/// Rows are kept to the last millisecond at which they matter. A family is kept a little longer than it lives, so that
/// an access token that was issued at its end can still be revoked.
///
/// A gateway that has not read the log for as long as entries are kept reads all of it again. A watermark is kept while
/// a family needs it that was written at the same time as the watermark. Rows that another transaction has locked are
/// left to the next sweep, so that two gateways that sweep at the same time delete each row once.
///
/// A login goes after a day of attempts: the provider could not be told. One that no gateway has tried since `$5` goes
/// a day after its end was noticed: no `[[provider]]` has its name any more. One that no gateway has looked at is only
/// noticed, so that the next one has a day to tell the provider.
///
/// The rows are chosen in a part of their own, which runs once: a plan may run a subquery again for each row.
const SWEEP: &str = "with old_families as (
        select f.id from families f
        where f.absolute_expiry < $1 - (select m.value from meta m where m.name = 'longest_life')
        order by f.absolute_expiry limit $2 for update skip locked
    ), families_gone as (
        delete from families f using old_families o where f.id = o.id returning 1
    ), old_revocations as (
        select r.sequence from revocations r
        where r.until < $1
        order by r.until limit $2 for update skip locked
    ), revocations_gone as (
        delete from revocations r using old_revocations o where r.sequence = o.sequence returning 1
    ), old_subjects as (
        select s.subject, (select max(f.absolute_expiry + 0) from families f
            where f.subject = s.subject and f.created_at <= s.not_after and f.revoked_at is null
                and f.absolute_expiry >= $1) as needed_until
        from subjects s where s.needed_until < $1 order by s.needed_until limit $2 for update skip locked
    ), subjects_kept as (
        update subjects s set needed_until = o.needed_until from old_subjects o
        where s.subject = o.subject and o.needed_until is not null
    ), subjects_gone as (
        delete from subjects s using old_subjects o where s.subject = o.subject and o.needed_until is null
        returning 1
    ), old_clients as (
        select c.client_id, c.subject, (select max(f.absolute_expiry + 0) from families f
            where f.client_id = c.client_id collate \"C\" and f.client_id <> '' and c.subject in ('', f.subject)
                and f.created_at <= c.not_after and f.revoked_at is null and f.absolute_expiry >= $1) as needed_until
        from clients c where c.needed_until < $1 order by c.needed_until limit $2 for update skip locked
    ), clients_kept as (
        update clients c set needed_until = o.needed_until from old_clients o
        where c.client_id = o.client_id and c.subject = o.subject and o.needed_until is not null
    ), clients_gone as (
        delete from clients c using old_clients o
        where c.client_id = o.client_id and c.subject = o.subject and o.needed_until is null
        returning 1
    ), old_endings as (
        select e.sequence from endings e
        where e.sequence in (select o.sequence from endings o order by o.sequence limit $2) and e.until < $1
        for update skip locked
    ), endings_gone as (
        delete from endings e using old_endings o where e.sequence = o.sequence returning 1
    ), old_marks as (
        select m.id from marks m where m.until < $1 order by m.until limit $2 for update skip locked
    ), marks_gone as (
        delete from marks m using old_marks o where m.id = o.id returning 1
    ), unnoticed as (
        select l.id from provider_logins l left join families f on f.id = l.id
        where l.check_at < $3 and l.ended_at is null
            and (f.id is null or f.revoked_at is not null or f.idle_expiry < $3)
        order by l.check_at limit $2 for update of l skip locked
    ), noticed as (
        update provider_logins l set check_at = $1, ended_at = $1, changes = l.changes + 1
        from unnoticed u where l.id = u.id
    ), old_logins as (
        select l.id from provider_logins l
        where l.ended_at < $3 and (l.retry_at > l.ended_at + $4 or l.retry_at < $5)
        order by l.ended_at limit $2 for update skip locked
    ), logins_gone as (
        delete from provider_logins l using old_logins o where l.id = o.id returning 1
    )
    select (select count(*) from families_gone) + (select count(*) from revocations_gone)
        + (select count(*) from subjects_gone) + (select count(*) from clients_gone)
        + (select count(*) from endings_gone) + (select count(*) from marks_gone) + (select count(*) from logins_gone) as deleted";

pub(super) struct Sweep {
    pub(super) now: UnixTime,
    pub(super) limit: usize,
}

impl Operation for Sweep {
    type Output = usize;

    const KIND: OperationKind = OperationKind::Sweep;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<usize, QueryError> {
        let now = rows::time(self.now);
        let a_day_ago = rows::time(self.now - TELL_TIME);
        let untried = rows::time(shared.sweeps.untried_since(self.now));
        let params: [&dyn Param; 5] = [&now, &rows::limit(self.limit), &a_day_ago, &rows::millis(TELL_TIME), &untried];
        let row = session.query_opt(SWEEP, &params).await?;
        let row = row.ok_or_else(|| StoreError::new("the sweep reported nothing"))?;
        Ok(usize::try_from(rows::read_counter(&row, "deleted")?).unwrap_or(usize::MAX))
    }
}

/// What [`SWEEP`] would delete: at most `$2` rows of each table, and when the first of them ended. Of `endings`, it
/// looks at none if the first has not ended. Logins that no gateway has tried are not counted.
const EXPIRED: &str = "with life as (
        select m.value as life from meta m where m.name = 'longest_life'
    ), found as (
        select count(*) as rows, min(f.ended) as oldest from (
            select f.absolute_expiry + l.life as ended from life l, families f
            where f.absolute_expiry < $1 - (select life from life) order by f.absolute_expiry limit $2
        ) f
        union all select count(*), min(r.until) from (
            select r.until from revocations r where r.until < $1 order by r.until limit $2
        ) r
        union all select count(*), min(s.needed_until) from (
            select s.needed_until from subjects s where s.needed_until < $1 order by s.needed_until limit $2
        ) s
        union all select count(*), min(c.needed_until) from (
            select c.needed_until from clients c where c.needed_until < $1 order by c.needed_until limit $2
        ) c
        union all select count(*), min(e.until) from (
            select e.until from endings e
            where (select o.until < $1 from endings o order by o.sequence limit 1) order by e.sequence limit $2
        ) e where e.until < $1
        union all select count(*), min(m.until) from (
            select m.until from marks m where m.until < $1 order by m.until limit $2
        ) m
        union all select count(*), min(l.ended_at) + $4 from (
            select l.ended_at from provider_logins l
            where l.ended_at < $3 and l.retry_at > l.ended_at + $4 order by l.ended_at limit $2
        ) l
    )
    select sum(f.rows)::bigint as rows, min(f.oldest) as oldest from found f";

pub(super) struct FindExpired {
    pub(super) now: UnixTime,
    pub(super) limit: usize,
}

impl Operation for FindExpired {
    type Output = Expired;

    const KIND: OperationKind = OperationKind::Sweep;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Expired, QueryError> {
        let now = rows::time(self.now);
        let limit = rows::limit(self.limit);
        let told = rows::time(self.now - TELL_TIME);
        let row = session.query_opt(EXPIRED, &[&now, &limit, &told, &rows::millis(TELL_TIME)]).await?;
        let row = row.ok_or_else(|| StoreError::new("the count of expired rows reported nothing"))?;
        Ok(Expired { rows: rows::read_counter(&row, "rows")?, oldest: rows::read_time_or_null(&row, "oldest")? })
    }
}

/// Stores a configured lifetime if it is a new maximum, and returns the maximum.
const LONGEST_EVER: &str = "with raised as (
        update meta set value = $2 where name = $1 and value < $2 returning value
    )
    select greatest(m.value, $2) as longest from meta m where m.name = $1";

pub(super) async fn longest_ever(
    session: &Session,
    name: &'static str,
    configured: Duration,
) -> Result<Duration, QueryError> {
    let row = session.query_opt(LONGEST_EVER, &[&name, &rows::millis(configured)]).await?;
    let row = row.ok_or_else(|| StoreError::new(format!("the table meta lacks the row {name}; restore a backup")))?;
    Ok(rows::read_millis(&row, "longest")?)
}

/// Stores the configured lifetime if it is a new maximum, and returns the maximum. Revocations are then kept for it.
pub(super) async fn raise_longest_life(session: &Session, configured: Duration) -> Result<Duration, QueryError> {
    let known = longest_ever(session, "longest_life", Duration::ZERO).await?;
    if configured <= known {
        return Ok(known);
    }
    // Before it is stored, so that a start that is interrupted does it again.
    keep_revocations_for(session, configured).await?;
    let longest = longest_ever(session, "longest_life", configured).await?;
    // Those that other gateways have written meanwhile.
    keep_revocations_for(session, longest).await?;
    Ok(longest)
}

/// One page: a statement must end within seconds.
const KEEP: &str = "with page as (
        select r.sequence, r.until, least(greatest(r.at, r.not_after), 9223372036854775807 - $2) + $2 as needed
        from revocations r where r.sequence > $1 order by r.sequence limit $3
    ), kept as (
        update revocations r set until = p.needed from page p where r.sequence = p.sequence and p.until < p.needed
    )
    select max(p.sequence) as last from page p";
const KEEP_PAGE: usize = 10_000;

/// Extends the revocations that were written while the longest accepted token lived shorter: one that was too long then
/// may be accepted now.
pub(super) async fn keep_revocations_for(session: &Session, longest_life: Duration) -> Result<(), QueryError> {
    let mut after = 0;
    loop {
        let page = session.query_opt(KEEP, &[&after, &rows::millis(longest_life), &rows::limit(KEEP_PAGE)]).await?;
        match page.map(|row| rows::get::<Option<i64>>(&row, "last")).transpose()?.flatten() {
            Some(last) => after = last,
            None => return Ok(()),
        }
    }
}
