//! Checks that the session of a new connection keeps the promises of the store.

use std::time::Duration;

use crate::store::error::{FailureKind, StoreError};
use crate::store::postgres::error::{ConnectError, QueryError};
use crate::store::postgres::primary::Answer;
use crate::store::postgres::session::Session;
use crate::store::postgres::settings::PostgresSettings;
use crate::store::postgres::timeline::Timeline;

/// PostgreSQL 13 ended in 2025.
const MIN_VERSION: i32 = 140_000;

/// Read back after each connect, because a pooler or the settings of the role can override what was asked for.
const SESSION: &str = "select current_setting('server_version_num')::int4, current_setting('server_version'),
    current_setting('transaction_read_only') = 'on', current_setting('server_encoding'),
    current_setting('synchronous_commit'), current_setting('default_transaction_isolation'),
    current_setting('search_path'), current_setting('statement_timeout') <> '0'
    and current_setting('lock_timeout') <> '0' and current_setting('idle_in_transaction_session_timeout') <> '0',
    coalesce(current_setting('bearward.direct', true), '') <> 'on',
    coalesce((select not has_schema_privilege(n.oid, 'usage') from pg_namespace n
        where n.nspname = btrim(split_part(current_setting('search_path'), ',', 1), ' \"')), false)";

/// Prepared as any statement: is it known to the server by the name that the gateway gave it? A pooler that supports
/// prepared statements gives them names of its own.
const KEEPS_NAMES: &str = "select exists (select from pg_prepared_statements where name ~ '^s[0-9]+$' and statement like '%as keeps_names') \
     as keeps_names";

/// Only a server that accepts changes has a position in its log.
const TIMELINE: &str = "select (select system_identifier from pg_control_system()),
    case when current_setting('transaction_read_only') = 'off'
        then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int4 end";

/// What the server writes.
pub(super) async fn timeline(session: &Session, limit: Duration) -> Answer {
    let rows = session.first_query(TIMELINE, limit).await?;
    let read =
        |row: &tokio_postgres::Row| Some(Timeline { system: row.try_get(0).ok()?, number: row.try_get(1).ok()? });
    Ok(rows.first().and_then(read))
}

/// Fails if the server or the session cannot keep the promises of the store.
pub(super) async fn check(session: &Session, settings: &PostgresSettings) -> Result<(), ConnectError> {
    let rows = session.first_query(SESSION, 2 * settings.target.connect_timeout).await;
    let rows = rows.map_err(|error| ConnectError {
        is_permanent: matches!(error, QueryError::Rejected(_)),
        error: error.into_store_error(),
    })?;
    let row = rows.first().ok_or_else(|| ConnectError::transient("the server did not report its settings"))?;
    let checked = Reported::read(row).map_err(|error| ConnectError::transient(&error.message))?;
    checked.check(&settings.schema, &settings.target.user)?;
    if checked.is_pooled && settings.prepared { check_pooler(session).await } else { Ok(()) }
}

/// What the server reports about a session.
struct Reported {
    version: i32,
    version_text: String,
    is_read_only: bool,
    encoding: String,
    synchronous_commit: String,
    isolation: String,
    search_path: String,
    has_timeouts: bool,
    /// The settings of the gateway did not reach the server.
    is_pooled: bool,
    /// The server skips a schema that the user may not use, as if it had no tables.
    is_schema_forbidden: bool,
}

impl Reported {
    fn read(row: &tokio_postgres::Row) -> Result<Reported, StoreError> {
        Ok(Reported {
            version: row.try_get(0)?,
            version_text: row.try_get(1)?,
            is_read_only: row.try_get(2)?,
            encoding: row.try_get(3)?,
            synchronous_commit: row.try_get(4)?,
            isolation: row.try_get(5)?,
            search_path: row.try_get(6)?,
            has_timeouts: row.try_get(7)?,
            is_pooled: row.try_get(8)?,
            is_schema_forbidden: row.try_get(9)?,
        })
    }

