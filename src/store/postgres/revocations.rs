//! Revocations of anything but one family, and reading the log.

use crate::store::api::MAX_REVOCATIONS;
use crate::store::endings::Revoker;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::late::CallTime;
use crate::store::pool::OperationKind;
use crate::store::postgres::append::NewLogEntry;
use crate::store::postgres::attempts::Attempts;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::origins;
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rows::{self, family_columns, revocation_columns};
use crate::store::postgres::session::Session;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::{Family, RevokeReason, RevokedAt};
use crate::types::clock::UnixTime;
use crate::types::secret;

const LATER_OF_SUBJECT: &str = concat!(
    "select ",
    family_columns!(),
    " from families f where f.subject = $1 and f.created_at > $2 and f.revoked_at is null limit $3"
);
const LATER: &str =
    concat!("select ", family_columns!(), " from families f where f.created_at > $1 and f.revoked_at is null limit $2");
const LATER_OF_CLIENT: &str = concat!(
    "select ",
    family_columns!(),
    " from families f where f.client_id = $1 collate \"C\" and f.client_id <> '' and ($2::text is null or f.subject = $2)
        and f.created_at > $3 and f.revoked_at is null limit $4"
);
/// Number of families that end in one transaction.
const MAX_ENDED: usize = 512;

const SINCE: &str =
    concat!("select ", revocation_columns!(), " from revocations r where r.sequence > $1 order by r.sequence limit $2");
/// Number of entries that are read at once. Other operations use the same connection.
const PAGE: usize = 4_096;

pub(super) struct Revoke {
    what: Revoked,
    context: EventContext,
    event: [u8; 16],
    call: CallTime,
}

impl Revoke {
    pub(super) fn new(what: Revoked, context: EventContext) -> Self {
        Revoke { what, context, event: secret::random(), call: CallTime::begin() }
    }

    /// Some of the existing families that are dated after the watermark: the clock was set back since their login.
    /// None after the time of the caller: they may have begun after it has got its error.
    async fn later_families(&self, shared: &Shared, session: &Session) -> Result<Vec<Family>, QueryError> {
        // A watermark in the past spares later families on purpose.
        let limit = rows::limit(MAX_ENDED);
        let is_of_now = |not_after: &UnixTime| *not_after >= self.context.at;
        let found = match &self.what {
            Revoked::Subject { issuer, subject, not_after } if *issuer == shared.issuer && is_of_now(not_after) => {
                session.query(LATER_OF_SUBJECT, &[&rows::text(subject), &rows::time(*not_after), &limit]).await?
            }
            Revoked::Issuer { issuer, not_after } if *issuer == shared.issuer && is_of_now(not_after) => {
                session.query(LATER, &[&rows::time(*not_after), &limit]).await?
            }
            Revoked::Client { client_id, subject, not_after } if is_of_now(not_after) => {
                let client_id = rows::text(client_id);
                let subject = subject.as_deref().map(rows::text);
                session.query(LATER_OF_CLIENT, &[&client_id, &subject, &rows::time(*not_after), &limit]).await?
            }
            Revoked::Everything { not_after } if is_of_now(not_after) => {
                session.query(LATER, &[&rows::time(*not_after), &limit]).await?
            }
            _ => return Ok(Vec::new()),
        };
        // After the answer, because the database may have been away since the question.
        if self.call.check(shared.timeout).is_err() {
            return Ok(Vec::new());
        }
        Ok(found.iter().map(rows::family).collect::<Result<_, _>>()?)
    }

    /// What to append: the revocation, some of the families that are dated later, and some of those that came from what
    /// is revoked. With the number of later ones.
    pub(super) async fn entries(
        &self,
        shared: &Shared,
        session: &Session,
    ) -> Result<(Vec<NewLogEntry>, usize), QueryError> {
        let mut entries = vec![self.entry()?];
        let later = self.later_families(shared, session).await?;
        entries.extend(self.ends(&later));
        entries.extend(self.ends(&self.families_of_origin(shared, session).await?));
        Ok((entries, later.len()))
    }

    async fn families_of_origin(&self, shared: &Shared, session: &Session) -> Result<Vec<Family>, QueryError> {
        origins::families_of(shared, session, &self.what, self.context.at, MAX_ENDED).await
    }

