//! Appends to the log of revocations.
//!
//! Each transaction that appends holds the counter of the log until its commit is on the disk, so that there is one
//! such transaction per flush, of all gateways together. All calls of this gateway that wait are therefore written by
//! one statement: the first of them writes for all, and the others find their result when it is their turn.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::store::error::StoreError;
use crate::store::postgres::enforcement::Enforcement;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::outbox::{Audit, EventRow};
use crate::store::postgres::rows;
use crate::store::postgres::session::Session;
use crate::tokens::family::RevokeReason;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::clock::UnixTime;
use crate::types::secret;

const APPEND: &str = include_str!("append.sql");

/// Number of entries from which on no further call joins a statement.
const MAX_BATCH: usize = 512;

/// Tells the other gateways to read the log now. A statement of its own, because a transaction that notifies waits for
/// all others that do, and after the commit, because it would otherwise come too early. It may be lost: the others also
/// read the log without it.
const NOTIFY: &str = "select pg_notify(current_schema()::text, '')";

/// Sends [`NOTIFY`], and does not wait for it.
pub(super) fn announce(session: &Session) {
    let session = session.clone();
    tokio::spawn(async move { session.query(NOTIFY, &[]).await });
}

/// What to append.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) what: Revoked,
    pub(super) at: UnixTime,
    /// For a family: why it ends.
    pub(super) reason: Option<RevokeReason>,
    /// For a family: it only ends if it still has this generation.
    pub(super) generation: Option<u64>,
    pub(super) event: Option<EventRow>,
    /// The database had it before and lost it. It is written even if the family was lost, too.
    pub(super) is_lost: bool,
}

/// What the log lacks, to be written again.
pub(super) fn lost(revocations: &[Revocation]) -> Vec<Entry> {
    let entry = |lost: &Revocation| Entry {
        what: lost.what.clone(),
        at: lost.at,
        reason: matches!(lost.what, Revoked::Family(_)).then_some(RevokeReason::Admin),
        generation: None,
        event: None,
        is_lost: true,
    };
    revocations.iter().map(entry).collect()
}

/// One for each entry of a call: `None` for a family that has ended before, or changed.
type Appended = Vec<Option<Revocation>>;

/// A call, and who waits for it.
struct Waiting {
    entries: Vec<Entry>,
    caller: oneshot::Sender<Result<Appended, QueryError>>,
}

/// The calls that wait to be appended.
pub(super) struct Log {
    /// The `iss` of the gateway's own access tokens.
    own_issuer: String,
    enforcement: Arc<Enforcement>,
    audit: Arc<Audit>,
    waiting: Mutex<Vec<Waiting>>,
    turn: tokio::sync::Mutex<()>,
}