    fn check(&self, schema: &str, user: &str) -> Result<(), ConnectError> {
        let permanent = |text: String| Err(ConnectError { error: StoreError::new(text), is_permanent: true });
        if self.version < MIN_VERSION {
            return permanent(format!("PostgreSQL {} is too old; the gateway needs 14 or later", self.version_text));
        }
        if self.is_read_only {
            let error = StoreError::new("this server is read-only, so it is not the primary");
            return Err(ConnectError { error: error.of_kind(FailureKind::ReadOnly), is_permanent: false });
        }
        if self.encoding != "UTF8" {
            return permanent(format!(
                "the database has the encoding {}; create it with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
                self.encoding
            ));
        }
        if matches!(self.synchronous_commit.as_str(), "off" | "local") {
            return permanent(format!(
                "synchronous_commit is {} for this user, so that a crash can lose revocations; \
                 set it with ALTER ROLE … SET synchronous_commit = on",
                self.synchronous_commit
            ));
        }
        if self.isolation != "read committed" {
            return permanent(self.overridden("default_transaction_isolation", &self.isolation, "'read committed'"));
        }
        if self.search_path.split(',').next().map(|first| first.trim().trim_matches('"')) != Some(schema) {
            return permanent(self.overridden("search_path", &self.search_path, schema));
        }
        if !self.has_timeouts {
            return permanent(self.overridden("statement_timeout or lock_timeout", "0", "5000"));
        }
        if self.is_schema_forbidden {
            return permanent(format!(
                "{user} may not use the schema \"{schema}\"; run as its owner: GRANT USAGE ON SCHEMA {schema} TO {user}"
            ));
        }
        Ok(())
    }

    /// The session has another value than the gateway has asked for.
    fn overridden(&self, name: &str, value: &str, wanted: &str) -> String {
        format!(
            "a connection pooler ignores the settings of the gateway: {name} is {value}; \
             set it with ALTER ROLE … SET {name} = {wanted}"
        )
    }
}

/// A pooler without support for prepared statements sends them to any server connection. Two gateways give the same
/// name to different statements there, so that one would run the statement of the other.
async fn check_pooler(session: &Session) -> Result<(), ConnectError> {
    match session.is(KEEPS_NAMES).await {
        Ok(false) => Ok(()),
        Ok(true) | Err(QueryError::Conflict(_) | QueryError::Rejected(_)) => Err(ConnectError {
            error: StoreError::new(
                "a connection pooler does not support prepared statements; set store.prepared = false, \
                 or max_prepared_statements of PgBouncer 1.21 or later",
            ),
            is_permanent: true,
        }),
        Err(error) => Err(ConnectError { error: error.into_store_error(), is_permanent: false }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported() -> Reported {
        Reported {
            version: MIN_VERSION,
            version_text: "14.0".into(),
            is_read_only: false,
            encoding: "UTF8".into(),
            synchronous_commit: "on".into(),
            isolation: "read committed".into(),
            search_path: "bearward, pg_temp".into(),
            has_timeouts: true,
            is_pooled: false,
            is_schema_forbidden: false,
        }
    }

    #[test]
    fn a_session_that_keeps_the_promises_is_used() {
        for usable in [
            reported(),
            Reported { search_path: "\"bearward\"".into(), ..reported() },
            Reported { synchronous_commit: "remote_apply".into(), ..reported() },
        ] {
            assert!(usable.check("bearward", "alice").is_ok());
        }
    }

    #[test]
    fn a_session_that_breaks_a_promise_is_rejected_with_advice() {
        for (broken, is_permanent, says) in [
            (Reported { version: MIN_VERSION - 1, version_text: "13.9".into(), ..reported() }, true, "13.9 is too old"),
            (Reported { is_read_only: true, ..reported() }, false, "not the primary"),
            (Reported { encoding: "LATIN1".into(), ..reported() }, true, "the encoding LATIN1"),
            (Reported { synchronous_commit: "off".into(), ..reported() }, true, "synchronous_commit is off"),
            (Reported { synchronous_commit: "local".into(), ..reported() }, true, "synchronous_commit is local"),
            (
                Reported { isolation: "serializable".into(), ..reported() },
                true,
                "default_transaction_isolation is serializable; set it with ALTER ROLE … SET \
                 default_transaction_isolation = 'read committed'",
            ),
            (Reported { search_path: "public, bearward".into(), ..reported() }, true, "search_path = bearward"),
            (Reported { has_timeouts: false, ..reported() }, true, "statement_timeout or lock_timeout is 0"),
            (
                Reported { is_schema_forbidden: true, ..reported() },
                true,
                "alice may not use the schema \"bearward\"; run as its owner: GRANT USAGE ON SCHEMA bearward TO alice",
            ),
        ] {
            let error = broken.check("bearward", "alice").expect_err(says);
            assert_eq!(error.is_permanent, is_permanent, "{says}");
            assert!(error.error.message.contains(says), "{}", error.error);
        }
    }
}
