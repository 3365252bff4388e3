//! The root secrets that belong to the database, so that no gateway uses it with others.

use tokio_postgres::Row;

use crate::store::error::StoreError;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::inspect::with_session;
use crate::store::postgres::rows::{self, get};
use crate::store::postgres::session::Session;
use crate::store::postgres::settings::PostgresSettings;
use crate::store::postgres::tls::Tls;
use crate::types::clock::UnixTime;

/// Oldest first.
const ALL: &str = "select c.root, c.value from root_check c order by c.at, c.root";
const ADD: &str = "insert into root_check (root, value, at)
    select g.root, g.value, $3 from unnest($1::int4[], $2::bytea[]) as g (root, value)
    on conflict (root) do nothing";

/// The mark of a copy to this database that has not ended: some rows are missing.
pub(super) const IS_UNFINISHED: &str = "select exists (select from meta m where m.name = 'copy')";
const UNFINISHED: &str = "the database is not complete: a copy to it was interrupted; run `bearward store copy` again";

/// A root secret: its number, and a keyed hash of it.
pub type RootCheck = (u8, [u8; 32]);

/// What a comparison of root secrets has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootsFound {
    /// New tokens are made with this one. The gateways that run already know it, too.
    Newest(u8),
    /// As [`RootsFound::Newest`]: no gateway has used the database yet.
    First(u8),
    /// The database was used with another secret of this number.
    Different(u8),
    /// Other gateways use this one.
    Missing(u8),
}

/// Compares the root secrets of a gateway, oldest first, with those of the database, and adds the new ones.
///
/// A new root secret is not used before the next start: gateways that were started before it was added do not know it.
pub fn compare_roots(
    settings: &PostgresSettings,
    tls: Option<Tls>,
    own: Vec<RootCheck>,
    now: UnixTime,
) -> Result<RootsFound, StoreError> {
    with_session(settings, tls, std::time::Duration::ZERO, move |session| async move {
        if session.is(IS_UNFINISHED).await? {
            return Err(StoreError::new(UNFINISHED).into());
        }
        let known = read(&session).await?;
        if let Some(problem) = problem(&own, &known) {
            return Ok(problem);
        }
        add(&session, &own, now).await?;
        // Another gateway may have added others since the first look.
        if let Some(problem) = problem(&own, &read(&session).await?) {
            return Ok(problem);
        }
        let is_known = |(number, _): &&RootCheck| known.is_empty() || known.iter().any(|known| known.0 == *number);
        let newest = own.iter().rev().find(is_known).or(own.last()).map_or(0, |(number, _)| *number);
        Ok(if known.is_empty() { RootsFound::First(newest) } else { RootsFound::Newest(newest) })
    })
}

/// `known`: oldest first. The gateway may lack those that are older than all of its own.
fn problem(own: &[RootCheck], known: &[(u8, Vec<u8>)]) -> Option<RootsFound> {
    let find = |number: u8| own.iter().find(|(own, _)| *own == number);
    let differs = |(number, value): &&(u8, Vec<u8>)| find(*number).is_some_and(|(_, own)| own.as_slice() != value);
    if let Some((number, _)) = known.iter().find(differs) {
        return Some(RootsFound::Different(*number));
    }
    let newer = known.iter().rev().take_while(|(number, _)| find(*number).is_none());
    newer.last().map(|(number, _)| RootsFound::Missing(*number))
}

async fn read(session: &Session) -> Result<Vec<(u8, Vec<u8>)>, QueryError> {
    let read = |row: &Row| Ok::<_, StoreError>((rows::read_root(row, "root")?, get(row, "value")?));
    Ok(session.query(ALL, &[]).await?.iter().map(read).collect::<Result<_, _>>()?)
}

pub(super) async fn add(session: &Session, own: &[RootCheck], now: UnixTime) -> Result<(), QueryError> {
    let numbers: Vec<i32> = own.iter().map(|(number, _)| i32::from(*number)).collect();
    let values: Vec<&[u8]> = own.iter().map(|(_, value)| value.as_slice()).collect();
    session.execute(ADD, &[&numbers, &values, &rows::time(now)]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_secrets_may_be_new_or_old_but_not_others() {
        let own = |numbers: &[u8]| numbers.iter().map(|number| (*number, [*number; 32])).collect::<Vec<_>>();
        let known = |numbers: &[u8]| numbers.iter().map(|number| (*number, vec![*number; 32])).collect::<Vec<_>>();
        for (ours, theirs, expected) in [
            (&[1][..], &[][..], None),
            (&[1], &[1], None),
            (&[1, 2], &[1], None),
            (&[2], &[1, 2], None),
            (&[1], &[1, 2], Some(RootsFound::Missing(2))),
            (&[1], &[1, 2, 3], Some(RootsFound::Missing(2))),
            (&[3], &[1], Some(RootsFound::Missing(1))),
        ] {
            assert_eq!(problem(&own(ours), &known(theirs)), expected, "{ours:?} {theirs:?}");
        }
        assert_eq!(problem(&own(&[1, 2]), &[(1, vec![9; 32])]), Some(RootsFound::Different(1)));
    }
}
