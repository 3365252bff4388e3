//! Appends to the log of revocations.
//!
//! Each transaction that appends holds the counter of the log until its commit is on the disk, so that there is one
//! such transaction per flush, of all gateways together. All calls of this gateway that wait are therefore written by
//! one statement. These have a connection of their own (`Lane::Log`), because an operator may have locked the counter:
//! refreshes do not wait for it then. What was lost is written over another one.

use std::sync::{Arc, LazyLock};

use crate::store::endings::Revoker;
use crate::store::error::StoreError;
use crate::store::postgres::connections::Connections;
use crate::store::postgres::enforcement::Enforcement;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::gather::Gather;
use crate::store::postgres::lane::Lane;
use crate::store::postgres::mark_rows::{FoundMark, MarkRow};
use crate::store::postgres::named::{NamedStatement, NamedValues};
use crate::store::postgres::outbox::{Audit, EventRow};
use crate::store::postgres::rows::{self, RevokedColumns};
use crate::store::postgres::session::Session;
use crate::tokens::family::RevokeReason;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::clock::UnixTime;
use crate::types::secret;

static APPEND: LazyLock<NamedStatement> = LazyLock::new(|| NamedStatement::new(include_str!("append.sql")));

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
pub(super) struct NewLogEntry {
    pub(super) what: Revoked,
    pub(super) at: UnixTime,
    /// For a family: why it ends.
    pub(super) reason: Option<RevokeReason>,
    /// Who revokes it, if that is not its owner or the gateway.
    pub(super) by: Option<Revoker>,
    /// For a family: it only ends if it still has this generation.
    pub(super) generation: Option<u64>,
    pub(super) event: Option<EventRow>,
    /// The database had it before and lost it. It is written even if the family was lost, too, or has ended.
    pub(super) is_lost: bool,
}

fn entries_of(lost: &[Revocation]) -> Vec<NewLogEntry> {
    let entry = |lost: &Revocation| NewLogEntry {
        what: lost.what.clone(),
        at: lost.at,
        reason: matches!(lost.what, Revoked::Family(_)).then_some(RevokeReason::Admin),
        by: None,
        generation: None,
        event: None,
        is_lost: true,
    };
    lost.iter().map(entry).collect()
}

/// One for each entry of a call: `None` for a family that has ended before, changed, or is locked.
pub(super) type Appended = Vec<Option<Revocation>>;

/// The calls that wait to be appended.
pub(super) struct Log {
    pub(super) connections: Connections,
    /// The `iss` of the gateway's own access tokens.
    own_issuer: String,
    enforcement: Arc<Enforcement>,
    audit: Arc<Audit>,
    calls: Gather<Vec<NewLogEntry>, Appended>,
}

impl Log {
    pub(super) fn new(
        connections: Connections,
        own_issuer: String,
        enforcement: Arc<Enforcement>,
        audit: Arc<Audit>,
    ) -> Self {
        Log { connections, own_issuer, enforcement, audit, calls: Gather::default() }
    }

    /// Appends the entries in one transaction, and enforces them. With a [`QueryError::Lost`], they may be appended
    /// nevertheless, also later.
    pub(super) async fn append(&self, entries: Vec<NewLogEntry>) -> Result<Appended, QueryError> {
        let size = entries.len();
        self.calls.join(entries, size, |calls| self.append_all(calls)).await
    }

    /// Enforces what was written before any call is answered.
    async fn append_all(&self, calls: Vec<Vec<NewLogEntry>>) -> Result<Vec<Appended>, QueryError> {
        let sizes: Vec<usize> = calls.iter().map(Vec::len).collect();
        let entries: Vec<NewLogEntry> = calls.into_iter().flatten().collect();
        let session = self.connections.session(Lane::Log).await?;
        let mut appended = self.write_and_enforce(&session, &entries, None).await?.1.into_iter();
        Ok(sizes.into_iter().map(|size| appended.by_ref().take(size).collect()).collect())
    }

    /// Appends what the log has lost, apart from the calls that wait: these neither share its statement nor its
    /// connection.
    pub(super) async fn append_lost(&self, session: &Session, lost: &[Revocation]) -> Result<Appended, QueryError> {
        Ok(self.write_and_enforce(session, &entries_of(lost), None).await?.1)
    }

    /// Appends the entries in one transaction with the mark, if the mark is new. A statement of its own: the entries of
    /// other calls do not depend on the mark.
    pub(super) async fn append_once(
        &self,
        mark: &MarkRow,
        entries: Vec<NewLogEntry>,
    ) -> Result<(FoundMark, Appended), QueryError> {
        let session = self.connections.session(Lane::Log).await?;
        let (found, appended) = self.write_and_enforce(&session, &entries, Some(mark)).await?;
        Ok((found.ok_or_else(|| StoreError::new("a mark was not written"))?, appended))
    }

