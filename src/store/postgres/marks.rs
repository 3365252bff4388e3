//! Marks of things that can be used once.

use crate::store::mark::{Mark, Marked};
use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::mark_rows::MarkRow;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::revocations::{Revoke, is_incomplete};
use crate::store::postgres::rows::get;
use crate::store::postgres::session::Session;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::Revoked;

pub(super) struct UseMark {
    row: MarkRow,
    revoke: Vec<Revoke>,
}

impl UseMark {
    pub(super) fn new(mark: Mark, revoke: Vec<Revoked>, context: &EventContext) -> Self {
        let revoke = revoke.into_iter().map(|what| Revoke::new(what, context.clone())).collect();
        UseMark { row: MarkRow::new(mark), revoke }
    }
}

/// Also returns the sequence that other gateways must have applied: 0, all that is in the log. `None` if nothing was
/// revoked.
impl Operation for UseMark {
    type Output = (Marked, Option<u64>);

    const KIND: OperationKind = OperationKind::Mark;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Self::Output, QueryError> {
        if self.revoke.is_empty() {
            return Ok((self.row.outcome(&self.row.place(session).await?), None));
        }
        let mut entries = Vec::new();
        let mut ends = Vec::new();
        for revoke in &self.revoke {
            let (of_one, later) = revoke.entries(shared, session).await?;
            ends.push((entries.len() + 1, later));
            entries.extend(of_one);
        }
        let (found, appended) = shared.log.append_once(&self.row, entries).await?;
        let outcome = self.row.outcome(&found);
        if outcome == Marked::Taken {
            return Ok((outcome, None));
        }
        // Also if it is repeated: the first call may have been interrupted here.
        for (revoke, (from, later)) in self.revoke.iter().zip(ends) {
            let appended = appended.get(from..from + later).unwrap_or_default();
            revoke.end_the_rest(shared, session, outcome == Marked::First && is_incomplete(appended)).await?;
        }
        Ok((outcome, Some(0)))
    }
}

/// Looks a mark up, and writes nothing.
pub(super) struct FindMark {
    pub(super) mark: Mark,
}

impl Operation for FindMark {
    type Output = Marked;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Marked, QueryError> {
        let id = self.mark.stored().id;
        let row = session.query_opt("select value from marks where id = $1", &[&id.as_slice()]).await?;
        let known = row.as_ref().map(|row| get::<Vec<u8>>(row, "value")).transpose()?;
        Ok(known.map_or(Marked::First, |known| self.mark.compared(&known)))
    }
}
