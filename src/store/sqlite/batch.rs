//! The transaction that the operations of one batch share, and what several of them need from it.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::store::StoreError;
use crate::store::sqlite::rows;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::clock::UnixTime;

/// What the store has to know about the tokens of this gateway.
pub(super) struct TokenTerms {
    /// `iss` of the access tokens that the families of this store give.
    pub(super) issuer: String,
    /// The most that any access token lives, or ever did.
    pub(super) longest_life: Duration,
    /// The most that any family lives, or ever did.
    pub(super) longest_family: Duration,
    /// The most events that may wait for their delivery; 0 for none at all.
    pub(super) audit: usize,
}

/// An open transaction. Everything that an operation does goes through it and becomes durable, or is undone, with it.
pub(super) struct Batch<'writer> {
    pub(super) connection: &'writer Connection,
    pub(super) terms: &'writer TokenTerms,
    revocations: Vec<Revocation>,
    pub(super) audited: RecordedEvents,
}

/// What became of the events of a transaction.
#[derive(Clone, Copy, Default)]
pub(super) struct RecordedEvents {
    pub(super) recorded: u64,
    pub(super) lost: u64,
}

impl<'writer> Batch<'writer> {
    pub(super) fn new(connection: &'writer Connection, terms: &'writer TokenTerms) -> Self {
        Batch { connection, terms, revocations: Vec::new(), audited: RecordedEvents::default() }
    }

    /// The revocations that were written, in the order of their sequence.
    pub(super) fn into_revocations(self) -> Vec<Revocation> {
        self.revocations
    }

    /// Runs a statement. Answers how many rows it wrote.
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        Ok(self.connection.prepare_cached(sql)?.execute(params)?)
    }

    /// The rows of a query, each read by `read`.
    pub(super) fn query<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.connection.prepare_cached(sql)?.query_and_then(params, read)?.collect()
    }

    /// Adds to the log of revocations. The sequence comes from a counter that is raised in the same transaction, so it
    /// has no gaps and follows the order of commits.
    pub(super) fn revoke(&mut self, what: Revoked, at: UnixTime) -> Result<&Revocation, StoreError> {
        self.execute("update meta set value = value + 1 where name = 'revocation_sequence'", [])?;
        let sequence = self.meta("revocation_sequence")?;
        let revocation = Revocation { sequence, until: concerned_until(&what, at, self.terms), what, at };
        rows::insert_revocation(self.connection, &revocation)?;
        self.revocations.push(revocation);
        self.revocations.last().ok_or_else(|| StoreError::new("the revocation was lost"))
    }

    /// Families of this subject that were created at or before this time are void: the larger of the subject's own
    /// watermark and the one over everything.
    pub(super) fn watermark(&self, subject: &str) -> Result<Option<UnixTime>, StoreError> {
        let own = self
            .connection
            .prepare_cached("select not_after from subjects where subject = ?1")?
            .query_row([subject], |row| row.get(0))
            .optional()?;
        let over_everything = self
            .connection
            .prepare_cached("select value from meta where name = 'watermark' and value > 0")?
            .query_row([], |row| row.get(0))
            .optional()?;
        Ok(own.max(over_everything))
    }

    /// Raises the watermark over everything.
    pub(super) fn raise_watermark(&self, not_after: UnixTime) -> Result<(), StoreError> {
        self.execute("update meta set value = ?1 where name = 'watermark' and value < ?1", params![not_after])?;
        Ok(())
    }

    fn meta(&self, name: &str) -> Result<u64, StoreError> {
        let value: i64 = self
            .connection
            .prepare_cached("select value from meta where name = ?1")?
            .query_row([name], |row| row.get(0))?;
        u64::try_from(value).map_err(|_| StoreError::new(format!("the number {name} in the table meta is negative")))
    }
}

/// The last moment at which an access token that `what` concerns can be good for anything.
fn concerned_until(what: &Revoked, at: UnixTime, terms: &TokenTerms) -> UnixTime {
    match what {
        Revoked::Family(_) => at + terms.longest_life,
        // One of our own is good for a refresh long after it expired: as long as its family may live. Nothing but this
        // entry stops it there, as the family itself is not revoked.
        Revoked::Token { issuer, .. } if *issuer == terms.issuer => at + terms.longest_life.max(terms.longest_family),
        Revoked::Token { .. } => at + terms.longest_life,
        // A watermark that lies ahead also concerns what is issued until then.
        Revoked::Subject { not_after, .. } | Revoked::Issuer { not_after, .. } | Revoked::Everything { not_after } => {
            at.max(*not_after) + terms.longest_life
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revocation_is_kept_while_a_token_it_concerns_may_live() {
        let now = UnixTime::from_secs(1_000);
        let terms = TokenTerms {
            issuer: "https://gateway.example".into(),
            longest_life: Duration::from_secs(60),
            longest_family: Duration::from_secs(3_600),
            audit: 0,
        };
        let everything = |secs| Revoked::Everything { not_after: UnixTime::from_secs(secs) };
        assert_eq!(concerned_until(&everything(900), now, &terms), UnixTime::from_secs(1_060));
        assert_eq!(concerned_until(&everything(2_000), now, &terms), UnixTime::from_secs(2_060));
        assert_eq!(concerned_until(&everything(2_000), UnixTime::MAX, &terms), UnixTime::MAX);
        let token = |issuer: &str| Revoked::Token { issuer: issuer.into(), jti: "1".into() };
        assert_eq!(concerned_until(&token("https://login.example"), now, &terms), UnixTime::from_secs(1_060));
        assert_eq!(concerned_until(&token(&terms.issuer), now, &terms), UnixTime::from_secs(4_600));
    }
}
