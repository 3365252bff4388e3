//! The login: writes a family, and ends those beyond the limit of its subject.

use std::sync::LazyLock;

use parking_lot::Mutex;
use tokio_postgres::Row;

use crate::store::api::RevokedBy;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::late::CallTime;
use crate::store::pool::OperationKind;
use crate::store::postgres::append::NewLogEntry;
use crate::store::postgres::attempts::Attempts;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families::RevokeFamily;
use crate::store::postgres::grants::end_superseded;
use crate::store::postgres::lookup::mark_of;
use crate::store::postgres::named::{NamedStatement, NamedValues};
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::origins::{self, origin_is_revoked};
use crate::store::postgres::outbox::EventRow;
use crate::store::postgres::rows::{self, GrantColumns, family_columns};
use crate::store::postgres::session::Session;
use crate::store::provider_login::{ProviderLogin, StoredLogin};
use crate::tokens::audit_event::{Event, EventContext};
use crate::tokens::authorization::grant::GrantedFamily;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::{Family, RevokeReason};
use crate::types::clock::UnixTime;
use crate::types::secret;

/// Inserts a family, unless a watermark voids it or its id is taken. It counts as used after all other live families of
/// the subject, even if the clock says otherwise: so all logins have one order for [`SURPLUS`].
///
/// The second event, if there is one, is written only if the client is new to the subject.
macro_rules! issue {
    ($is_revoked:expr, $has_client:literal, $with_login:literal) => {
        concat!(
            "with found as (
                select ",
            mark_of!(":subject", ":client_id"),
            " as mark, ",
            $is_revoked,
            " as is_revoked, ",
            $has_client,
            " as has_client, (
                    select max(least(f.last_used_at, 9223372036854775806)) + 1 from families f
                    where f.subject = :subject and f.revoked_at is null and f.key_hash is null
                        and f.last_used_at >= :last_used_at
                        and f.idle_expiry > :created_at and f.absolute_expiry > :created_at
                ) as after_others
            ), inserted as (
                insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation, root,
                    rotated_at, confirmed, created_at, last_used_at, idle, idle_expiry, absolute_expiry, revoked_at,
                    revoked_reason, address, key_hash, origin_issuer, origin_subject, origin_session, origin_dated,
                    key_rate, superseded_at, late_refreshes)
                select :id, :subject, :scope, :audience, :client_id, :claims, :label, :salt, :generation, :root,
                    :rotated_at, :confirmed, :created_at,
                    case when :key_hash::bytea is null then coalesce(found.after_others, :last_used_at)
                        else :last_used_at end,
                    :idle, :idle_expiry, :absolute_expiry, :revoked_at, :revoked_reason, :address, :key_hash,
                    :origin_issuer, :origin_subject, :origin_session, :origin_dated, :key_rate,
                    :superseded_at, :late_refreshes
                from found where coalesce(found.mark, -1) < :created_at and not found.is_revoked
                on conflict (id) do nothing
                returning id
            ), recorded as (
                insert into audit (id, event) select e.id, e.event
                from inserted, found,
                    unnest(:event_ids::bytea[], :events::text[]) with ordinality as e (id, event, n)
                where e.event is not null and (e.n = 1 or not found.has_client)
                order by e.n
                on conflict (id) do nothing
            )",
            $with_login,
            " select exists (select from inserted) as inserted, found.has_client,
                coalesce(found.mark, -1) >= :created_at or found.is_revoked as void,
                (select o.salt = :salt from families o where o.id = :id) as repeated
            from found"
        )
    };
}

macro_rules! of_revoked_origin {
    () => {
        origin_is_revoked!(
            ":origin_issuer::text",
            ":origin_subject::text",
            ":origin_session::text",
            ":origin_dated::bigint"
        )
    };
}

/// A login of the gateway's own does not read the log of revocations.
static ISSUE: LazyLock<NamedStatement> = LazyLock::new(|| NamedStatement::new(issue!("false", "false", "")));
static ISSUE_OF_ORIGIN: LazyLock<NamedStatement> =
    LazyLock::new(|| NamedStatement::new(issue!(of_revoked_origin!(), "false", "")));