    async fn write_and_enforce(
        &self,
        session: &Session,
        entries: &[NewLogEntry],
        mark: Option<&MarkRow>,
    ) -> Result<(Option<FoundMark>, Appended), QueryError> {
        let written = self.write(session, entries, mark).await;
        if !entries.is_empty() {
            announce(session);
        }
        let (found, appended) = written?;
        let enforced: Vec<Revocation> = appended.iter().flatten().cloned().collect();
        self.enforcement.enforce(&enforced)?;
        Ok((found, appended))
    }

    async fn write(
        &self,
        session: &Session,
        entries: &[NewLogEntry],
        mark: Option<&MarkRow>,
    ) -> Result<(Option<FoundMark>, Appended), QueryError> {
        let mut columns = Columns::default();
        for entry in entries {
            columns.push(entry, &self.own_issuer)?;
        }
        let admitted = self.audit.admit(session, entries.iter().map(|entry| entry.event.clone())).await?;
        let values = with_mark(columns.values(), mark);
        let values = values.with("event_ids", admitted.ids.clone()).with("events", admitted.events.clone());
        let rows = session.query_named(&APPEND, &values).await?;
        let mut appended: Appended = vec![None; entries.len()];
        let mut found = None;
        for row in &rows {
            if let Some(mark) = FoundMark::read(row)? {
                found = Some(mark);
                continue;
            }
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
        Ok((found, appended))
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
    by: Vec<Option<String>>,
    sessions: Vec<bool>,
    clients: Vec<Option<String>>,
}

impl Columns {
    fn values(self) -> NamedValues {
        NamedValues::default()
            .with("kinds", self.kinds)
            .with("issuers", self.issuers)
            .with("names", self.names)
            .with("not_after", self.not_after)
            .with("at", self.at)
            .with("reasons", self.reasons)
            .with("generations", self.generations)
            .with("effects", self.effects)
            .with("tags", self.tags)
            .with("by", self.by)
            .with("sessions", self.sessions)
            .with("clients", self.clients)
    }

    fn push(&mut self, entry: &NewLogEntry, own_issuer: &str) -> Result<(), StoreError> {
        let RevokedColumns { kind, issuer, name, not_after, is_session, client } = RevokedColumns::of(&entry.what);
        self.kinds.push(kind);
        self.issuers.push(issuer);
        self.names.push(name);
        self.not_after.push(not_after);
        self.sessions.push(is_session);
        self.clients.push(client);
        self.at.push(rows::time(entry.at));
        self.reasons.push(entry.reason.map(RevokeReason::as_str));
        self.generations.push(entry.generation.map(rows::counter).transpose()?);
        self.effects.push(effect(&entry.what, own_issuer).or_else(|| entry.is_lost.then_some("lost")));
        self.tags.push(secret::random::<16>().to_vec());
        self.by.push(entry.by.as_ref().map(|by| rows::text(&by.to_text())));
        Ok(())
    }
}

/// Adds the mark, or nulls if there is none.
fn with_mark(values: NamedValues, mark: Option<&MarkRow>) -> NamedValues {
    let stored = mark.map(|mark| &mark.stored);
    values
        .with("mark_id", stored.map(|mark| mark.id.to_vec()))
        .with("mark_kind", stored.map(|mark| mark.kind.as_str().to_owned()))
        .with("mark_value", stored.map(|mark| mark.value.to_vec()))
        .with("mark_until", stored.map(|mark| rows::time(mark.until)))
        .with("mark_tag", mark.map(|mark| mark.tag.to_vec()))
}

/// What the entry changes besides the log. Subjects of other issuers own no families. The watermark is stored without
/// the issuer, because the operator may rename the gateway, and its families stay valid.
fn effect(what: &Revoked, own_issuer: &str) -> Option<&'static str> {
    match what {
        Revoked::Everything { .. } => Some("everything"),
        // All families belong to the gateway's own issuer.
        Revoked::Issuer { issuer, .. } if issuer == own_issuer => Some("everything"),
        Revoked::Subject { issuer, .. } if issuer == own_issuer => Some("subject"),
        Revoked::Client { .. } => Some("client"),
        // A token of this gateway is accepted at a refresh long after it expired, while its family lives. Only this
        // entry stops it there, so that it is kept for as long.
        Revoked::Token { issuer, .. } if issuer == own_issuer => Some("token"),
        Revoked::Family(_)
        | Revoked::Token { .. }
        | Revoked::Session { .. }
        | Revoked::Subject { .. }
        | Revoked::Issuer { .. } => None,
    }
}
