//! The tables, and how they change from version to version while gateways of both versions use them.
//!
//! A step may add tables, and columns that can be null. What a step takes away must be unused since the version before,
//! and a step says from which version on a program can use the new tables. So an older gateway goes on to work beside a
//! newer one, until it is replaced.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::error::StoreError;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::rows::get;
use crate::store::postgres::session::Session;
use crate::types::clock::UnixTime;

struct Step {
    sql: &'static str,
    /// The oldest program that can use the tables after this step, by the number of steps that it knows.
    compatible_from: i32,
}

/// Step n leads to version n. A released step is never changed.
const STEPS: &[Step] = &[
    Step { sql: include_str!("schema.sql"), compatible_from: 1 },
    Step { sql: include_str!("by_subject.sql"), compatible_from: 1 },
    Step { sql: include_str!("unrevoked.sql"), compatible_from: 1 },
    Step { sql: include_str!("endings.sql"), compatible_from: 1 },
    Step { sql: include_str!("api_keys.sql"), compatible_from: 1 },
    Step { sql: include_str!("api_keys_index.sql"), compatible_from: 1 },
    Step { sql: include_str!("origins.sql"), compatible_from: 1 },
    Step { sql: include_str!("origins_index.sql"), compatible_from: 1 },
    Step { sql: include_str!("origin_sessions_index.sql"), compatible_from: 1 },
    Step { sql: include_str!("sessions.sql"), compatible_from: 1 },
    Step { sql: include_str!("ended_sessions.sql"), compatible_from: 1 },
    Step { sql: include_str!("marks.sql"), compatible_from: 1 },
    Step { sql: include_str!("provider_logins.sql"), compatible_from: 1 },
    Step { sql: include_str!("api_key_rates.sql"), compatible_from: 1 },
    Step { sql: include_str!("acme.sql"), compatible_from: 1 },
    Step { sql: include_str!("clock.sql"), compatible_from: 1 },
    Step { sql: include_str!("grants.sql"), compatible_from: 1 },
    Step { sql: include_str!("clients.sql"), compatible_from: 1 },
    Step { sql: include_str!("ended_clients.sql"), compatible_from: 1 },
    Step { sql: include_str!("clients_index.sql"), compatible_from: 1 },
];

/// How long other gateways may take for their steps.
const PATIENCE: Duration = Duration::from_secs(30);
/// Gateways that wait ask again instead of waiting for the lock: a waiting transaction would hold up others.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// In the error of a step while another gateway makes one.
const BUSY: &str = "another gateway changes the tables";
/// In the error of a step that has waited for the lock of a running gateway.
const LOCKED: &str = "another transaction holds a lock";
/// In the error of a step that the user may not make: the code of PostgreSQL.
const FORBIDDEN: &str = "42501";
/// In the error of a step that took too long.
const SLOW: &str = "57014";

const FOUND: &str = "select exists (select from pg_namespace n where n.nspname = $1) as has_schema,
        exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = $1 and c.relname = 'schema_versions') as is_ours,
        exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1)
            as has_tables";
const NEWEST: &str = "select v.version, v.compatible_from, v.by from schema_versions v order by v.version desc limit 1";

/// What is in the database.
struct FoundSchema {
    has_schema: bool,
    /// 0 without any tables.
    version: i32,
}

/// Creates the tables, or makes the steps that are missing. `now` is when.
///
/// # Errors
/// If the tables belong to another program, or are too new for this version. Nothing was changed then.
pub(super) async fn prepare(session: &Session, schema: &str, now: UnixTime) -> Result<(), QueryError> {
    let deadline = Instant::now() + PATIENCE;
    while let Some(step) = next(session, schema).await? {
        let made = step.make(session, step.sql(), now, deadline).await;
        made.map_err(|error| step.at_start(error))?;
    }
    Ok(())
}

/// A step that the database lacks.
pub(super) struct MissingStep<'a> {
    step: &'static Step,
    found: FoundSchema,
    schema: &'a str,
}

/// The next step, if there is one. Only reads.
pub(super) async fn next<'a>(session: &Session, schema: &'a str) -> Result<Option<MissingStep<'a>>, QueryError> {
    let found = identify(session, schema).await?;
    let step = usize::try_from(found.version).ok().and_then(|version| STEPS.get(version));
    Ok(step.map(|step| MissingStep { step, found, schema }))
}

/// The SQL of all steps.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    STEPS.iter().map(|step| step.sql)
}

