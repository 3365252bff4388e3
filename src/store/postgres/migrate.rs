//! `bearward store migrate`: makes the steps that the tables lack, beside running gateways and on tables of any size.
//!
//! An index is built before its step, without a lock that stops writes, and the step only gives it its name. The steps
//! themselves change the catalog of the database, so that they hold their locks for milliseconds.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::error::StoreError;
use crate::store::postgres::connect::Connector;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::inspect::connect;
use crate::store::postgres::rows::get;
use crate::store::postgres::schema::{self, MissingStep, Why, why};
use crate::store::postgres::sequences;
use crate::store::postgres::session::Session;
use crate::store::postgres::settings::PostgresSettings;
use crate::store::postgres::tls::Tls;
use crate::types::clock::UnixTime;

/// How long a step waits for the locks of running gateways and of transactions that others left open.
const PATIENCE: Duration = Duration::from_mins(10);
/// How often the progress is read.
const INTERVAL: Duration = Duration::from_millis(500);

/// For building indexes: on a large table, that takes hours, and it waits for transactions that are older. Nothing
/// waits for it meanwhile.
const UNLIMITED: &str = "set statement_timeout = 0; set lock_timeout = 0";
const IS_THERE: &str = "select to_regclass($1) is not null as is_there";
/// Who runs the command, and who owns the tables, or else the schema.
const ROLES: &str = "select current_user::text as role, coalesce(
        (select pg_get_userbyid(c.relowner)::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = $1 and c.relname = 'schema_versions'),
        (select pg_get_userbyid(n.nspowner)::text from pg_namespace n where n.nspname = $1)) as owner";
/// The phases have counts of their own.
const PROGRESS: &str = "select p.phase, greatest(p.blocks_done, p.tuples_done) as done,
        greatest(p.blocks_total, p.tuples_total) as total
    from pg_stat_progress_create_index p join pg_class c on c.oid = p.relid
    where c.relnamespace = current_schema()::regnamespace";

/// What is being done, how much of it is done, and of how much; 0: not known.
pub type MigrationProgress<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// Returns how many steps were made. Not for a thread that drives a runtime.
///
/// # Errors
/// If the user of `settings` may not make a step. The steps before it are made.
pub fn migrate(
    settings: &PostgresSettings,
    tls: Option<Tls>,
    now: UnixTime,
    progress: MigrationProgress<'_>,
) -> Result<usize, StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| StoreError::new(format!("cannot create a runtime: {error}")))?;
    let connector = Connector::new(settings.clone(), tls, "migrate");
    let migrated = runtime.block_on(async {
        let session = connect(&connector, Duration::ZERO).await?;
        let watching = connect(&connector, Duration::ZERO).await?;
        let mut migration = Migration { session, watching, progress };
        migration.run(&settings.schema, now).await
    });
    // Does not wait for a name server that does not respond.
    runtime.shutdown_background();
    migrated.map_err(QueryError::into_store_error)
}

struct Migration<'a> {
    session: Session,
    /// Reads the progress meanwhile.
    watching: Session,
    progress: MigrationProgress<'a>,
}

