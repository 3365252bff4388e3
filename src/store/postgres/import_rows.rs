//! Writes pages of records, each with one statement.

use std::sync::LazyLock;

use crate::store::copy::{ClientMark, Record, SubjectMark};
use crate::store::endings::{Ending, Revoker};
use crate::store::mark::StoredMark;
use crate::store::postgres::acme;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::named::{NamedStatement, NamedValues};
use crate::store::postgres::origins::Columns;
use crate::store::postgres::rows::{GrantColumns, RevokedColumns, counter, millis, text, time, to_json};
use crate::store::postgres::session::Session;
use crate::store::provider_login::StoredLogin;
use crate::tokens::audit_event::Recorded;
use crate::tokens::family::Family;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::signing::StoredKey;
use crate::types::clock::UnixTime;
use crate::types::secret;

static FAMILIES: LazyLock<NamedStatement> = LazyLock::new(|| {
    NamedStatement::new(
        "insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation,
        root, rotated_at, confirmed, created_at, last_used_at, idle, idle_expiry, absolute_expiry, revoked_at,
        revoked_reason, address, key_hash, key_rate, origin_issuer, origin_subject, origin_session, origin_dated,
        superseded_at, late_refreshes)
    select g.id, g.subject, g.scope, g.audience, g.client_id, g.claims, g.label, g.salt, g.generation, g.root,
        g.rotated_at, g.confirmed, g.created_at, g.last_used_at, g.idle, g.idle_expiry, g.absolute_expiry,
        g.revoked_at, g.revoked_reason, g.address, g.key_hash, g.key_rate, g.origin_issuer, g.origin_subject,
        g.origin_session, g.origin_dated, g.superseded_at, g.late_refreshes
    from unnest(:id::text[], :subject::text[], :scope::text[], :audience::text[], :client_id::text[],
            :claims::text[], :label::text[], :salt::bytea[], :generation::bigint[], :root::int4[],
            :rotated_at::bigint[], :confirmed::bigint[], :created_at::bigint[], :last_used_at::bigint[],
            :idle::bigint[], :idle_expiry::bigint[], :absolute_expiry::bigint[], :revoked_at::bigint[],
            :revoked_reason::text[], :address::text[], :key_hash::bytea[], :key_rate::text[],
            :origin_issuer::text[], :origin_subject::text[], :origin_session::text[], :origin_dated::bigint[],
            :superseded_at::bigint[], :late_refreshes::int4[])
        as g (id, subject, scope, audience, client_id, claims, label, salt, generation, root, rotated_at, confirmed,
            created_at, last_used_at, idle, idle_expiry, absolute_expiry, revoked_at, revoked_reason, address,
            key_hash, key_rate, origin_issuer, origin_subject, origin_session, origin_dated, superseded_at,
            late_refreshes)",
    )
});
const REVOCATIONS: &str = "insert into revocations (sequence, kind, issuer, name, not_after, at, until, tag, session,
        client)
    select g.sequence, g.kind, g.issuer, g.name, g.not_after, g.at, g.until, g.tag, g.session, g.client
    from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[],
            $9::boolean[], $10::text[])
        as g (sequence, kind, issuer, name, not_after, at, until, tag, session, client)";
const SUBJECTS: &str = "insert into subjects (subject, not_after, needed_until)
    select g.subject, g.not_after, g.needed_until
    from unnest($1::text[], $2::bigint[], $3::bigint[]) as g (subject, not_after, needed_until)";
const CLIENTS: &str = "insert into clients (client_id, subject, not_after, needed_until)
    select g.client_id, g.subject, g.not_after, g.needed_until
    from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as g (client_id, subject, not_after, needed_until)";
