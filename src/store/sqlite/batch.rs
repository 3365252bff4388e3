//! The transaction that the operations of one batch share.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::store::endings::Revoker;
use crate::store::error::StoreError;
use crate::store::sqlite::rows;
use crate::store::sqlite::steady_time::SteadyNow;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::RevokeReason;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::clock::UnixTime;

/// The settings of the operations.
pub(super) struct TokenLimits {
    /// The `iss` of the gateway's own access tokens.
    pub(super) issuer: String,
    /// The longest lifetime of access tokens that was ever configured.
    pub(super) longest_life: Duration,
    /// The longest lifetime of families that was ever configured.
    pub(super) longest_family: Duration,
    /// Maximum number of undelivered events; 0: record none.
    pub(super) audit: usize,
    /// `timeouts.store`
    pub(super) timeout: Duration,
}

/// An open transaction. All changes of an operation are committed or rolled back with it.
pub(super) struct Batch<'writer> {
    pub(super) connection: &'writer Connection,
    pub(super) limits: &'writer TokenLimits,
    /// The process was paused a moment ago.
    pub(super) was_paused: bool,
    pub(super) steady_now: SteadyNow,
    revocations: Vec<Revocation>,
    /// Undelivered events before this transaction.
    waiting_before: u64,
    pub(super) events: RecordedEvents,
}

/// The number of audit events of a transaction.
#[derive(Clone, Copy, Default)]
pub(super) struct RecordedEvents {
    pub(super) recorded: u64,
    pub(super) delivered: u64,
    pub(super) lost: u64,
}

impl<'writer> Batch<'writer> {
    /// `waiting`: the number of undelivered events in the database.
    pub(super) fn new(
        connection: &'writer Connection,
        limits: &'writer TokenLimits,
        was_paused: bool,
        steady_now: SteadyNow,
        waiting: u64,
    ) -> Self {
        let revocations = Vec::new();
        let events = RecordedEvents::default();
        Batch { connection, limits, was_paused, steady_now, revocations, waiting_before: waiting, events }
    }

    /// The number of undelivered events at this point of the transaction.
    pub(super) fn waiting(&self) -> u64 {
        (self.waiting_before + self.events.recorded).saturating_sub(self.events.delivered)
    }

    /// The written revocations, in the order of their sequence.
    pub(super) fn into_revocations(self) -> Vec<Revocation> {
        self.revocations
    }

    /// Runs a statement. Returns the number of rows that it wrote.
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        Ok(self.connection.prepare_cached(sql)?.execute(params)?)
    }

    /// Runs a query and converts each row with `read`.
    pub(super) fn query<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.connection.prepare_cached(sql)?.query_and_then(params, read)?.collect()
    }

    /// Appends to the log of revocations. The sequence comes from a counter that is incremented in the same
    /// transaction, so that it has no gaps and follows the order of commits.
    pub(super) fn revoke(
        &mut self,
        what: Revoked,
        at: UnixTime,
        reason: RevokeReason,
        context: &EventContext,
    ) -> Result<&Revocation, StoreError> {
        self.execute("update meta set value = value + 1 where name = 'revocation_sequence'", [])?;
        let sequence = self.meta("revocation_sequence")?;
        let revocation = Revocation { sequence, until: relevant_until(&what, at, self.limits), what, at };
        rows::insert_revocation(self.connection, &revocation)?;
        let until = at + self.limits.longest_life.max(self.limits.longest_family);
        rows::insert_ending(self.connection, &revocation, reason, Revoker::of(reason, context).as_ref(), until)?;
        self.revocations.push(revocation);
        self.revocations.last().ok_or_else(|| StoreError::new("the written revocation is missing"))
    }

    /// Families of this subject and client that were created at or before this time are void. It is the latest of the
    /// watermark of the subject, those of the client, and the watermark over everything.
    pub(super) fn watermark(&self, subject: &str, client_id: &str) -> Result<Option<UnixTime>, StoreError> {
        let own = self
            .connection
            .prepare_cached("select not_after from subjects where subject = ?1")?
            .query_row([subject], |row| row.get(0))
            .optional()?;
        let of_client = self
            .connection
            .prepare_cached("select max(not_after) from clients where client_id = ?1 and subject in ('', ?2)")?
            .query_row([client_id, subject], |row| row.get(0))?;
        let global = self
            .connection
            .prepare_cached("select value from meta where name = 'watermark' and value > 0")?
            .query_row([], |row| row.get(0))
            .optional()?;
        Ok(own.max(of_client).max(global))
    }

    /// Raises the watermark over everything. Never lowers it.
    pub(super) fn raise_watermark(&self, not_after: UnixTime) -> Result<(), StoreError> {
        self.execute("update meta set value = ?1 where name = 'watermark' and value < ?1", params![not_after])?;
        Ok(())
    }

    fn meta(&self, name: &str) -> Result<u64, StoreError> {
        let value: i64 = self
            .connection
            .prepare_cached("select value from meta where name = ?1")?
            .query_row([name], |row| row.get(0))?;
        u64::try_from(value)
            .map_err(|_| StoreError::new(format!("{name} in the table meta is negative; restore a backup")))
    }
}

/// The last time at which an access token that `what` applies to can be accepted.
fn relevant_until(what: &Revoked, at: UnixTime, limits: &TokenLimits) -> UnixTime {
    match what {
        Revoked::Family(_) => at + limits.longest_life,
        // A token of this gateway is accepted at a refresh long after it expired, while its family lives. Only this
        // entry stops it there, because the family itself is not revoked.
        Revoked::Token { issuer, .. } if *issuer == limits.issuer => {
            at + limits.longest_life.max(limits.longest_family)
        }
        Revoked::Token { .. } | Revoked::Session { .. } => at + limits.longest_life,
        // A watermark in the future also applies to tokens that are issued until then.
        Revoked::Subject { not_after, .. }
        | Revoked::Issuer { not_after, .. }
        | Revoked::Client { not_after, .. }
        | Revoked::Everything { not_after } => at.max(*not_after) + limits.longest_life,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revocation_is_kept_while_its_tokens_may_be_accepted() {
        let now = UnixTime::from_secs(1_000);
        let limits = TokenLimits {
            issuer: "https://gateway.example".into(),
            longest_life: Duration::from_secs(60),
            longest_family: Duration::from_secs(3_600),
            audit: 0,
            timeout: Duration::from_secs(5),
        };
        let everything = |secs| Revoked::Everything { not_after: UnixTime::from_secs(secs) };
        assert_eq!(relevant_until(&everything(900), now, &limits), UnixTime::from_secs(1_060));
        assert_eq!(relevant_until(&everything(2_000), now, &limits), UnixTime::from_secs(2_060));
        assert_eq!(relevant_until(&everything(2_000), UnixTime::MAX, &limits), UnixTime::MAX);
        let token = |issuer: &str| Revoked::Token { issuer: issuer.into(), jti: "1".into() };
        assert_eq!(relevant_until(&token("https://login.example"), now, &limits), UnixTime::from_secs(1_060));
        assert_eq!(relevant_until(&token(&limits.issuer), now, &limits), UnixTime::from_secs(4_600));
    }
}