impl MissingStep<'_> {
    pub(super) fn sql(&self) -> &'static str {
        self.step.sql
    }

    /// Returns true if there are no tables yet.
    pub(super) fn is_first(&self) -> bool {
        self.found.version == 0
    }

    /// Makes the step by `sql`, and records it, unless another gateway has made it meanwhile. While running gateways
    /// hold locks, it tries again until `deadline`.
    pub(super) async fn make(
        &self,
        session: &Session,
        sql: &str,
        now: UnixTime,
        deadline: Instant,
    ) -> Result<(), QueryError> {
        let transaction = self.transaction(sql, now);
        loop {
            let Err(error) = session.batch(&transaction).await else { return Ok(()) };
            if identify(session, self.schema).await?.version != self.found.version {
                return Ok(());
            }
            if !is_busy(&error) || Instant::now() >= deadline {
                return Err(error);
            }
            sleep(RETRY_DELAY).await;
        }
    }

    /// One transaction with its record. It waits for a lock for less than `deadlock_timeout` (1 s), because it may hold
    /// one that a running gateway needs meanwhile, and comes again. The cast fails while another gateway has the lock
    /// of the step, and ends the transaction.
    fn transaction(&self, sql: &str, now: UnixTime) -> String {
        let schema = self.schema;
        let compatible_from = self.step.compatible_from;
        let create = if self.found.has_schema { String::new() } else { format!("create schema {schema};") };
        let version = self.found.version + 1;
        let at = now.as_millis();
        let by = env!("CARGO_PKG_VERSION");
        format!(
            "set local lock_timeout = '500ms'; set local statement_timeout = '60s';
             select (case when pg_try_advisory_xact_lock(1651995236, hashtext('{schema}')) then 'true'
                 else '{BUSY}' end)::boolean;
             {create}
             {sql};
             insert into schema_versions (version, compatible_from, at, by)
                 values ({version}, {compatible_from}, {at}, '{by}');"
        )
    }

    /// Adds the advice for a gateway that starts.
    fn at_start(&self, error: QueryError) -> QueryError {
        let name = self.name();
        match (why(&error), error) {
            (Some(Why::Forbidden), QueryError::Rejected(error)) => StoreError::new(format!(
                "the user of store.postgres may not make {name}; run `bearward store migrate` as their owner: see \
                 deploy/upgrade.md ({error})"
            ))
            .into(),
            (Some(Why::Slow), QueryError::Rejected(error)) => StoreError::new(format!(
                "{name} takes too long for a start; run `bearward store migrate`, which has no limit ({error})"
            ))
            .into(),
            (_, error) => error,
        }
    }

    /// For messages.
    pub(super) fn name(&self) -> String {
        format!("step {} of the tables in the schema \"{}\"", self.found.version + 1, self.schema)
    }
}

/// Why a step failed, if its advice depends on who makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The user has no right to it.
    Forbidden,
    /// It took longer than its limit.
    Slow,
}

pub(super) fn why(error: &QueryError) -> Option<Why> {
    let QueryError::Rejected(error) = error else { return None };
    if error.message.contains(FORBIDDEN) {
        return Some(Why::Forbidden);
    }
    error.message.contains(SLOW).then_some(Why::Slow)
}

fn is_busy(error: &QueryError) -> bool {
    let (QueryError::Lost(error)
    | QueryError::Conflict(error)
    | QueryError::NotPrimary(error)
    | QueryError::Rejected(error)) = error;
    error.message.contains(BUSY) || error.message.contains(LOCKED)
}

/// Only reads.
async fn identify(session: &Session, schema: &str) -> Result<FoundSchema, QueryError> {
    let row = session.query_opt(FOUND, &[&schema]).await?;
    let row = row.ok_or_else(|| StoreError::new("the database did not list its tables"))?;
    let has_schema = get(&row, "has_schema")?;
    if !get::<bool>(&row, "is_ours")? {
        return if get(&row, "has_tables")? {
            Err(StoreError::new(format!(
                "the schema \"{schema}\" belongs to another program and was not changed; correct store.schema"
            ))
            .into())
        } else {
            Ok(FoundSchema { has_schema, version: 0 })
        };
    }
    let newest = session.query_opt(NEWEST, &[]).await?;
    let newest = newest.ok_or_else(|| StoreError::new("the table schema_versions is empty; restore a backup"))?;
    let version = get(&newest, "version")?;
    let compatible_from = get::<i32>(&newest, "compatible_from")?;
    let known = i32::try_from(STEPS.len()).unwrap_or(i32::MAX);
    if compatible_from > known {
        let by: String = get(&newest, "by")?;
        return Err(StoreError::new(format!(
            "the database has schema {version} of bearward {by}, which needs schema {compatible_from} or later in each \
             gateway; this version knows schema {known}: start that version, or restore a backup from before the upgrade"
        ))
        .into());
    }
    Ok(FoundSchema { has_schema, version })
}