impl Log {
    pub(super) fn new(own_issuer: String, enforcement: Arc<Enforcement>, audit: Arc<Audit>) -> Self {
        Log { own_issuer, enforcement, audit, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Appends the entries in one transaction, and enforces them. With a [`QueryError::Lost`], they may be appended
    /// nevertheless, also later.
    pub(super) async fn append(&self, session: &Session, entries: Vec<Entry>) -> Result<Appended, QueryError> {
        let (caller, mut result) = oneshot::channel();
        self.waiting().push(Waiting { entries, caller });
        let _turn = self.turn.lock().await;
        loop {
            match result.try_recv() {
                Ok(result) => return result,
                Err(oneshot::error::TryRecvError::Empty) => {}
                // The caller that wrote for this one was interrupted.
                Err(oneshot::error::TryRecvError::Closed) => return Err(QueryError::Lost(interrupted())),
            }
            let calls = self.next_batch();
            if calls.is_empty() {
                return Err(QueryError::Lost(interrupted()));
            }
            self.write_and_respond(session, calls).await;
        }
    }

    /// The calls that waited for longest.
    fn next_batch(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        let mut entries = 0;
        let is_over = |call: &Waiting| {
            let before = entries;
            entries += call.entries.len();
            before > 0 && entries > MAX_BATCH
        };
        let count = waiting.iter().position(is_over).unwrap_or(waiting.len());
        waiting.drain(..count).collect()
    }

    /// Writes these calls by one statement. One that fails must not affect the others: then each is written by its own.
    async fn write_and_respond(&self, session: &Session, calls: Vec<Waiting>) {
        let all: Vec<Entry> = calls.iter().flat_map(|call| call.entries.iter().cloned()).collect();
        match self.write(session, &all).await {
            Err(QueryError::Rejected(_)) if calls.len() > 1 => {
                for call in calls {
                    let outcome = self.write(session, &call.entries).await;
                    self.respond(vec![call], outcome);
                }
            }
            outcome => self.respond(calls, outcome),
        }
        announce(session);
    }

    /// Enforces what was written, then gives each call its part.
    fn respond(&self, calls: Vec<Waiting>, outcome: Result<Appended, QueryError>) {
        let outcome = outcome.and_then(|appended| {
            let written: Vec<Revocation> = appended.iter().flatten().cloned().collect();
            self.enforcement.enforce(&written)?;
            Ok(appended)
        });
        let mut appended = outcome.as_ref().ok().into_iter().flatten();
        for call in calls {
            let of_call = appended.by_ref().take(call.entries.len()).cloned().collect();
            // The caller may have stopped waiting.
            let _ = call.caller.send(outcome.as_ref().map(|_| of_call).map_err(QueryError::clone));
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(&self, session: &Session, entries: &[Entry]) -> Result<Appended, QueryError> {
        let mut columns = Columns::default();
        for entry in entries {
            columns.push(entry, &self.own_issuer)?;
        }
        let admitted = self.audit.admit(session, entries.iter().map(|entry| entry.event.clone())).await?;
        let Columns { kinds, issuers, names, not_after, at, reasons, generations, effects, tags } = columns;
        let rows = session
            .query(
                APPEND,
                &[
                    &kinds,
                    &issuers,
                    &names,
                    &not_after,
                    &at,
                    &reasons,
                    &generations,
                    &effects,
                    &tags,
                    &admitted.ids,
                    &admitted.events,
                ],
            )
            .await?;
        let mut appended: Appended = vec![None; entries.len()];
        for row in &rows {
            let n = usize::try_from(rows::read_counter(row, "n")?).unwrap_or_default();
            let place = n.checked_sub(1).and_then(|index| Some((entries.get(index)?, appended.get_mut(index)?)));
            let Some((entry, place)) = place else { continue };
            *place = Some(Revocation {
                sequence: rows::read_counter(row, "sequence")?,
                what: entry.what.clone(),
                at: entry.at,
                until: rows::read_time(row, "until")?,
            });
        }
        let has_event =
            entries.iter().zip(&appended).map(|(entry, written)| written.is_some() && entry.event.is_some());
        self.audit.report(&admitted, has_event);
        Ok(appended)
    }
}

/// The parameters of the statement, one item for each entry.
#[derive(Default)]
struct Columns {
    kinds: Vec<&'static str>,
    issuers: Vec<Option<String>>,
    names: Vec<Option<String>>,
    not_after: Vec<Option<i64>>,
    at: Vec<i64>,
    reasons: Vec<Option<&'static str>>,
    generations: Vec<Option<i64>>,
    effects: Vec<Option<&'static str>>,
    tags: Vec<Vec<u8>>,
}

impl Columns {
    fn push(&mut self, entry: &Entry, own_issuer: &str) -> Result<(), StoreError> {
        let (kind, issuer, name, not_after) = rows::revoked_columns(&entry.what);
        self.kinds.push(kind);
        self.issuers.push(issuer);
        self.names.push(name);
        self.not_after.push(not_after);
        self.at.push(rows::time(entry.at));
        self.reasons.push(entry.reason.map(RevokeReason::as_str));
        self.generations.push(entry.generation.map(rows::counter).transpose()?);
        self.effects.push(effect(&entry.what, own_issuer).or_else(|| entry.is_lost.then_some("lost")));
        self.tags.push(secret::random::<16>().to_vec());
        Ok(())
    }
}

/// What the entry changes besides the log. Subjects of other issuers have no families. The watermark is stored without
/// the issuer, because the operator may rename the gateway, and its families stay valid.
fn effect(what: &Revoked, own_issuer: &str) -> Option<&'static str> {
    match what {
        Revoked::Everything { .. } => Some("everything"),
        // All families belong to the gateway's own issuer.
        Revoked::Issuer { issuer, .. } if issuer == own_issuer => Some("everything"),
        Revoked::Subject { issuer, .. } if issuer == own_issuer => Some("subject"),
        // A token of this gateway is accepted at a refresh long after it expired, while its family lives. Only this
        // entry stops it there, so that it is kept for as long.
        Revoked::Token { issuer, .. } if issuer == own_issuer => Some("token"),
        Revoked::Family(_) | Revoked::Token { .. } | Revoked::Subject { .. } | Revoked::Issuer { .. } => None,
    }
}

fn interrupted() -> StoreError {
    StoreError::new("the connection was closed while revocations were written")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::Outbox;

    #[test]
    fn calls_share_a_statement_up_to_a_number_of_entries() {
        let enforcement = Enforcement { hook: Arc::new(|_, _| {}), longest_life: std::time::Duration::ZERO };
        let audit = Arc::new(Audit::new(0, Arc::new(Outbox::default())));
        let log = Log::new(String::new(), Arc::new(enforcement), audit);
        let lost = Revocation {
            sequence: 1,
            what: Revoked::Everything { not_after: UnixTime::default() },
            at: UnixTime::default(),
            until: UnixTime::MAX,
        };
        for (waiting, expected) in [
            (&[][..], &[0][..]),
            (&[1, 1, 1], &[3, 0]),
            (&[MAX_BATCH - 1, 1, 1], &[2, 1, 0]),
            (&[MAX_BATCH, 1], &[1, 1, 0]),
            (&[1, MAX_BATCH, 1], &[1, 1, 1, 0]),
            // A call is never divided.
            (&[MAX_BATCH + 1, MAX_BATCH + 1], &[1, 1, 0]),
        ] {
            for count in waiting {
                let (caller, _) = oneshot::channel();
                log.waiting().push(Waiting { entries: super::lost(&vec![lost.clone(); *count]), caller });
            }
            let batches: Vec<usize> = expected.iter().map(|_| log.next_batch().len()).collect();
            assert_eq!(batches, expected, "{waiting:?}");
        }
    }
}
