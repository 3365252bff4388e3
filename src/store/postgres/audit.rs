//! The operations on the outbox of audit events.

use std::sync::atomic::Ordering;

use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::leases;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rows;
use crate::store::postgres::session::Session;
use crate::tokens::audit_event::{Event, EventContext, Recorded};
use crate::types::secret;

const OLDEST: &str = "select a.sequence, a.event from audit a order by a.sequence limit $1";
/// Nothing, if another gateway delivers by now.
const DELETE: &str = "delete from audit where sequence = any($1)
    and exists (select from leases where name = 'delivery' and holder = $2 and epoch = $3)";

/// Counts the undelivered events of all gateways.
pub(super) struct Count;

impl Operation for Count {
    type Output = ();

    const KIND: OperationKind = OperationKind::Audit;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        shared.audit.count(session).await
    }
}

/// Records an event that no other operation records.
pub(super) struct Record {
    row: EventRow,
}

impl Record {
    pub(super) fn new(event: &Event, context: &EventContext) -> Self {
        Record { row: EventRow::new(secret::random(), event, context) }
    }
}

impl Operation for Record {
    type Output = ();

    const KIND: OperationKind = OperationKind::Audit;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        shared.audit.write(session, vec![self.row.clone()]).await.map(drop)
    }
}

/// Reads the oldest events, if this gateway is the one that delivers.
pub(super) struct Undelivered {
    pub(super) limit: usize,
}

impl Operation for Undelivered {
    type Output = Vec<Recorded>;

    const KIND: OperationKind = OperationKind::Audit;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Vec<Recorded>, QueryError> {
        let Some(epoch) = leases::hold(session, leases::DELIVERY, &shared.replica).await? else {
            return Ok(Vec::new());
        };
        shared.delivery_epoch.store(epoch, Ordering::Relaxed);
        let rows = session.query(OLDEST, &[&rows::limit(self.limit)]).await?;
        if rows.len() < self.limit {
            shared.audit.set_waiting(rows.len() as u64);
        }
        let read =
            |row| Ok(Recorded { sequence: rows::read_counter(row, "sequence")?, event: rows::get(row, "event")? });
        rows.iter().map(read).collect()
    }
}

/// Deletes events that were delivered. By list: an event with a lower sequence may have been committed later.
pub(super) struct Delivered {
    pub(super) sequences: Vec<u64>,
}

impl Operation for Delivered {
    type Output = ();

    const KIND: OperationKind = OperationKind::Audit;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        let sequences: Vec<i64> = self.sequences.iter().filter_map(|sequence| rows::counter(*sequence).ok()).collect();
        let epoch = match shared.delivery_epoch.load(Ordering::Relaxed) {
            // Without having read events: nothing was delivered by this gateway before.
            0 => leases::hold(session, leases::DELIVERY, &shared.replica).await?.unwrap_or_default(),
            epoch => epoch,
        };
        let deleted = session.execute(DELETE, &[&sequences, &shared.replica.as_str(), &epoch]).await?;
        shared.audit.remove(deleted);
        Ok(())
    }
}
