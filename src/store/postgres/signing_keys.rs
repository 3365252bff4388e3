//! The signing keys: few rows, always read and changed together.
//!
//! A change is decided from the keys that were read, and written only if no other gateway has changed a key since. The
//! decision is then made again, and finds the key of the other gateway.

use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_postgres::Row;

use crate::store::api::{DecideKeys, KeysChanged};
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::pool::OperationKind;
use crate::store::postgres::append::announce;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::named::{NamedStatement, NamedValues};
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rows::{self, get, read_time, read_time_or_null};
use crate::store::postgres::session::Session;
use crate::tokens::audit_event::EventContext;
use crate::tokens::signing::StoredKey;
use crate::types::secret;

/// Newest first, also for two keys of the same millisecond. The number of changes is read in the same statement, so
/// that it fits the keys; its row is there without any key, too.
const ALL: &str = "select m.value as changes, k.kid, k.algorithm, k.root, k.sealed, k.created_at, k.activated_at,
        k.retired_at, k.revoked_at, k.token_life
    from meta m left join signing_keys k on true
    where m.name = 'signing_keys' order by k.created_at desc, k.number desc";

static CHANGE: LazyLock<NamedStatement> = LazyLock::new(|| {
    NamedStatement::new(
        "with changed as (
        update meta set value = value + 1 where name = 'signing_keys' and value = :changes returning value
    ), deleted as (
        delete from signing_keys where kid = any(:deleted) and exists (select from changed)
    ), written as (
        insert into signing_keys as k (kid, algorithm, root, sealed, created_at, activated_at, retired_at,
            revoked_at, token_life)
        select g.kid, g.algorithm, g.root, g.sealed, g.created_at, g.activated_at, g.retired_at, g.revoked_at,
            g.token_life
        from changed, unnest(:kids::text[], :algorithms::text[], :roots::int4[], :sealed::bytea[],
                :created_at::bigint[], :activated_at::bigint[], :retired_at::bigint[], :revoked_at::bigint[],
                :token_lives::bigint[])
            with ordinality as g (kid, algorithm, root, sealed, created_at, activated_at, retired_at, revoked_at,
                token_life, n)
        order by g.n
        on conflict (kid) do update set root = excluded.root, sealed = excluded.sealed,
            activated_at = excluded.activated_at, retired_at = excluded.retired_at,
            revoked_at = excluded.revoked_at, token_life = excluded.token_life
    ), recorded as (
        insert into audit (id, event) select e.id, e.event
        from changed, unnest(:event_ids::bytea[], :events::text[]) with ordinality as e (id, event, n)
        where e.event is not null order by e.n
        on conflict (id) do nothing
    )
    select value from changed",
    )
});

/// How often a change is decided again because another gateway has changed a key meanwhile.
const MAX_DECISIONS: usize = 8;

pub(super) struct ChangeSigningKeys {
    decide: Mutex<DecideKeys>,
    context: EventContext,
}

impl ChangeSigningKeys {
    pub(super) fn new(decide: DecideKeys, context: EventContext) -> Self {
        ChangeSigningKeys { decide: Mutex::new(decide), context }
    }

    /// Returns false if another gateway was faster.
    async fn write(
        &self,
        shared: &Shared,
        session: &Session,
        changes: i64,
        changed: &KeysChanged,
    ) -> Result<bool, QueryError> {
        let KeysChanged { before, after } = changed;
        let written: Vec<&StoredKey> = after.iter().filter(|key| !before.contains(key)).collect();
        let deleted = before.iter().filter(|key| !after.iter().any(|kept| kept.kid == key.kid));
        let deleted: Vec<String> = deleted.map(|key| key.kid.clone()).collect();
        if written.is_empty() && deleted.is_empty() {
            return Ok(true);
        }
        let recorded = events::keys_changed(changed);
        let rows = recorded.iter().map(|event| Some(EventRow::new(secret::random(), event, &self.context)));
        let admitted = shared.audit.admit(session, rows.collect::<Vec<_>>()).await?;
        let time = |time: fn(&StoredKey) -> Option<crate::types::clock::UnixTime>| {
            written.iter().map(|key| time(key).map(rows::time)).collect::<Vec<_>>()
        };
        let values = NamedValues::default()
            .with("changes", changes)
            .with("deleted", deleted)
            .with("kids", written.iter().map(|key| key.kid.clone()).collect::<Vec<_>>())
            .with("algorithms", written.iter().map(|key| key.algorithm.clone()).collect::<Vec<_>>())
            .with("roots", written.iter().map(|key| i32::from(key.root)).collect::<Vec<_>>())
            .with("sealed", written.iter().map(|key| key.sealed.clone()).collect::<Vec<_>>())
            .with("created_at", written.iter().map(|key| rows::time(key.created_at)).collect::<Vec<_>>())
            .with("activated_at", time(|key| key.activated_at))
            .with("retired_at", time(|key| key.retired_at))
            .with("revoked_at", time(|key| key.revoked_at))
            .with("token_lives", written.iter().map(|key| rows::millis(key.token_life)).collect::<Vec<_>>())
            .with("event_ids", admitted.ids.clone())
            .with("events", admitted.events.clone());
        let won = session.query_named_opt(&CHANGE, &values).await?;
        shared.audit.report(&admitted, std::iter::repeat(won.is_some()));
        Ok(won.is_some())
    }
}

impl Operation for ChangeSigningKeys {
    type Output = KeysChanged;

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<KeysChanged, QueryError> {
        let _turn = shared.keys.lock().await;
        for _ in 0..MAX_DECISIONS {
            let (changes, before) = read_all(session).await?;
            let after = self.decide.lock()(before.clone());
            let changed = KeysChanged { before, after };
            if self.write(shared, session, changes, &changed).await? {
                // A token that a new key signs can reach another gateway at once.
                if changed.before != changed.after {
                    announce(session);
                }
                return Ok(changed);
            }
        }
        Err(QueryError::Conflict(StoreError::new("the signing keys change too often at the same time")))
    }
}

/// The keys, and how often they were changed.
pub(super) async fn read_all(session: &Session) -> Result<(i64, Vec<StoredKey>), QueryError> {
    let rows = session.query(ALL, &[]).await?;
    let first = rows.first().ok_or_else(|| StoreError::new("the table meta lacks a row; restore a backup"))?;
    let is_key = |row: &&Row| matches!(row.try_get::<_, Option<&str>>("kid"), Ok(Some(_)));
    let keys = rows.iter().filter(is_key).map(read).collect::<Result<_, _>>()?;
    Ok((get(first, "changes")?, keys))
}

fn read(row: &Row) -> Result<StoredKey, StoreError> {
    Ok(StoredKey {
        kid: get(row, "kid")?,
        algorithm: get(row, "algorithm")?,
        root: rows::read_root(row, "root")?,
        sealed: get(row, "sealed")?,
        created_at: read_time(row, "created_at")?,
        activated_at: read_time_or_null(row, "activated_at")?,
        retired_at: read_time_or_null(row, "retired_at")?,
        revoked_at: read_time_or_null(row, "revoked_at")?,
        token_life: Duration::from_millis(rows::read_counter(row, "token_life")?),
    })
}