/// As for a list, it reads no more families than the newest 1,000.
static ISSUE_GRANT: LazyLock<NamedStatement> = LazyLock::new(|| {
    NamedStatement::new(issue!(
        of_revoked_origin!(),
        "exists (
            select from (
                select f.client_id from families f where f.subject = :subject and f.key_hash is null
                order by f.created_at desc, f.id desc limit 1000
            ) newest where newest.client_id = :client_id
        )",
        ""
    ))
});
static ISSUE_WITH_LOGIN: LazyLock<NamedStatement> = LazyLock::new(|| {
    NamedStatement::new(issue!(
        of_revoked_origin!(),
        "false",
        ", with_login as (
            insert into provider_logins
                (id, subject, began_at, provider, root, sealed, version, due, claimed, held_until, check_at, retry_at)
            select i.id, :subject, :created_at, :provider, :login_root, :sealed, :version, :due, :claimed, 0,
                :check_at, 0
            from inserted i
        )"
    ))
});

/// The live families of a subject beyond the limit, the most recently used first. Each login asks when its family is
/// committed, and before it is answered: the last one of several at the same time sees all of them. It may be that one
/// of the others, and not an old family, is the surplus.
const SURPLUS: &str = concat!(
    "select ",
    family_columns!(),
    " from families f
    where f.subject = $1 and f.revoked_at is null and f.key_hash is null and f.generation > 0
        and f.idle_expiry > $2 and f.absolute_expiry > $2
        and f.created_at > coalesce(",
    mark_of!("$1", "f.client_id"),
    ", -1)
        and ($4::text is null or f.client_id = $4)
    order by f.last_used_at desc, f.created_at desc, f.id desc offset $3"
);

pub(super) struct Issue {
    pub(super) family: Family,
    /// At a provider.
    login: Option<StoredLogin>,
    /// If a user has granted the family to a client.
    grant: Option<GrantedFamily>,
    max_live: usize,
    context: EventContext,
    events: [[u8; 16]; 2],
    pub(super) call: CallTime,
    /// If true, an earlier attempt has written the family, or may have before its connection was lost.
    pub(super) uncertain: Mutex<bool>,
}

impl Issue {
    pub(super) fn new(family: Family, max_live: usize, context: EventContext) -> Self {
        Issue {
            family,
            login: None,
            grant: None,
            max_live,
            context,
            events: [secret::random(), secret::random()],
            call: CallTime::begin(),
            uncertain: Mutex::new(false),
        }
    }

    pub(super) fn of_grant(grant: GrantedFamily, max_live: usize, context: EventContext) -> Self {
        Issue { grant: Some(grant.clone()), ..Issue::new(grant.family, max_live, context) }
    }

    pub(super) fn with_login(family: Family, login: ProviderLogin, max_live: usize, context: EventContext) -> Self {
        let login = Some(StoredLogin::begun(&family, login));
        Issue { login, ..Issue::new(family, max_live, context) }
    }

    /// The columns of the family.
    fn values(&self) -> Result<NamedValues, StoreError> {
        let family = &self.family;
        let origin = origins::Columns::of(family.origin.as_ref());
        let grant = GrantColumns::of(family.grant);
        Ok(NamedValues::default()
            .with("id", family.id.to_string())
            .with("subject", rows::text(&family.subject))
            .with("scope", rows::text(&family.scope))
            .with("audience", rows::to_json(&family.audience)?)
            .with("client_id", rows::text(&family.client_id))
            .with("claims", rows::to_json(&family.claims)?)
            .with("label", rows::text(&family.label))
            .with("salt", family.salt.to_vec())
            .with("generation", rows::counter(family.generation)?)
            .with("root", i32::from(family.root))
            .with("rotated_at", rows::time(family.rotated_at))
            .with("confirmed", rows::counter(family.confirmed)?)
            .with("created_at", rows::time(family.created_at))
            .with("last_used_at", rows::time(family.last_used_at))
            .with("idle", family.idle.map(rows::millis))
            .with("idle_expiry", rows::time(family.idle_expiry))
            .with("absolute_expiry", rows::time(family.absolute_expiry))
            .with("revoked_at", family.revoked.map(|revoked| rows::time(revoked.at)))
            .with("revoked_reason", family.revoked.map(|revoked| revoked.reason.as_str()))
            .with("address", family.address.map(|address| address.to_string()))
            .with("key_hash", family.key_hash.map(|hash| hash.to_vec()))
            .with("key_rate", family.key_rate.map(|rate| rate.to_string()))
            .with("origin_issuer", origin.issuer)
            .with("origin_subject", origin.subject)
            .with("origin_session", origin.session)
            .with("origin_dated", origin.dated)
            .with("superseded_at", grant.superseded_at)
            .with("late_refreshes", grant.late_refreshes))
    }

    async fn insert(&self, shared: &Shared, session: &Session) -> Result<Row, QueryError> {
        let family = &self.family;
        let admitted = shared.audit.admit(session, self.event_rows()).await?;
        let values = self.values()?.with("event_ids", admitted.ids.clone()).with("events", admitted.events.clone());
        let inserted = match &self.login {
            Some(login) => session.query_named_opt(&ISSUE_WITH_LOGIN, &with_login(values, login)?).await?,
            None if self.grant.is_some() => session.query_named_opt(&ISSUE_GRANT, &values).await?,
            None if family.origin.is_some() => session.query_named_opt(&ISSUE_OF_ORIGIN, &values).await?,
            None => session.query_named_opt(&ISSUE, &values).await?,
        };
        let inserted = inserted.ok_or_else(|| StoreError::new("a login was not written"))?;
        let is_inserted: bool = rows::get(&inserted, "inserted")?;
        let has_client: bool = rows::get(&inserted, "has_client")?;
        shared.audit.report(&admitted, [is_inserted, is_inserted && !has_client].into_iter());
        Ok(inserted)
    }

    fn event_rows(&self) -> Vec<Option<EventRow>> {
        let [first, second] = self.events;
        let row = |id, event: &Event| Some(EventRow::new(id, event, &self.context));
        match &self.grant {
            Some(grant) => vec![row(first, &events::granted(grant)), row(second, &events::client_seen(grant))],
            None => vec![row(first, &events::issued(&self.family))],
        }
    }

    /// Ends the families beyond the limit: those of the subject, or of its sessions of one client.
    async fn keep_limit(
        &self,
        shared: &Shared,
        session: &Session,
        max_live: usize,
        client_id: Option<&str>,
    ) -> Result<(), QueryError> {
        let subject = rows::text(&self.family.subject);
        let client_id = client_id.map(rows::text);
        let now = rows::time(self.now());
        let mut attempts = Attempts::default();
        loop {
            let beyond = session.query(SURPLUS, &[&subject, &now, &rows::limit(max_live.max(1)), &client_id]).await?;
            let end = |row: &Row| Ok::<_, StoreError>(self.end(&rows::family(row)?));
            let surplus: Vec<NewLogEntry> = beyond.iter().map(end).collect::<Result<_, _>>()?;
            if surplus.is_empty() || shared.log.append(surplus).await?.iter().all(Option::is_some) {
                return Ok(());
            }
            attempts.again("a family beyond the limit").await?;
        }
    }

    /// Returns true if a revocation covers the origin of the family. Asked when the family is committed: a revocation
    /// that did not see the family is seen here.
    async fn is_revoked_meanwhile(&self, session: &Session) -> Result<bool, QueryError> {
        match &self.family.origin {
            Some(origin) => origins::is_revoked(session, origin).await,
            None => Ok(false),
        }
    }

    /// The time of the call. The family can be dated earlier: that of an authorization code, by the consent.
    fn now(&self) -> UnixTime {
        self.family.created_at.max(self.context.at)
    }

    /// Fails if the caller has got its error. The family, which it never learns of, must not end others. If it may be
    /// written, it ends itself.
    pub(super) async fn check(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        let Err(late) = self.call.check(shared.timeout) else { return Ok(()) };
        if *self.uncertain.lock() {
            self.end_revoked(shared, session).await?;
        }
        Err(late.into())
    }

    /// Ends the family, which is written, and which no caller knows yet.
    async fn end_revoked(&self, shared: &Shared, session: &Session) -> Result<(), QueryError> {
        let ended = RevokeFamily::new(self.family.id, RevokedBy::Admin, self.context.clone());
        ended.run(shared, session).await.map(drop)
    }

    fn end(&self, surplus: &Family) -> NewLogEntry {
        let reason = RevokeReason::Limit;
        NewLogEntry {
            what: Revoked::Family(surplus.id),
            at: self.now(),
            reason: Some(reason),
            by: None,
            generation: None,
            event: Some(EventRow::new(secret::random(), &events::ended(surplus, reason, &self.context), &self.context)),
            is_lost: false,
        }
    }
}

/// Adds the columns of the login at a provider.
fn with_login(values: NamedValues, stored: &StoredLogin) -> Result<NamedValues, StoreError> {
    let ProviderLogin { provider, root, sealed, version, due, claimed } = &stored.login;
    Ok(values
        .with("provider", rows::text(provider))
        .with("login_root", i32::from(*root))
        .with("sealed", sealed.clone())
        .with("version", rows::counter(*version)?)
        .with("due", rows::time(*due))
        .with("claimed", *claimed)
        .with("check_at", rows::time(stored.check_at)))
}

/// What an attempt has found.
pub(super) enum Attempted {
    Written,
    Void,
    /// Another call has written a family with this id.
    Taken,
}

impl Issue {
    pub(super) async fn attempt(&self, shared: &Shared, session: &Session) -> Result<Attempted, QueryError> {
        self.check(shared, session).await?;
        let inserted = self.insert(shared, session).await;
        let was_uncertain = *self.uncertain.lock();
        if matches!(inserted, Err(QueryError::Lost(_))) {
            *self.uncertain.lock() = true;
        }
        let inserted = inserted?;
        // The rest of this attempt may fail. The family of another call is not ours to end.
        if rows::get::<bool>(&inserted, "inserted")? {
            *self.uncertain.lock() = true;
        }
        // Only the lost attempt has the same random salt.
        let is_repeated = was_uncertain && rows::get::<Option<bool>>(&inserted, "repeated")?.unwrap_or_default();
        let is_written = rows::get::<bool>(&inserted, "inserted")? || is_repeated;
        if rows::get(&inserted, "void")? {
            if is_written {
                self.end_revoked(shared, session).await?;
            }
            return Ok(Attempted::Void);
        }
        if !is_written {
            return Ok(Attempted::Taken);
        }
        self.check(shared, session).await?;
        // Before the limit, for which they do not count any more.
        if self.family.grant.is_some() {
            end_superseded(shared, session, &self.family, &self.context).await?;
        }
        if self.family.has_refresh_token() {
            // First the sessions of the client, so that a client ends its own sessions before those of others.
            if let Some(grant) = &self.grant {
                self.keep_limit(shared, session, grant.max_live, Some(&self.family.client_id)).await?;
            }
            self.keep_limit(shared, session, self.max_live, None).await?;
        }
        if self.is_revoked_meanwhile(session).await? {
            self.end_revoked(shared, session).await?;
            return Ok(Attempted::Void);
        }
        Ok(Attempted::Written)
    }
}

impl Operation for Issue {
    type Output = Option<Family>;

    const KIND: OperationKind = OperationKind::Issue;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Option<Family>, QueryError> {
        match self.attempt(shared, session).await? {
            Attempted::Written => Ok(Some(self.family.clone())),
            Attempted::Void => Ok(None),
            Attempted::Taken => Err(StoreError::new(format!("there is already a family {}", self.family.id)).into()),
        }
    }
}
