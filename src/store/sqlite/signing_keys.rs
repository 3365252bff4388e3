//! The signing keys: few rows, always read and changed together.

use std::time::Duration;

use rusqlite::{Row, params};

use crate::store::api::{DecideKeys, KeysChanged};
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::sqlite::audit;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows::millis;
use crate::tokens::audit_event::EventContext;
use crate::tokens::signing::StoredKey;

/// Newest first, also for two keys of the same millisecond.
pub(super) const ALL: &str = "select * from signing_keys order by created_at desc, rowid desc";

/// Writes only the rows that differ.
pub(super) fn change(
    batch: &mut Batch<'_>,
    decide: &DecideKeys,
    context: &EventContext,
) -> Result<KeysChanged, StoreError> {
    let before = batch.query(ALL, [], read)?;
    let after = decide(before.clone());
    for deleted in before.iter().filter(|key| !after.iter().any(|kept| kept.kid == key.kid)) {
        batch.execute("delete from signing_keys where kid = ?1", [&deleted.kid])?;
    }
    for key in after.iter().filter(|key| !before.contains(key)) {
        write(batch, key)?;
    }
    let changed = KeysChanged { before, after };
    for event in events::keys_changed(&changed) {
        audit::record(batch, &event, context)?;
    }
    Ok(changed)
}

fn write(batch: &Batch<'_>, key: &StoredKey) -> Result<(), StoreError> {
    batch.execute(
        "insert into signing_keys
            (kid, algorithm, root, sealed, created_at, activated_at, retired_at, revoked_at, token_life)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         on conflict (kid) do update set
            root = ?3, sealed = ?4, activated_at = ?6, retired_at = ?7, revoked_at = ?8, token_life = ?9",
        params![
            key.kid,
            key.algorithm,
            key.root,
            key.sealed,
            key.created_at,
            key.activated_at,
            key.retired_at,
            key.revoked_at,
            millis(key.token_life),
        ],
    )?;
    Ok(())
}

pub(super) fn read(row: &Row<'_>) -> Result<StoredKey, StoreError> {
    Ok(StoredKey {
        kid: row.get("kid")?,
        algorithm: row.get("algorithm")?,
        root: row.get("root")?,
        sealed: row.get("sealed")?,
        created_at: row.get("created_at")?,
        activated_at: row.get("activated_at")?,
        retired_at: row.get("retired_at")?,
        revoked_at: row.get("revoked_at")?,
        token_life: Duration::from_millis(row.get::<_, i64>("token_life")?.unsigned_abs()),
    })
}