/// In the order of creation, which the column `number` keeps.
const SIGNING_KEYS: &str = "insert into signing_keys
        (kid, algorithm, root, sealed, created_at, activated_at, retired_at, revoked_at, token_life)
    select g.kid, g.algorithm, g.root, g.sealed, g.created_at, g.activated_at, g.retired_at, g.revoked_at, g.token_life
    from unnest($1::text[], $2::text[], $3::int4[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[])
        with ordinality as g (kid, algorithm, root, sealed, created_at, activated_at, retired_at, revoked_at,
            token_life, n)
    order by g.n";
const EVENTS: &str = "insert into audit (sequence, id, event) overriding system value
    select g.sequence, g.id, g.event from unnest($1::bigint[], $2::bytea[], $3::text[]) as g (sequence, id, event)";

const ENDINGS: &str = "insert into endings (sequence, kind, issuer, name, not_after, at, reason, by, until, session,
        client)
    select g.sequence, g.kind, g.issuer, g.name, g.not_after, g.at, g.reason, g.by, g.until, g.session, g.client
    from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[],
            $9::bigint[], $10::boolean[], $11::text[])
        as g (sequence, kind, issuer, name, not_after, at, reason, by, until, session, client)";

const MARKS: &str = "insert into marks (id, kind, value, until, tag, seen)
    select g.id, g.kind, g.value, g.until, g.tag, 0
    from unnest($1::bytea[], $2::text[], $3::bytea[], $4::bigint[], $5::bytea[]) as g (id, kind, value, until, tag)";

const LOGINS: &str = "insert into provider_logins
        (id, subject, began_at, provider, root, sealed, version, due, claimed, held_until, check_at, retry_at, ended_at)
    select g.id, g.subject, g.began_at, g.provider, g.root, g.sealed, g.version, g.due, g.claimed, 0, g.check_at, 0,
        g.ended_at
    from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::int4[], $6::bytea[], $7::bigint[], $8::bigint[],
            $9::boolean[], $10::bigint[], $11::bigint[])
        as g (id, subject, began_at, provider, root, sealed, version, due, claimed, check_at, ended_at)";

/// All records are of the same part.
pub(super) async fn write(session: &Session, records: &[Record]) -> Result<(), QueryError> {
    let mut families = Vec::new();
    let mut revocations = Vec::new();
    let mut subjects = Vec::new();
    let mut clients = Vec::new();
    let mut keys = Vec::new();
    let mut events = Vec::new();
    let mut endings = Vec::new();
    let mut marks = Vec::new();
    let mut logins = Vec::new();
    for record in records {
        match record {
            Record::Family(family) => families.push(&**family),
            Record::Revocation(revocation) => revocations.push(revocation),
            Record::Subject(subject) => subjects.push(subject),
            Record::Client(client) => clients.push(client),
            Record::SigningKey(key) => keys.push(key),
            Record::Event(event) => events.push(event),
            Record::Ending(ending) => endings.push(ending),
            Record::Mark(mark) => marks.push(mark),
            Record::ProviderLogin(login) => logins.push(&**login),
            // There are few.
            Record::Acme(entry) => drop(acme::write(session, entry).await?),
        }
    }
    if !families.is_empty() {
        write_families(session, &families).await?;
    }
    if !revocations.is_empty() {
        write_revocations(session, &revocations).await?;
    }
    if !subjects.is_empty() {
        write_subjects(session, &subjects).await?;
    }
    if !clients.is_empty() {
        write_clients(session, &clients).await?;
    }
    if !keys.is_empty() {
        write_keys(session, &keys).await?;
    }
    if !events.is_empty() {
        write_events(session, &events).await?;
    }
    if !endings.is_empty() {
        write_endings(session, &endings).await?;
    }
    if !marks.is_empty() {
        write_marks(session, &marks).await?;
    }
    if !logins.is_empty() {
        write_logins(session, &logins).await?;
    }
    Ok(())
}

/// One column of these rows.
fn column<R, T>(rows: &[&R], value: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(|row| value(row)).collect()
}

/// What was revoked, column by column.
#[derive(Default)]
struct WhatColumns {
    kinds: Vec<&'static str>,
    issuers: Vec<Option<String>>,
    names: Vec<Option<String>>,
    not_after: Vec<Option<i64>>,
    sessions: Vec<bool>,
    clients: Vec<Option<String>>,
}

