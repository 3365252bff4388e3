//! The outbox of audit events, written in the same statement as the change and deleted after delivery.
//!
//! Each event has a random id. An operation that runs again after a lost connection uses the same id, so that its event
//! is written once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::api::Outbox;
use crate::store::events::count_lost;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::leases;
use crate::store::postgres::operation::{Operation, Shared, lock};
use crate::store::postgres::rows;
use crate::store::postgres::session::Session;
use crate::tokens::audit_event::{Event, EventContext, Recorded};
use crate::types::secret;

/// How often the events of all gateways are counted, while this one records some.
const RECOUNT: Duration = Duration::from_secs(1);

const INSERT: &str = "insert into audit (id, event)
    select e.id, e.event from unnest($1::bytea[], $2::text[]) with ordinality as e (id, event, n) order by e.n
    on conflict (id) do nothing";
const COUNT: &str = "select count(*) as waiting from (select 1 from audit limit $1) as counted";
const OLDEST: &str = "select a.sequence, a.event from audit a order by a.sequence limit $1";
/// Nothing, if another gateway delivers by now.
const DELETE: &str = "delete from audit where sequence = any($1)
    and exists (select from leases where name = 'delivery' and holder = $2 and epoch = $3)";

/// An event as it is written.
#[derive(Clone)]
pub(super) struct EventRow {
    id: [u8; 16],
    json: String,
}

impl EventRow {
    /// `id` is random, and the same in each run of the operation.
    pub(super) fn new(id: [u8; 16], event: &Event, context: &EventContext) -> Self {
        EventRow { id, json: event.to_json(context) }
    }
}

/// The events of one statement that the outbox has room for, as its parameters.
#[derive(Default)]
pub(super) struct Admitted {
    pub(super) ids: Vec<Vec<u8>>,
    pub(super) events: Vec<Option<String>>,
}

/// What this gateway knows about the outbox.
pub(super) struct Audit {
    /// Maximum number of undelivered events; 0: record none.
    max: u64,
    outbox: Arc<Outbox>,
    counted: Mutex<Option<Instant>>,
}

impl Audit {
    pub(super) fn new(max: usize, outbox: Arc<Outbox>) -> Self {
        Audit { max: max as u64, outbox, counted: Mutex::new(None) }
    }

    /// The events that fit. The others are `None`: they are lost if their changes are written.
    pub(super) async fn admit(
        &self,
        session: &Session,
        rows: impl IntoIterator<Item = Option<EventRow>> + Send,
    ) -> Result<Admitted, QueryError> {
        let mut admitted = Admitted::default();
        let mut room = self.room(session).await?;
        for row in rows {
            let row = row.filter(|_| room > 0);
            room = room.saturating_sub(u64::from(row.is_some()));
            admitted.ids.push(row.as_ref().map(|row| row.id.to_vec()).unwrap_or_default());
            admitted.events.push(row.map(|row| row.json));
        }
        Ok(admitted)
    }

    /// Counts what other gateways record, too, so that all of them stop at the limit.
    async fn room(&self, session: &Session) -> Result<u64, QueryError> {
        if self.max == 0 {
            return Ok(0);
        }
        let is_due = {
            let mut counted = lock(&self.counted);
            let is_due = counted.is_none_or(|counted| counted.elapsed() >= RECOUNT);
            if is_due {
                *counted = Some(Instant::now());
            }
            is_due
        };
        if is_due {
            self.count(session).await?;
        }
        Ok(self.max.saturating_sub(self.outbox.waiting.load(Ordering::Relaxed)))
    }

    /// Counts the undelivered events of all gateways.
    pub(super) async fn count(&self, session: &Session) -> Result<(), QueryError> {
        let limit = i64::try_from(self.max).unwrap_or(i64::MAX);
        if let Some(row) = session.query_opt(COUNT, &[&limit]).await? {
            self.outbox.waiting.store(rows::read_counter(&row, "waiting")?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reports the events of a statement that was committed. `written` tells, for each of them, if its change was made.
    pub(super) fn report(&self, admitted: &Admitted, written: impl Iterator<Item = bool>) {
        if self.max == 0 {
            return;
        }
        let (mut recorded, mut lost) = (0, 0);
        for (event, _) in admitted.events.iter().zip(written).filter(|(_, is_written)| *is_written) {
            match event {
                Some(_) => recorded += 1,
                None => lost += 1,
            }
        }
        count_lost(&self.outbox, lost);
        if recorded > 0 {
            self.outbox.waiting.fetch_add(recorded, Ordering::Relaxed);
            self.outbox.written.notify_one();
        }
    }

    /// Writes events that belong to no other change.
    pub(super) async fn write(&self, session: &Session, rows: Vec<EventRow>) -> Result<(), QueryError> {
        if self.max == 0 {
            return Ok(());
        }
        let admitted = self.admit(session, rows.into_iter().map(Some)).await?;
        let (ids, events): (Vec<_>, Vec<_>) = std::iter::zip(&admitted.ids, &admitted.events)
            .filter_map(|(id, event)| Some((id.clone(), event.clone()?)))
            .unzip();
        if !events.is_empty() {
            session.execute(INSERT, &[&ids, &events]).await?;
        }
        self.report(&admitted, std::iter::repeat(true));
        Ok(())
    }
}

/// Counts the undelivered events of all gateways.
pub(super) struct Count;

impl Operation for Count {
    type Output = ();

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

    async fn run(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        shared.audit.write(session, vec![self.row.clone()]).await
    }
}

/// Reads the oldest events, if this gateway is the one that delivers.
pub(super) struct Undelivered {
    pub(super) limit: usize,
}

impl Operation for Undelivered {
    type Output = Vec<Recorded>;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Vec<Recorded>, QueryError> {
        let Some(epoch) = leases::hold(session, leases::DELIVERY, &shared.replica).await? else {
            return Ok(Vec::new());
        };
        shared.delivery_epoch.store(epoch, Ordering::Relaxed);
        let rows = session.query(OLDEST, &[&rows::limit(self.limit)]).await?;
        if rows.len() < self.limit {
            shared.audit.outbox.waiting.store(rows.len() as u64, Ordering::Relaxed);
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

    async fn run(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        let sequences: Vec<i64> = self.sequences.iter().filter_map(|sequence| rows::counter(*sequence).ok()).collect();
        let epoch = shared.delivery_epoch.load(Ordering::Relaxed);
        let deleted = session.execute(DELETE, &[&sequences, &shared.replica.as_str(), &epoch]).await?;
        let waiting = &shared.audit.outbox.waiting;
        let _ = waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count.saturating_sub(deleted)));
        Ok(())
    }
}
