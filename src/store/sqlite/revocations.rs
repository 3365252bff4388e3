//! The operations on the log of revocations and on watermarks.

use rusqlite::params;

use crate::audit::Occasion;
use crate::clock::UnixTime;
use crate::family::revocation::{Revocation, Revoked};
use crate::store::sqlite::audit;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows::{self, counter};
use crate::store::{StoreError, events};

pub(super) fn revoke(batch: &mut Batch<'_>, what: &Revoked, occasion: &Occasion) -> Result<u64, StoreError> {
    if let Revoked::Family(id) = what {
        return Err(StoreError::new(format!("family {id} was to be revoked without asking who may")));
    }
    let Revocation { sequence, until, .. } = *batch.revoke(what.clone(), occasion.at)?;
    audit::record(batch, &events::revocation(what), occasion)?;
    match what {
        // Another issuer's subject has no family here. The name of our own issuer is configuration and may change; the
        // families stay ours, so their watermarks are kept without it.
        Revoked::Subject { issuer, subject, not_after } if *issuer == batch.terms.issuer => {
            raise_watermark(batch, subject, *not_after, until)?;
        }
        // All families are of our own issuer.
        Revoked::Issuer { issuer, not_after } if *issuer == batch.terms.issuer => batch.raise_watermark(*not_after)?,
        Revoked::Everything { not_after } => batch.raise_watermark(*not_after)?,
        Revoked::Subject { .. } | Revoked::Issuer { .. } | Revoked::Token { .. } | Revoked::Family(_) => {}
    }
    Ok(sequence)
}

/// Raises a subject's watermark. It is needed while it lies ahead of new families (`until` is later than that), and while
/// there is an old one that it voids.
fn raise_watermark(batch: &Batch<'_>, subject: &str, not_after: UnixTime, until: UnixTime) -> Result<(), StoreError> {
    let last_expiry: Option<UnixTime> = batch
        .connection
        .prepare_cached("select max(absolute_expiry) from families where subject = ?1 and revoked_at is null")?
        .query_row([subject], |row| row.get(0))?;
    let needed_until = until.max(last_expiry.unwrap_or_default());
    batch.execute(
        "insert into subjects (subject, not_after, needed_until) values (?1, ?2, ?3)
         on conflict (subject) do update set
             not_after = case when not_after < ?2 then ?2 else not_after end,
             needed_until = case when needed_until < ?3 then ?3 else needed_until end",
        params![subject, not_after, needed_until],
    )?;
    Ok(())
}

pub(super) fn since(batch: &Batch<'_>, after: u64, now: UnixTime) -> Result<Vec<Revocation>, StoreError> {
    batch.query(
        "select * from revocations where sequence > ?1 and until >= ?2 order by sequence",
        params![counter(after)?, now],
        rows::revocation,
    )
}