impl WhatColumns {
    fn of<'r>(entries: impl Iterator<Item = &'r Revoked>) -> Self {
        let mut columns = WhatColumns::default();
        for RevokedColumns { kind, issuer, name, not_after, is_session, client } in entries.map(RevokedColumns::of) {
            columns.kinds.push(kind);
            columns.issuers.push(issuer);
            columns.names.push(name);
            columns.not_after.push(not_after);
            columns.sessions.push(is_session);
            columns.clients.push(client);
        }
        columns
    }
}

async fn write_families(session: &Session, families: &[&Family]) -> Result<(), QueryError> {
    let texts = |value: fn(&Family) -> &str| column(families, |family| text(value(family)));
    let times = |value: fn(&Family) -> UnixTime| column(families, |family| time(value(family)));
    let audience: Vec<String> = families.iter().map(|family| to_json(&family.audience)).collect::<Result<_, _>>()?;
    let claims: Vec<String> = families.iter().map(|family| to_json(&family.claims)).collect::<Result<_, _>>()?;
    let generation: Vec<i64> = families.iter().map(|family| counter(family.generation)).collect::<Result<_, _>>()?;
    let confirmed: Vec<i64> = families.iter().map(|family| counter(family.confirmed)).collect::<Result<_, _>>()?;
    let values = NamedValues::default()
        .with("id", column(families, |family| family.id.to_string()))
        .with("subject", texts(|family| &family.subject))
        .with("scope", texts(|family| &family.scope))
        .with("audience", audience)
        .with("client_id", texts(|family| &family.client_id))
        .with("claims", claims)
        .with("label", texts(|family| &family.label))
        .with("salt", column(families, |family| family.salt.to_vec()))
        .with("generation", generation)
        .with("root", column(families, |family| i32::from(family.root)))
        .with("rotated_at", times(|family| family.rotated_at))
        .with("confirmed", confirmed)
        .with("created_at", times(|family| family.created_at))
        .with("last_used_at", times(|family| family.last_used_at))
        .with("idle", column(families, |family| family.idle.map(millis)))
        .with("idle_expiry", times(|family| family.idle_expiry))
        .with("absolute_expiry", times(|family| family.absolute_expiry))
        .with("revoked_at", column(families, |family| family.revoked.map(|revoked| time(revoked.at))))
        .with("revoked_reason", column(families, |family| family.revoked.map(|revoked| revoked.reason.as_str())))
        .with("address", column(families, |family| family.address.map(|address| address.to_string())))
        .with("key_hash", column(families, |family| family.key_hash.map(|hash| hash.to_vec())))
        .with("key_rate", column(families, |family| family.key_rate.map(|rate| rate.to_string())))
        .with("origin_issuer", column(families, |family| Columns::of(family.origin.as_ref()).issuer))
        .with("origin_subject", column(families, |family| Columns::of(family.origin.as_ref()).subject))
        .with("origin_session", column(families, |family| Columns::of(family.origin.as_ref()).session))
        .with("origin_dated", column(families, |family| Columns::of(family.origin.as_ref()).dated))
        .with("superseded_at", column(families, |family| GrantColumns::of(family.grant).superseded_at))
        .with("late_refreshes", column(families, |family| GrantColumns::of(family.grant).late_refreshes));
    session.query_named(&FAMILIES, &values).await?;
    Ok(())
}

async fn write_revocations(session: &Session, entries: &[&Revocation]) -> Result<(), QueryError> {
    let sequence: Vec<i64> = entries.iter().map(|entry| counter(entry.sequence)).collect::<Result<_, _>>()?;
    let what = WhatColumns::of(entries.iter().map(|entry| &entry.what));
    session
        .execute(
            REVOCATIONS,
            &[
                &sequence,
                &what.kinds,
                &what.issuers,
                &what.names,
                &what.not_after,
                &column(entries, |entry| time(entry.at)),
                &column(entries, |entry| time(entry.until)),
                &column(entries, |_| secret::random::<16>().to_vec()),
                &what.sessions,
                &what.clients,
            ],
        )
        .await?;
    Ok(())
}

async fn write_subjects(session: &Session, subjects: &[&SubjectMark]) -> Result<(), QueryError> {
    let names = column(subjects, |mark| text(&mark.subject));
    let not_after = column(subjects, |mark| time(mark.not_after));
    let needed_until = column(subjects, |mark| time(mark.needed_until));
    session.execute(SUBJECTS, &[&names, &not_after, &needed_until]).await?;
    Ok(())
}

