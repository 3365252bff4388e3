//! Advances sequences that are behind their tables.
//!
//! Logical replication and a copy of the rows alone leave out where a sequence is. It starts again, so that the next
//! row has the number of one that is there, and its statement fails.

use crate::store::error::StoreError;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::rows::get;
use crate::store::postgres::session::Session;

/// The sequences, each with the largest number in its table. Without the right to read a sequence, it is left out.
macro_rules! behind {
    () => {
        "(select pg_get_serial_sequence('audit', 'sequence') as name,
                (select max(a.sequence) from audit a) as newest
            union all select pg_get_serial_sequence('signing_keys', 'number'),
                (select max(k.number) from signing_keys k)) s
        where case when has_sequence_privilege(s.name, 'select, usage')
            then s.newest > coalesce(pg_sequence_last_value(s.name::regclass), 0) else false end"
    };
}

const BEHIND: &str =
    concat!("select s.name, s.newest, has_sequence_privilege(s.name, 'update') as may from ", behind!());
/// Gateways that start together must not set a sequence back that another one has advanced.
const ADVANCE: &str = concat!(
    "select pg_advisory_xact_lock(1651995237, hashtext(current_schema()::text));
    select setval(s.name::regclass, s.newest) from ",
    behind!()
);

/// # Errors
/// If the user may not advance a sequence that is behind.
pub(super) async fn advance(session: &Session) -> Result<(), QueryError> {
    let behind = session.query(BEHIND, &[]).await?;
    for row in &behind {
        let name: String = get(row, "name")?;
        let newest: i64 = get(row, "newest")?;
        if !get::<bool>(row, "may")? {
            return Err(StoreError::new(format!(
                "the sequence {name} is behind its table, as after a switch to a logically replicated copy, and the \
                 user of store.postgres may not advance it; run as its owner: SELECT setval('{name}', {newest})"
            ))
            .into());
        }
        tracing::warn!(sequence = name, to = newest, "a sequence is behind its table; advancing it");
    }
    if behind.is_empty() { Ok(()) } else { session.batch(ADVANCE).await }
}
