//! Logins at providers.
//!
//! As for families, a decision is made from what was read, and written only if the row is still the same.

use std::sync::LazyLock;

use tokio_postgres::Row;

use crate::store::api::RevokedBy;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::pool::OperationKind;
use crate::store::postgres::attempts::Attempts;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families::RevokeFamily;
use crate::store::postgres::issue::Issue;
use crate::store::postgres::lookup::{MarkedFamily, find, found, mark_of};
use crate::store::postgres::named::{NamedStatement, NamedValues};
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rows::{self, family_columns, get};
use crate::store::postgres::session::Session;
use crate::store::provider_login::{
    AT_ONCE, Lease, LoginLease, ProviderLogin, RefreshedLogin, Renewed, Save, SavedLogin, StoredLogin,
};
use crate::store::watermark::with_watermark;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::Family;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::secret;

/// The columns that [`read`] reads, of the table with the name `l`.
macro_rules! login_columns {
    () => {
        "l.id as login_id, l.subject as login_subject, l.began_at, l.provider, l.root as login_root, l.sealed,
            l.version, l.due, l.claimed, l.holder, l.held_until, l.check_at, l.ended_at"
    };
}
pub(super) use login_columns;

const FIND: &str = concat!(
    "select ",
    family_columns!(),
    ", ",
    mark_of!("f.subject", "f.client_id"),
    " as mark, ",
    login_columns!(),
    ", l.changes from provider_logins l join families f on f.id = l.id where l.id = $1"
);

/// Returns true if the row is locked. The first use moves the idle end, as each later one does. A login that has ended
/// (`check_at` is [`AT_ONCE`], or the family says so) stays as it is: its provider is still to be told.
const CLAIM: &str = "with due as (
        select l.id from provider_logins l where l.id = $1 and not l.claimed
    ), locked as (
        select l.id from provider_logins l join due d on d.id = l.id where not l.claimed for update of l skip locked
    ), live as (
        select f.id from families f join locked l on f.id = l.id
        where f.revoked_at is null and f.idle_expiry > $2 and f.absolute_expiry > $2
    ), used as (
        select f.id from families f join live v on f.id = v.id where f.last_used_at < $2
            for update of f skip locked
    ), used_now as (
        update families f set last_used_at = $2, idle_expiry = case
                when f.idle is not null then greatest(f.idle_expiry, least($2 + f.idle, f.absolute_expiry))
                else f.idle_expiry end
            from used u where f.id = u.id
    ), claimed as (
        update provider_logins l set claimed = true, changes = l.changes + 1,
            check_at = (select least(f.idle_expiry, f.absolute_expiry) from families f where f.id = l.id)
        from live where l.id = live.id and l.check_at > 0
    )
    select exists (select from due) and not exists (select from locked) as locked";

const LEASE: &str = "with locked as (
        select l.id from provider_logins l where l.id = $1 and l.changes = $2 for update of l skip locked
    )
    update provider_logins l set holder = $3, held_until = $4, changes = l.changes + 1 from locked
    where l.id = locked.id and l.changes = $2";

/// Both rows change, or none. The lease of the caller ends; another one may have it meanwhile.
static SAVE: LazyLock<NamedStatement> = LazyLock::new(|| {
    NamedStatement::new(
        "with locked as (
        select f.id from families f join provider_logins l on l.id = f.id
        where f.id = :id and l.changes = :changes and f.revoked_at is null for update of f, l skip locked
    ), renewed as (
        update families f set scope = :scope, claims = :claims, address = coalesce(:address, f.address)
        from locked where f.id = locked.id returning f.id, least(f.idle_expiry, f.absolute_expiry) as ends
    ), saved as (
        update provider_logins l set provider = :provider, root = :root, sealed = :sealed, version = :version,
            due = :due, retry_at = 0, check_at = case when l.claimed then r.ends else l.check_at end,
            held_until = case when l.holder = :holder then 0 else l.held_until end, changes = l.changes + 1
        from renewed r where l.id = r.id returning 1
    ), recorded as (
        insert into audit (id, event) select e.id, e.event
        from saved, unnest(:event_ids::bytea[], :events::text[]) as e (id, event) where e.event is not null
        on conflict (id) do nothing
    )
    select exists (select from saved) as saved",
    )
});

/// The lease stays: more may follow.
const SAVE_TOKENS: &str = "with locked as (
        select l.id from provider_logins l where l.id = $1 and l.changes = $2 for update of l skip locked
    )
    update provider_logins l set root = $3, sealed = $4, version = $5, changes = l.changes + 1
    from locked where l.id = locked.id";

/// For a family that has ended.
const KEEP: &str = "with locked as (
        select l.id from provider_logins l where l.id = $1 and l.changes = $2 for update of l skip locked
    )
    update provider_logins l set provider = $3, root = $4, sealed = $5, version = $6, due = $7, check_at = $9,
        retry_at = 0, held_until = case when l.holder = $8 then 0 else l.held_until end, changes = l.changes + 1
    from locked where l.id = locked.id";

