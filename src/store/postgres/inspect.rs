//! The database without a store: what a start reads first, what commands read beside running gateways, and its check.
//!
//! Each function opens one connection on a thread of its own, so that it can be called from any thread.

use std::future::Future;
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::time::{Instant, sleep};

use crate::store::error::StoreError;
use crate::store::postgres::connect::Connector;
use crate::store::postgres::error::{ConnectError, QueryError};
use crate::store::postgres::session::Session;
use crate::store::postgres::settings::PostgresSettings;
use crate::store::postgres::tls::Tls;
use crate::store::postgres::{lookup, revocations, signing_keys};
use crate::tokens::family::Family;
use crate::tokens::family::revocation::Revocation;
use crate::tokens::signing::StoredKey;
use crate::types::ids::TokenId;

/// How long to wait between two attempts to connect.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// A gateway that starts leaves a value of its root secret, and a copy its mark. `bearward store migrate` leaves
/// neither.
const IS_USED: &str = "select exists (select from root_check) or exists (select from meta m where m.name = 'copy')";
const IS_INITIALIZED: &str = "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = current_schema() and c.relname = 'schema_versions')";

/// Returns true if a gateway has used the tables, or a copy has filled them: they then belong to a root secret.
pub fn is_initialized(settings: &PostgresSettings, tls: Option<Tls>, patience: Duration) -> Result<bool, StoreError> {
    with_session(settings, tls, patience, |session| async move {
        Ok(has_tables(&session).await? && session.is(IS_USED).await?)
    })
}

/// The revocations with a sequence above `after`. None without tables.
pub fn revocations(settings: &PostgresSettings, tls: Option<Tls>, after: u64) -> Result<Vec<Revocation>, StoreError> {
    with_session(settings, tls, Duration::ZERO, move |session| async move {
        if has_tables(&session).await? { revocations::since(&session, after, usize::MAX).await } else { Ok(Vec::new()) }
    })
}

/// The family with this id. `None` without tables.
pub fn family(settings: &PostgresSettings, tls: Option<Tls>, id: TokenId) -> Result<Option<Family>, StoreError> {
    with_session(settings, tls, Duration::ZERO, move |session| async move {
        if has_tables(&session).await? {
            Ok(lookup::find(&session, id).await?.map(|found| found.family))
        } else {
            Ok(None)
        }
    })
}

/// The signing keys, newest first. None without tables.
pub fn signing_keys(settings: &PostgresSettings, tls: Option<Tls>) -> Result<Vec<StoredKey>, StoreError> {
    with_session(settings, tls, Duration::ZERO, |session| async move {
        if has_tables(&session).await? { Ok(signing_keys::read_all(&session).await?.1) } else { Ok(Vec::new()) }
    })
}

pub(super) async fn has_tables(session: &Session) -> Result<bool, QueryError> {
    session.is(IS_INITIALIZED).await
}

/// Runs `work` on one connection. Tries to connect for `patience`.
pub(super) fn with_session<T, F, Fut>(
    settings: &PostgresSettings,
    tls: Option<Tls>,
    patience: Duration,
    work: F,
) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: FnOnce(Session) -> Fut + Send + 'static,
    Fut: Future<Output = Result<T, QueryError>> + Send,
{
    let connector = Connector::new(settings.clone(), tls, "inspect");
    let failed = |error: std::io::Error| StoreError::new(format!("cannot start a thread for the database: {error}"));
    let run = move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let result = runtime.block_on(async {
            let session = connect(&connector, patience).await?;
            work(session).await.map_err(QueryError::into_store_error)
        });
        // Does not wait for a name server that does not respond.
        runtime.shutdown_background();
        result
    };
    let thread = thread::Builder::new().name("database".into()).spawn(run).map_err(failed)?;
    thread.join().unwrap_or_else(|_| Err(StoreError::new("the thread for the database panicked")))
}

pub(super) async fn connect(connector: &Connector, patience: Duration) -> Result<Session, StoreError> {
    let deadline = Instant::now() + patience;
    loop {
        match connector.connect().await {
            Ok((session, driven)) => {
                tokio::spawn(driven);
                return Ok(session);
            }
            Err(ConnectError { error, is_permanent }) if is_permanent || Instant::now() >= deadline => {
                return Err(error);
            }
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}