async fn write_clients(session: &Session, clients: &[&ClientMark]) -> Result<(), QueryError> {
    let ids = column(clients, |mark| text(&mark.client_id));
    let subjects = column(clients, |mark| text(&mark.subject));
    let not_after = column(clients, |mark| time(mark.not_after));
    let needed_until = column(clients, |mark| time(mark.needed_until));
    session.execute(CLIENTS, &[&ids, &subjects, &not_after, &needed_until]).await?;
    Ok(())
}

async fn write_keys(session: &Session, keys: &[&StoredKey]) -> Result<(), QueryError> {
    let times = |value: fn(&StoredKey) -> Option<UnixTime>| column(keys, |key| value(key).map(time));
    session
        .execute(
            SIGNING_KEYS,
            &[
                &column(keys, |key| key.kid.clone()),
                &column(keys, |key| key.algorithm.clone()),
                &column(keys, |key| i32::from(key.root)),
                &column(keys, |key| key.sealed.clone()),
                &column(keys, |key| time(key.created_at)),
                &times(|key| key.activated_at),
                &times(|key| key.retired_at),
                &times(|key| key.revoked_at),
                &column(keys, |key| millis(key.token_life)),
            ],
        )
        .await?;
    Ok(())
}

async fn write_events(session: &Session, events: &[&Recorded]) -> Result<(), QueryError> {
    let sequence: Vec<i64> = events.iter().map(|event| counter(event.sequence)).collect::<Result<_, _>>()?;
    let ids = column(events, |_| secret::random::<16>().to_vec());
    session.execute(EVENTS, &[&sequence, &ids, &column(events, |event| event.event.clone())]).await?;
    Ok(())
}

async fn write_endings(session: &Session, entries: &[&Ending]) -> Result<(), QueryError> {
    let sequence: Vec<i64> = entries.iter().map(|entry| counter(entry.sequence)).collect::<Result<_, _>>()?;
    let what = WhatColumns::of(entries.iter().map(|entry| &entry.what));
    session
        .execute(
            ENDINGS,
            &[
                &sequence,
                &what.kinds,
                &what.issuers,
                &what.names,
                &what.not_after,
                &column(entries, |entry| time(entry.at)),
                &column(entries, |entry| entry.reason.as_str()),
                &column(entries, |entry| entry.by.as_ref().map(Revoker::to_text).as_deref().map(text)),
                &column(entries, |entry| time(entry.until)),
                &what.sessions,
                &what.clients,
            ],
        )
        .await?;
    Ok(())
}

async fn write_marks(session: &Session, marks: &[&StoredMark]) -> Result<(), QueryError> {
    session
        .execute(
            MARKS,
            &[
                &column(marks, |mark| mark.id.to_vec()),
                &column(marks, |mark| text(&mark.kind)),
                &column(marks, |mark| mark.value.to_vec()),
                &column(marks, |mark| time(mark.until)),
                &column(marks, |_| secret::random::<16>().to_vec()),
            ],
        )
        .await?;
    Ok(())
}

async fn write_logins(session: &Session, logins: &[&StoredLogin]) -> Result<(), QueryError> {
    let version: Vec<i64> = logins.iter().map(|stored| counter(stored.login.version)).collect::<Result<_, _>>()?;
    session
        .execute(
            LOGINS,
            &[
                &column(logins, |stored| stored.id.to_string()),
                &column(logins, |stored| text(&stored.subject)),
                &column(logins, |stored| time(stored.began_at)),
                &column(logins, |stored| text(&stored.login.provider)),
                &column(logins, |stored| i32::from(stored.login.root)),
                &column(logins, |stored| stored.login.sealed.clone()),
                &version,
                &column(logins, |stored| time(stored.login.due)),
                &column(logins, |stored| stored.login.claimed),
                &column(logins, |stored| time(stored.check_at)),
                &column(logins, |stored| stored.ended_at.map(time)),
            ],
        )
        .await?;
    Ok(())
}