const INTERRUPTED: &str = "select l.id from provider_logins l join families f on f.id = l.id
    where l.held_until > 0 and l.held_until <= $1 and f.revoked_at is null and f.idle_expiry > $1
        and f.absolute_expiry > $1
    order by l.held_until desc limit $2";

/// Writes the family with its login, and then ends the one that it replaces: until this returns, the browser has
/// only that one.
pub(super) struct BeginLogin {
    issue: Issue,
    replaces: Option<TokenId>,
    context: EventContext,
}

impl BeginLogin {
    pub(super) fn new(issue: Issue, replaces: Option<TokenId>, context: EventContext) -> Self {
        BeginLogin { issue, replaces, context }
    }
}

impl Operation for BeginLogin {
    type Output = Option<Family>;

    const KIND: OperationKind = OperationKind::Issue;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Option<Family>, QueryError> {
        let Some(family) = self.issue.run(shared, session).await? else { return Ok(None) };
        self.issue.check(shared, session).await?;
        if let Some(id) = self.replaces
            && let Some(MarkedFamily { family: replaced, .. }) = find(session, id).await?
        {
            let owner = RevokedBy::Owner(replaced.subject);
            RevokeFamily::new(id, owner, self.context.clone()).run(shared, session).await?;
        }
        Ok(Some(family))
    }
}

/// A login as it was read, with its family as lists show it.
struct Read {
    family: Family,
    stored: StoredLogin,
    changes: i64,
}

async fn find_login(session: &Session, id: TokenId) -> Result<Option<Read>, QueryError> {
    let Some(row) = session.query_opt(FIND, &[&id.to_string()]).await? else { return Ok(None) };
    let MarkedFamily { family, mark } = found(&row)?;
    let family = with_watermark(family, mark);
    Ok(Some(Read { family, stored: read(&row)?, changes: get(&row, "changes")? }))
}

pub(super) fn read(row: &Row) -> Result<StoredLogin, StoreError> {
    let until = rows::read_time(row, "held_until")?;
    let holder = rows::read_bytes_or_null(row, "holder")?;
    Ok(StoredLogin {
        id: rows::token_id(get(row, "login_id")?)?,
        subject: rows::read_text(row, "login_subject")?,
        began_at: rows::read_time(row, "began_at")?,
        login: ProviderLogin {
            provider: rows::read_text(row, "provider")?,
            root: rows::read_root(row, "login_root")?,
            sealed: get(row, "sealed")?,
            version: rows::read_counter(row, "version")?,
            due: rows::read_time(row, "due")?,
            claimed: get(row, "claimed")?,
        },
        lease: holder.map(|holder| Lease { holder, until }),
        check_at: rows::read_time(row, "check_at")?,
        ended_at: rows::read_time_or_null(row, "ended_at")?,
    })
}

pub(super) struct ShowLogin {
    pub(super) id: TokenId,
}

impl Operation for ShowLogin {
    type Output = Option<(Family, ProviderLogin)>;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Self::Output, QueryError> {
        Ok(find_login(session, self.id).await?.map(|read| (read.family, read.stored.login)))
    }
}

pub(super) struct ClaimLogin {
    pub(super) id: TokenId,
    pub(super) at: UnixTime,
}

impl Operation for ClaimLogin {
    type Output = ();

    const KIND: OperationKind = OperationKind::Refresh;

    async fn run(&self, _: &Shared, session: &Session) -> Result<(), QueryError> {
        let mut attempts = Attempts::default();
        loop {
            let Some(found) = find_login(session, self.id).await? else { return Ok(()) };
            if !found.family.is_live(self.at) {
                return Ok(());
            }
            let row = session.query_opt(CLAIM, &[&self.id.to_string(), &rows::time(self.at)]).await?;
            if !row.map(|row| get::<bool>(&row, "locked")).transpose()?.unwrap_or_default() {
                return Ok(());
            }
            attempts.again(&format!("login {}", self.id)).await?;
        }
    }
}

pub(super) struct LeaseLogin {
    pub(super) id: TokenId,
    pub(super) version: u64,
    pub(super) wanted: Lease,
    pub(super) now: UnixTime,
}

impl Operation for LeaseLogin {
    type Output = LoginLease;

    const KIND: OperationKind = OperationKind::Refresh;

    async fn run(&self, _: &Shared, session: &Session) -> Result<LoginLease, QueryError> {
        let Lease { holder, until } = self.wanted;
        let mut attempts = Attempts::default();
        loop {
            let Some(Read { family, stored, changes }) = find_login(session, self.id).await? else {
                return Ok(LoginLease::Ended);
            };
            let outcome = stored.lease(family.is_live(self.now), self.version, holder, self.now);
            if outcome != LoginLease::Granted {
                return Ok(outcome);
            }
            let params = (self.id.to_string(), holder.to_vec(), rows::time(until));
            if session.execute(LEASE, &[&params.0, &changes, &params.1, &params.2]).await? > 0 {
                return Ok(outcome);
            }
            attempts.again(&format!("login {}", self.id)).await?;
        }
    }
}