    fn entry(&self) -> Result<NewLogEntry, StoreError> {
        if let Revoked::Family(id) = self.what {
            let text = format!("family {id} must be revoked by revoke_family, which checks the owner");
            return Err(StoreError::new(text));
        }
        let event = EventRow::new(self.event, &events::revocation(&self.what), &self.context);
        let reason = None;
        let generation = None;
        let event = Some(event);
        let by = Revoker::of(RevokeReason::Admin, &self.context);
        Ok(NewLogEntry { what: self.what.clone(), at: self.context.at, reason, by, generation, event, is_lost: false })
    }

    /// The revocation is written. What is left are families that it does not cover: if `is_incomplete`, some of those
    /// that are dated later, and those that came from what is revoked and could not be seen before.
    pub(super) async fn end_the_rest(
        &self,
        shared: &Shared,
        session: &Session,
        mut is_incomplete: bool,
    ) -> Result<(), QueryError> {
        let mut attempts = Attempts::default();
        while is_incomplete {
            let later = self.later_families(shared, session).await?;
            is_incomplete = self.end_some(shared, &later, &mut attempts).await?;
        }
        loop {
            let left = self.families_of_origin(shared, session).await?;
            if left.is_empty() {
                return Ok(());
            }
            self.end_some(shared, &left, &mut attempts).await?;
        }
    }

    /// Returns true if some may be left.
    async fn end_some(
        &self,
        shared: &Shared,
        families: &[Family],
        attempts: &mut Attempts,
    ) -> Result<bool, QueryError> {
        let appended = shared.log.append(self.ends(families).collect()).await?;
        if has_locked(&appended) {
            attempts.again("a family to end").await?
        } else {
            *attempts = Attempts::default()
        }
        Ok(is_incomplete(&appended))
    }

    fn ends<'a>(&'a self, families: &'a [Family]) -> impl Iterator<Item = NewLogEntry> + 'a {
        let revoked = RevokedAt { at: self.context.at, reason: RevokeReason::Admin };
        families.iter().map(move |family| {
            let event = events::ended(family, revoked.reason, &self.context);
            let event = EventRow::new(secret::random(), &event, &self.context);
            families::end(family, revoked, None, event, &self.context)
        })
    }
}

impl Operation for Revoke {
    type Output = u64;

    const KIND: OperationKind = OperationKind::Revoke;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<u64, QueryError> {
        let (entries, later) = self.entries(shared, session).await?;
        let appended = shared.log.append(entries).await?;
        let first = appended.first().cloned().flatten();
        let is_incomplete = is_incomplete(appended.get(1..=later).unwrap_or_default());
        self.end_the_rest(shared, session, is_incomplete).await?;
        Ok(first.ok_or_else(|| StoreError::new("the written revocation is missing"))?.sequence)
    }
}

/// Returns true if there may be more families to end: there are too many, or some were locked, or have ended meanwhile.
pub(super) fn is_incomplete(appended: &[Option<Revocation>]) -> bool {
    appended.len() == MAX_ENDED || has_locked(appended)
}

fn has_locked(appended: &[Option<Revocation>]) -> bool {
    appended.iter().any(Option::is_none)
}

pub(super) struct Since {
    pub(super) after: u64,
}

impl Operation for Since {
    type Output = Vec<Revocation>;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Vec<Revocation>, QueryError> {
        since(session, self.after, MAX_REVOCATIONS).await
    }
}

/// Reads pages, each of which is newer than the last one: entries appear in the order of their sequence.
pub(super) async fn since(session: &Session, after: u64, max: usize) -> Result<Vec<Revocation>, QueryError> {
    let mut found = Vec::new();
    let mut after = rows::counter(after)?;
    loop {
        let limit = PAGE.min(max - found.len());
        let page = session.query(SINCE, &[&after, &rows::limit(limit)]).await?;
        for row in &page {
            found.push(rows::revocation(row)?);
        }
        match page.last() {
            Some(last) if found.len() < max => after = rows::get(last, "sequence")?,
            _ => return Ok(found),
        }
    }
}
