//! The part of `bearward check` that looks at a database: errors that stop a start, and warnings.

use std::time::Duration;

use crate::store::error::StoreError;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::inspect::with_session;
use crate::store::postgres::lane::MORE;
use crate::store::postgres::schema;
use crate::store::postgres::session::Session;
use crate::store::postgres::settings::PostgresSettings;
use crate::store::postgres::tls::Tls;
use crate::types::clock::UnixTime;

/// A finding that does not stop a start: what was found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub found: String,
    pub advice: String,
}

impl Finding {
    fn new(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { found: found.into(), advice: advice.into() }
    }
}

/// `has_schema_privilege` fails for a schema that does not exist.
const RIGHTS: &str = "select n.oid is not null as has_schema,
        has_database_privilege(current_database(), 'create') as may_create_schema,
        coalesce(has_schema_privilege(n.oid, 'create'), false) and not exists (select from pg_class c
            where c.relnamespace = n.oid and c.relkind = 'r' and not pg_has_role(c.relowner, 'usage'))
            as may_make_steps,
        (select pg_get_userbyid(c.relowner)::text from pg_class c
            where c.relnamespace = n.oid and c.relname = 'schema_versions') as owner,
        coalesce((select string_agg(c.relname, ', ' order by c.relname) from pg_class c
            where c.relnamespace = n.oid and c.relkind = 'r'
            and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))), '')
            as forbidden_tables,
        not exists (select from pg_class c where c.relnamespace = n.oid and c.relkind = 'S'
            and not (has_sequence_privilege(c.oid, 'usage') and has_sequence_privilege(c.oid, 'update')))
            as may_advance
    from (select $1::text as name) s left join pg_namespace n on n.nspname = s.name";

const SERVER: &str =
    "select current_setting('fsync') = 'off' or current_setting('full_page_writes') = 'off' as may_lose,
        current_setting('synchronous_standby_names') as standbys,
        current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8
            as connections,
        (select r.rolsuper from pg_roles r where r.rolname = current_user) as is_superuser,
        (extract(epoch from clock_timestamp()) * 1000)::int8 as now";

/// Tries everything that a start does, but changes nothing.
///
/// # Errors
/// What stops a start, and what to do.
pub fn check(settings: &PostgresSettings, tls: Option<Tls>, now: fn() -> UnixTime) -> Result<Vec<Finding>, StoreError> {
    let schema = settings.schema.clone();
    let hosts = settings.target.hosts.len();
    let needed = (settings.pool + MORE + usize::from(hosts > 1)) as i64;
    let user = settings.target.user.clone();
    with_session(settings, tls, Duration::ZERO, move |session| async move {
        let mut found = rights(&session, &schema, &user).await?;
        found.extend(findings(&session, needed, now).await?);
        Ok(found)
    })
}

async fn rights(session: &Session, schema: &str, user: &str) -> Result<Vec<Finding>, QueryError> {
    let row = session.query_opt(RIGHTS, &[&schema]).await?;
    let row = row.ok_or_else(|| StoreError::new("the database did not report the rights of the user"))?;
    let is = |column| row.try_get::<_, bool>(column).map_err(StoreError::from);
    let forbidden: String = row.try_get("forbidden_tables").map_err(StoreError::from)?;
    if !is("has_schema")? && !is("may_create_schema")? {
        return Err(StoreError::new(format!(
            "there is no schema \"{schema}\", and {user} may not create it; \
             run: CREATE SCHEMA {schema} AUTHORIZATION {user}"
        ))
        .into());
    }
    if !forbidden.is_empty() {
        return Err(StoreError::new(format!(
            "{user} may not read and write the tables {forbidden} in the schema \"{schema}\"; \
             run: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}"
        ))
        .into());
    }
    if is("has_schema")? && !is("may_make_steps")? {
        let owner: Option<String> = row.try_get("owner").map_err(StoreError::from)?;
        needs_no_step(session, schema, user, owner.as_deref()).await?;
    }
    let is_behind = (!is("may_advance")?).then(|| {
        Finding::new(
            format!("{user} may not advance the sequences in the schema \"{schema}\", as after a switch to a copy"),
            format!("run: GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {user}"),
        )
    });
    Ok(is_behind.into_iter().collect())
}

/// A user that may not change the tables can use them if they are those of this version.
async fn needs_no_step(session: &Session, schema: &str, user: &str, owner: Option<&str>) -> Result<(), QueryError> {
    let Some(step) = schema::next(session, schema).await? else { return Ok(()) };
    let owner = owner.unwrap_or("ROLE");
    let problem = if step.is_first() {
        format!(
            "the schema \"{schema}\" is empty, and {user} may not create tables there; run \
             `bearward store migrate --owner {owner}` with the role that owns the schema, or: \
             GRANT CREATE ON SCHEMA {schema} TO {user}"
        )
    } else {
        format!(
            "the tables in the schema \"{schema}\" lack a step of this version, and {user} may not make it; run \
             `bearward store migrate --owner {owner}`"
        )
    };
    Err(StoreError::new(problem).into())
}

async fn findings(session: &Session, needed: i64, now: fn() -> UnixTime) -> Result<Vec<Finding>, QueryError> {
    let before = now();
    let row = session.query_opt(SERVER, &[]).await?;
    let after = now();
    let row = row.ok_or_else(|| StoreError::new("the database did not report its settings"))?;
    let is = |column| row.try_get::<_, bool>(column).map_err(StoreError::from);
    let number = |column| row.try_get::<_, i64>(column).map_err(StoreError::from);
    let standbys: String = row.try_get("standbys").map_err(StoreError::from)?;
    let mut findings = Vec::new();
    if is("may_lose")? {
        findings.push(Finding::new(
            "the server has fsync = off or full_page_writes = off: a crash can damage the database",
            "set both to on in postgresql.conf",
        ));
    }
    if standbys.is_empty() {
        findings.push(Finding::new(
            "the server has no synchronous standby: a failover can lose the newest logins and revocations",
            "set synchronous_standby_names, or accept the loss: see deploy/replicas.md",
        ));
    }
    let connections = number("connections")?;
    if connections < needed {
        findings.push(Finding::new(
            format!("the server allows {connections} connections, and each gateway opens {needed}"),
            "raise max_connections, or lower store.pool",
        ));
    }
    if is("is_superuser")? {
        findings.push(Finding::new(
            "the user of store.postgres is a superuser",
            "use a role that owns only the schema of the gateway",
        ));
    }
    findings.extend(clock(before, after, number("now")?));
    Ok(findings)
}

/// Gateways correct their clock by that of the database. A large difference shows that one of both is wrong.
fn clock(before: UnixTime, after: UnixTime, database: i64) -> Option<Finding> {
    let millis = |time: UnixTime| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let ahead = (database - millis(after)).max(millis(before) - database);
    (ahead > 1_000).then(|| {
        Finding::new(
            format!("the clock of the database differs from the clock of this machine by {} s", ahead / 1_000),
            "synchronize both clocks, for example with chrony",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_more_than_a_second_are_found() {
        // The database was asked between these times.
        let before = UnixTime::from_millis(10_000);
        let after = UnixTime::from_millis(10_500);
        let found = |database| clock(before, after, database).map(|finding| finding.found);
        for near in [9_000, 10_000, 10_250, 10_500, 11_500] {
            assert_eq!(found(near), None, "{near}");
        }
        for (far, says) in [(8_999, "by 1 s"), (11_501, "by 1 s"), (5_000, "by 5 s"), (20_500, "by 10 s")] {
            assert!(found(far).is_some_and(|found| found.ends_with(says)), "{far}");
        }
    }
}
