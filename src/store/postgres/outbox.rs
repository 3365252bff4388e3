//! The outbox of audit events, written in the same statement as the change and deleted after delivery.
//!
//! Each event has a random id. An operation that runs again after a lost connection uses the same id, so that its event
//! is written once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::api::Outbox;
use crate::store::events::count_lost;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::rows;
use crate::store::postgres::session::Session;
use crate::tokens::audit_event::{Event, EventContext};

/// How often the events of all gateways are counted, while this one records some.
const RECOUNT: Duration = Duration::from_secs(1);

const INSERT: &str = "insert into audit (id, event)
    select e.id, e.event from unnest($1::bytea[], $2::text[]) with ordinality as e (id, event, n) order by e.n
    on conflict (id) do nothing";
const COUNT: &str = "select count(*) as waiting from (select 1 from audit limit $1) as counted";

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

/// The outbox of all gateways, as this one knows it.
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
            let row = if room > 0 { row } else { None };
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
            let mut counted = self.counted.lock();
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
            self.set_waiting(rows::read_counter(&row, "waiting")?);
        }
        Ok(())
    }

    /// Reports the events of a statement that was committed. `written` tells, for each of them, if its change was made.
    pub(super) fn report(&self, admitted: &Admitted, written: impl Iterator<Item = bool>) {
        if self.max == 0 {
            return;
        }
        let mut recorded = 0;
        let mut lost = 0;
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

    /// Writes events that belong to no other change. Returns false if none was written, because the outbox is full or
    /// turned off.
    pub(super) async fn write(&self, session: &Session, rows: Vec<EventRow>) -> Result<bool, QueryError> {
        if self.max == 0 {
            return Ok(false);
        }
        let admitted = self.admit(session, rows.into_iter().map(Some)).await?;
        let (ids, events): (Vec<_>, Vec<_>) = std::iter::zip(&admitted.ids, &admitted.events)
            .filter_map(|(id, event)| Some((id.clone(), event.clone()?)))
            .unzip();
        let mut written = 0;
        if !events.is_empty() {
            written = session.execute(INSERT, &[&ids, &events]).await?;
        }
        self.report(&admitted, std::iter::repeat(true));
        Ok(written > 0)
    }

    /// The number of undelivered events of all gateways, when it is known.
    pub(super) fn set_waiting(&self, waiting: u64) {
        self.outbox.waiting.store(waiting, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, delivered: u64) {
        let subtract = |waiting: u64| Some(waiting.saturating_sub(delivered));
        let _ = self.outbox.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// If the delivery of events has something to do. It then knows.
    fn is_woken(outbox: &Outbox) -> bool {
        pin!(outbox.written.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn only_a_recorded_event_wakes_the_delivery() {
        let outbox: Arc<Outbox> = Arc::default();
        let audit = Audit::new(10, outbox.clone());
        let counts = || (outbox.waiting.load(Ordering::Relaxed), outbox.lost.load(Ordering::Relaxed));
        for (event, is_written, expected, wakes) in
            [(None, true, (0, 1), false), (Some("{}"), false, (0, 1), false), (Some("{}"), true, (1, 1), true)]
        {
            let admitted = Admitted { ids: vec![vec![]], events: vec![event.map(str::to_owned)] };
            audit.report(&admitted, std::iter::once(is_written));
            assert_eq!((counts(), is_woken(&outbox)), (expected, wakes), "{event:?} {is_written}");
        }
    }

    #[test]
    fn delivered_events_leave_room_at_once() {
        let outbox: Arc<Outbox> = Arc::default();
        let audit = Audit::new(10, outbox.clone());
        audit.set_waiting(5);
        // Other gateways deliver, too.
        for (delivered, left) in [(2, 3), (9, 0)] {
            audit.remove(delivered);
            assert_eq!(outbox.waiting.load(Ordering::Relaxed), left);
        }
    }
}
