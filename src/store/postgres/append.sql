-- Appends entries to the log, in the order given: one transaction for all calls that wait. With a mark, the entries are
-- those of one call, and are only written if the mark is new.
--
-- The parts lock rows in one order: a mark, families by id, subjects by name, clients, the watermark, and the counter
-- of the log last, so that it is held only while the commit is written. The counter makes the sequence gap-free, and
-- its order that of the commits. PostgreSQL runs a part when another one needs its rows, or at the end. So a part that
-- must come later reads a part that must come before.

-- 1. Locks the mark. `seen` is 0 if it is new.
with placed as (
    insert into marks as m (id, kind, value, until, tag, seen)
    select :mark_id, :mark_kind, :mark_value, :mark_until, :mark_tag, 0 where :mark_id is not null
    on conflict (id) do update set seen = m.seen + 1
    returning m.seen, m.value, m.tag

-- How long an entry matters.
), lives as (
    select max(value) filter (where name = 'longest_life') as access,
        max(value) filter (where name in ('longest_life', 'longest_family')) as family
    from meta

-- The entries. Reads `placed`, so that nothing is locked before the mark.
), given as (
    select g.n, g.kind, g.issuer, g.name, g.not_after, g.at, g.reason, g.generation, g.effect, g.tag, g.event_id,
        g.event, g.by, g.session, g.client, lives.family,
        least(9223372036854775807, greatest(g.at, g.not_after)::numeric
            + case when g.effect = 'token' then lives.family else lives.access end)::bigint as until
    from lives, unnest(:kinds::text[], :issuers::text[], :names::text[], :not_after::bigint[], :at::bigint[],
            :reasons::text[], :generations::bigint[], :effects::text[], :tags::bytea[], :event_ids::bytea[],
            :events::text[], :by::text[], :sessions::boolean[], :clients::text[])
        with ordinality as g (kind, issuer, name, not_after, at, reason, generation, effect, tag, event_id, event, by,
            session, client, n)
    where :mark_id is null or exists (select from placed p where p.seen = 0)

-- 2. Locks the families that end, by id. Leaves out one that was ended before, or that another transaction has locked.
), locked as (
    select f.id, g.n, g.at, g.reason from given g join families f on f.id = g.name
    where g.kind = 'family' and f.revoked_at is null and (g.generation is null or f.generation = g.generation)
    order by f.id, g.n for update of f skip locked
), ended as (
    update families f set revoked_at = l.at, revoked_reason = l.reason
    from locked l where f.id = l.id and f.revoked_at is null
    returning l.n, f.id

-- 3. Locks the subjects, by name, and raises their watermarks.
), marked as (
    insert into subjects as s (subject, not_after, needed_until)
    select g.name, max(g.not_after), greatest(max(g.until), (select max(f.absolute_expiry + 0) from families f
            where f.subject = g.name and f.revoked_at is null))
        from given g where g.effect = 'subject' group by g.name order by g.name
    on conflict (subject) do update set not_after = greatest(s.not_after, excluded.not_after),
        needed_until = greatest(s.needed_until, excluded.needed_until)
    returning 1

-- 4. Locks the clients, by id and subject, and raises their watermarks.
), marked_clients as (
    insert into clients as c (client_id, subject, not_after, needed_until)
    select g.client, g.name, max(g.not_after), greatest(max(g.until), (select max(f.absolute_expiry + 0)
            from families f where f.client_id = g.client collate "C" and f.client_id <> '' and f.revoked_at is null))
        from given g where g.effect = 'client' group by g.client, g.name order by g.client, g.name
    on conflict (client_id, subject) do update set not_after = greatest(c.not_after, excluded.not_after),
        needed_until = greatest(c.needed_until, excluded.needed_until)
    returning 1

-- 5. Locks and raises the watermark over everything.
), raised as (
    update meta set value = (select max(g.not_after) from given g where g.effect = 'everything')
    where name = 'watermark' and value < (select max(g.not_after) from given g where g.effect = 'everything')
    returning 1
), watermarks as (
    select (select count(*) from marked) + (select count(*) from marked_clients)
        + (select count(*) from raised) as raised

-- The entries that are written. A family has one only if this statement has ended it. One that the log has lost is
-- written unless its family lives.
), entries as (
    select g.n, g.kind, g.issuer, g.name, g.not_after, g.at, g.until, g.tag, g.event_id, g.event, g.reason, g.by,
        g.session, g.client, g.family, row_number() over (order by g.n) as place
    from given g where g.kind <> 'family' or g.n in (select n from ended)
        or g.effect = 'lost' and not exists (select from families f where f.id = g.name and f.revoked_at is null
            and f.id not in (select id from ended))

-- 6. Locks the counter. Its conditions are read in this order: `entries`, which needs 2, and `watermarks`, which needs
-- 3, 4 and 5.
), head as (
    update meta set value = value + (select count(*) from entries),
        tag = (select e.tag from entries e order by e.place desc limit 1)
    from watermarks
    where name = 'revocation_sequence' and exists (select from entries) and watermarks.raised >= 0
    returning value - (select count(*) from entries) as before

-- 7. Writes new rows, which no other transaction can lock.
), logged as (
    insert into revocations (sequence, kind, issuer, name, not_after, at, until, tag, session, client)
    select h.before + e.place, e.kind, e.issuer, e.name, e.not_after, e.at, e.until, e.tag, e.session, e.client
    from head h, entries e
), listed as (
    insert into endings (sequence, kind, issuer, name, not_after, at, reason, by, until, session, client)
    select h.before + e.place, e.kind, e.issuer, e.name, e.not_after, e.at, coalesce(e.reason, 'admin'), e.by,
        least(9223372036854775807, e.at::numeric + e.family)::bigint, e.session, e.client from head h, entries e
    on conflict (sequence) do nothing
), recorded as (
    insert into audit (id, event) select e.event_id, e.event from head, entries e
    where e.event is not null order by e.place
    on conflict (id) do nothing
)

-- A row for each entry that was written, and one for the mark.
select e.n, h.before + e.place as sequence, e.until, null::integer as seen, null::bytea as value, null::bytea as tag
from head h, entries e
union all select null, null, null, p.seen, p.value, p.tag from placed p