pub(super) struct InterruptedLogins {
    pub(super) now: UnixTime,
    pub(super) limit: usize,
}

impl Operation for InterruptedLogins {
    type Output = Vec<(Family, ProviderLogin)>;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Self::Output, QueryError> {
        let mut logins = Vec::new();
        for row in session.query(INTERRUPTED, &[&rows::time(self.now), &rows::limit(self.limit)]).await? {
            let found = find_login(session, rows::token_id(get(&row, "id")?)?).await?;
            let found = found.filter(|found| found.family.is_live(self.now));
            logins.extend(found.map(|found| (found.family, found.stored.login)));
        }
        Ok(logins)
    }
}

pub(super) struct SaveLogin {
    id: TokenId,
    holder: [u8; 16],
    refreshed: RefreshedLogin,
    context: EventContext,
    event: [u8; 16],
}

impl SaveLogin {
    pub(super) fn new(id: TokenId, holder: [u8; 16], refreshed: RefreshedLogin, context: EventContext) -> Self {
        SaveLogin { id, holder, refreshed, context, event: secret::random() }
    }

    async fn write(
        &self,
        shared: &Shared,
        session: &Session,
        found: &Read,
        renewed: &Renewed,
    ) -> Result<bool, QueryError> {
        let Read { family, stored, changes } = found;
        let event = EventRow::new(self.event, &events::login_refreshed(family), &self.context);
        let admitted = shared.audit.admit(session, [Some(event)]).await?;
        let Renewed { scope, claims, .. } = renewed;
        let ProviderLogin { provider, root, sealed, version, .. } = &self.refreshed.login;
        let values = NamedValues::default()
            .with("id", self.id.to_string())
            .with("changes", *changes)
            .with("scope", rows::text(scope))
            .with("claims", rows::to_json(claims)?)
            .with("address", self.context.client.map(|address| address.to_string()))
            .with("provider", rows::text(provider))
            .with("root", i32::from(*root))
            .with("sealed", sealed.clone())
            .with("version", rows::counter(*version)?)
            .with("due", rows::time(stored.next_due(&self.refreshed.login, renewed)))
            .with("holder", self.holder.to_vec())
            .with("event_ids", admitted.ids.clone())
            .with("events", admitted.events.clone());
        let row = session.query_named_opt(&SAVE, &values).await?;
        let is_saved = row.map(|row| get(&row, "saved")).transpose()?.unwrap_or_default();
        shared.audit.report(&admitted, std::iter::once(is_saved));
        Ok(is_saved)
    }

    async fn write_tokens(&self, session: &Session, changes: i64) -> Result<bool, QueryError> {
        let ProviderLogin { root, sealed, version, .. } = &self.refreshed.login;
        let id = self.id.to_string();
        let root = i32::from(*root);
        let version = rows::counter(*version)?;
        Ok(session.execute(SAVE_TOKENS, &[&id, &changes, &root, &sealed.as_slice(), &version]).await? > 0)
    }

    async fn keep(&self, session: &Session, changes: i64) -> Result<bool, QueryError> {
        let ProviderLogin { provider, root, sealed, version, due, .. } = &self.refreshed.login;
        let kept = session
            .execute(
                KEEP,
                &[
                    &self.id.to_string(),
                    &changes,
                    &rows::text(provider),
                    &i32::from(*root),
                    &sealed.as_slice(),
                    &rows::counter(*version)?,
                    &rows::time(*due),
                    &self.holder.to_vec(),
                    &rows::time(AT_ONCE),
                ],
            )
            .await?;
        Ok(kept > 0)
    }
}

impl Operation for SaveLogin {
    type Output = SavedLogin;

    const KIND: OperationKind = OperationKind::Refresh;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<SavedLogin, QueryError> {
        let mut attempts = Attempts::default();
        loop {
            let Some(found) = find_login(session, self.id).await? else {
                return Ok(SavedLogin::Forgotten);
            };
            let is_live = found.family.is_live(self.context.at);
            let (written, outcome) = match found.stored.save(is_live, &self.refreshed.login) {
                Save::Nothing(outcome) => (true, outcome),
                Save::Written => {
                    session.wait_until_durable().await?;
                    (true, SavedLogin::Saved)
                }
                Save::Keep => (self.keep(session, found.changes).await?, SavedLogin::Ended),
                Save::Write => {
                    let written = match &self.refreshed.renewed {
                        Some(renewed) => self.write(shared, session, &found, renewed).await?,
                        None => self.write_tokens(session, found.changes).await?,
                    };
                    (written, SavedLogin::Saved)
                }
            };
            if written {
                return Ok(outcome);
            }
            attempts.again(&format!("login {}", self.id)).await?;
        }
    }
}