impl Migration<'_> {
    async fn run(&mut self, schema: &str, now: UnixTime) -> Result<usize, QueryError> {
        self.session.batch(UNLIMITED).await?;
        let mut made = 0;
        while let Some(step) = schema::next(&self.session, schema).await? {
            if let Err(error) = self.make(&step, now).await {
                return Err(self.explained(schema, &step.name(), error).await);
            }
            made += 1;
        }
        sequences::advance(&self.session).await?;
        Ok(made)
    }

    async fn make(&mut self, step: &MissingStep<'_>, now: UnixTime) -> Result<(), QueryError> {
        let mut sql = Vec::new();
        let mut built = Vec::new();
        for statement in statements(step.sql()) {
            match Index::parse(&statement) {
                Some(index) if self.is_there(&index.table).await? => {
                    self.build(&index).await?;
                    sql.push(index.rename());
                    built.push(index);
                }
                _ => sql.push(statement),
            }
        }
        step.make(&self.session, &sql.join(";\n"), now, Instant::now() + PATIENCE).await?;
        // If a gateway that starts has made the step meanwhile.
        for index in built {
            self.session.run_for_long(&index.drop()).await?;
        }
        Ok(())
    }

    /// Adds what the operator of this command can do.
    async fn explained(&self, schema: &str, step: &str, error: QueryError) -> QueryError {
        let advice = match why(&error) {
            Some(Why::Forbidden) => self.owner_advice(schema).await,
            Some(Why::Slow) => "it took too long; close long transactions, and run this again".to_owned(),
            None => return error,
        };
        StoreError::new(format!("{step}: {advice} ({})", error.into_store_error())).into()
    }

    async fn owner_advice(&self, schema: &str) -> String {
        let found = self.session.query_opt(ROLES, &[&schema]).await.ok().flatten();
        let role = |name| found.as_ref().and_then(|row| get::<Option<String>>(row, name).ok().flatten());
        let user = role("role").unwrap_or_else(|| "the user".to_owned());
        match role("owner") {
            Some(owner) if owner != user => format!(
                "{user} has no right to it, because the tables belong to {owner}; name that role with --owner {owner}, \
                 and its password with --owner-password-file"
            ),
            _ => format!(
                "{user} has no right to it; name a role that has, with --owner and --owner-password-file, or see \
                 \"two roles\" in deploy/replicas.md"
            ),
        }
    }

    async fn is_there(&self, table: &str) -> Result<bool, QueryError> {
        let row = self.session.query_opt(IS_THERE, &[&table]).await?;
        Ok(row.map(|row| get(&row, "is_there")).transpose()?.unwrap_or_default())
    }

    async fn build(&mut self, index: &Index) -> Result<(), QueryError> {
        // What an interrupted build has left is not valid.
        self.session.run_for_long(&index.drop()).await?;
        let create = index.create();
        let mut created = pin!(self.session.run_for_long(&create));
        loop {
            tokio::select! {
                created = &mut created => return created,
                () = sleep(INTERVAL) => {}
            }
            for row in self.watching.query(PROGRESS, &[]).await? {
                let phase: String = get(&row, "phase")?;
                let done: i64 = get(&row, "done")?;
                let total: i64 = get(&row, "total")?;
                (self.progress)(&format!("{}: {phase}", index.name), done.unsigned_abs(), total.unsigned_abs());
            }
        }
    }
}

/// The statements of a step. They have no text with a semicolon or two hyphens.
fn statements(sql: &str) -> Vec<String> {
    let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    code.split(';').map(str::trim).filter(|statement| !statement.is_empty()).map(str::to_owned).collect()
}

/// An index that a step creates.
struct Index {
    name: String,
    table: String,
    /// From the name of the table on.
    definition: String,
}

impl Index {
    fn parse(statement: &str) -> Option<Index> {
        let (name, definition) = statement.strip_prefix("create index ")?.split_once(" on ")?;
        let table = definition.split_whitespace().next()?;
        Some(Index { name: name.to_owned(), table: table.to_owned(), definition: definition.to_owned() })
    }

    /// Under another name, because the step may replace an index of this name.
    fn create(&self) -> String {
        format!("create index concurrently {}_next on {}", self.name, self.definition)
    }

    fn rename(&self) -> String {
        format!("alter index {0}_next rename to {0}", self.name)
    }

    fn drop(&self) -> String {
        format!("drop index concurrently if exists {}_next", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_divided_into_its_statements() {
        let found = statements("-- Why; and how.\ncreate table a (\n    b text -- c; d\n);\n\ndrop index e;\n");
        assert_eq!(found, ["create table a (\n    b text \n)", "drop index e"]);
    }

    #[test]
    fn every_statement_of_a_step_is_one_that_a_migration_knows() {
        let known = ["create table ", "create index ", "drop index ", "alter table ", "insert into "];
        for sql in schema::all() {
            let statements = statements(sql);
            assert!(!statements.is_empty(), "{sql}");
            for statement in statements {
                assert!(known.iter().any(|start| statement.starts_with(start)), "{statement}");
                assert_eq!(Index::parse(&statement).is_some(), statement.starts_with("create index "), "{statement}");
            }
        }
    }

    #[test]
    fn an_index_is_built_under_another_name() {
        let index = Index::parse("create index a on b (c) where d is null").expect("an index");
        assert_eq!(index.create(), "create index concurrently a_next on b (c) where d is null");
        assert_eq!((index.rename().as_str(), index.table.as_str()), ("alter index a_next rename to a", "b"));
    }
}
