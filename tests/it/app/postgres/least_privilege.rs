//! Two roles: one owns the tables, the gateway uses the other one, which may change nothing but rows.

use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{folder, gateway, start_error, text};
use crate::support::Upstream;
use crate::support::clock::ManualClock;
use crate::support::postgres::{PostgresServer, USER};
use crate::support::program::bearward;
use crate::support::source;
use crate::support::wait::eventually_ok;

/// A schema, the role that owns it, and the role of the gateways.
struct Roles {
    schema: String,
    owner: String,
    serving: String,
}

impl Roles {
    /// As the page for operators creates them.
    fn create() -> Roles {
        let server = PostgresServer::shared();
        let page = source::read("deploy/replicas.md");
        let schema = server.schema();
        let roles = Roles { owner: format!("{schema}_owner"), serving: format!("{schema}_serving"), schema };
        let (_, shown) = page.split_once("\\connect bearward\n").expect("the page has the statements");
        let shown = shown.split_once("```").expect("they end").0;
        let of_test = shown
            .replace("owner_of_bearward", &roles.owner)
            .replace("SCHEMA bearward", &format!("SCHEMA {}", roles.schema))
            .replace("TO bearward;", &format!("TO {};", roles.serving));
        server.sql(USER, &format!("create role {} login; create role {} login", roles.owner, roles.serving));
        server.sql(USER, &of_test);
        roles
    }

    /// The keys of `[store]` for the gateways.
    fn keys(&self) -> String {
        let url = PostgresServer::shared().url().replace(&format!("{USER}@"), &format!("{}@", self.serving));
        format!("postgres = \"{url}\"\nschema = \"{}\"\n", self.schema)
    }

    fn sql(&self, sql: &str) -> String {
        let Roles { owner, schema, .. } = self;
        PostgresServer::shared().sql(USER, &format!("set role {owner}; set search_path = {schema}; {sql}"))
    }

    fn migrate(&self, folder: &TempDir) -> Output {
        bearward(folder.path(), &["store", "migrate", "--owner", &self.owner])
    }
}

fn shown(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).join("\n");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_gateway_needs_no_right_to_change_tables() {
    let (upstream, roles, files) = (Upstream::start(), Roles::create(), folder());
    let config = text(&upstream, &roles.keys());
    std::fs::write(files.path().join("gateway.toml"), &config).expect("written");
    let check = || shown(&bearward(files.path(), &["check"]));
    let migrate = "bearward store migrate";
    assert!(check().contains(&format!("may not create tables there; run `{migrate} --owner")), "{}", check());
    // In a folder of its own: this start leaves a root secret.
    let error = start_error(&config, folder().path());
    assert!(error.contains("may not make step 1 of the tables") && error.contains(migrate), "{error}");

    for says in [" steps; the tables", "are those of this version"] {
        let migrated = roles.migrate(&files);
        assert!(migrated.status.success() && shown(&migrated).contains(says), "{}", shown(&migrated));
    }
    assert!(bearward(files.path(), &["check"]).status.success(), "{}", check());
    assert!(!check().contains("sequences"), "{}", check());
    let running = gateway(&upstream, &roles.keys(), &files, &Arc::new(ManualClock::new()));
    let pair = running.issue("alice", "").await;
    let next = running.refresh(&pair.access, &pair.refresh).await;
    assert_eq!(next.status, 200);
    assert_eq!(running.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(running.admin_client().get("/readyz").await.status, 200);
}

/// "Run `bearward store migrate`" is no help for who has just run it.
#[tokio::test]
async fn a_migration_without_the_right_names_the_role_that_has_it() {
    let upstream = Upstream::start();
    let roles = Roles::create();
    let files = folder();
    std::fs::write(files.path().join("gateway.toml"), text(&upstream, &roles.keys())).expect("written");
    let migrate = |arguments: &[&str]| {
        let output = bearward(files.path(), &[&["store", "migrate"], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        shown(&output)
    };
    let Roles { owner, serving, .. } = &roles;
    let says =
        format!("{serving} has no right to it, because the tables belong to {owner}; name that role with --owner");
    for arguments in [&[][..], &["--owner", serving]] {
        let message = migrate(arguments);
        assert!(message.contains(&says) && message.contains("step 1 of the tables"), "{message}");
        assert!(!message.contains("run `bearward store migrate`"), "{message}");
    }
    let misspelt = migrate(&["--owner", "no_such_role"]);
    assert!(misspelt.contains("as no_such_role, the user of --owner"), "{misspelt}");
    assert!(misspelt.contains("correct the user"), "{misspelt}");
    let swept = bearward(files.path(), &["store", "sweep"]);
    assert!(swept.status.code() == Some(1) && shown(&swept).contains("no gateway has used"), "{}", shown(&swept));
}

/// The server acts as if the schema had no tables. Nothing is lost, so that no backup helps.
#[tokio::test]
async fn the_right_that_a_role_lacks_on_the_schema_is_named() {
    let (upstream, roles, files) = (Upstream::start(), Roles::create(), folder());
    let config = text(&upstream, &roles.keys());
    std::fs::write(files.path().join("gateway.toml"), &config).expect("written");
    assert!(roles.migrate(&files).status.success());
    drop(gateway(&upstream, &roles.keys(), &files, &Arc::new(ManualClock::new())));
    let Roles { schema, serving, .. } = &roles;
    roles.sql(&format!("revoke usage on schema {schema} from {serving}"));
    let says = format!("GRANT USAGE ON SCHEMA {schema} TO {serving}");
    let checked = shown(&bearward(files.path(), &["check"]));
    let error = start_error(&config, files.path());
    assert!(checked.contains(&says), "{checked}");
    assert!(error.contains(&says) && !error.contains("restore"), "{error}");
}

/// Tables of the first version, while a session has a transaction open that has written: a lock that stops writes
/// would wait for it, and all other writes behind it.
#[tokio::test]
async fn a_migration_stops_no_write() {
    const SOON: Duration = Duration::from_secs(1);
    let (upstream, roles, files, server) = (Upstream::start(), Roles::create(), folder(), PostgresServer::shared());
    let config = text(&upstream, &roles.keys());
    std::fs::write(files.path().join("gateway.toml"), &config).expect("written");
    let first = source::read("src/store/postgres/schema.sql");
    roles.sql(&format!(
        "{first};
        insert into schema_versions (version, compatible_from, at, by) values (1, 1, 0, '1.2.3');
        insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation, root,
            rotated_at, confirmed, created_at, last_used_at, idle_expiry, absolute_expiry)
        select n, 'alice', '', '[]', '', '{{}}', '', sha256(''), 1, 1, 0, 0, 0, 0, 9000000000000, 9000000000000
        from generate_series(1, 50000) as g (n)"
    ));
    let Roles { schema, owner, serving } = &roles;
    let checked = shown(&bearward(files.path(), &["check"]));
    let error = start_error(&config, files.path());
    let advice = format!("bearward store migrate --owner {owner}");
    let says = format!("lack a step of this version, and {serving} may not make it");
    assert!(checked.contains(&says) && checked.contains(&advice), "{checked}");
    assert!(error.contains("may not make step 2") && error.contains("bearward store migrate"), "{error}");
    let write = format!("update {schema}.families set generation = generation + 1");
    let name = format!("set application_name = '{owner}'");
    let mut open = server.open_transaction(USER, &format!("{name}; {write} where id = '1'"));
    let migration = roles.owner.clone();
    let path = files.path().to_owned();
    let migrated = std::thread::spawn(move || bearward(&path, &["store", "migrate", "--owner", &migration]));
    let builds = format!(
        "select count(*) from pg_stat_progress_create_index p join pg_class c on c.oid = p.relid
            where c.relnamespace = '{schema}'::regnamespace and p.phase like 'waiting%'"
    );
    eventually_ok("an index is being built", async || {
        let count = server.sql(USER, &builds);
        (count == "1").then_some(()).ok_or(count)
    })
    .await;
    let mut rounds = 2..;
    let mut update = || {
        let began = Instant::now();
        server.sql(USER, &format!("{write} where id = '{}'", rounds.next().expect("endless")));
        assert!(began.elapsed() < SOON, "a write waited for {:?}", began.elapsed());
    };
    (0..20).for_each(|_| update());
    server.terminate_connections(owner);
    let _ = open.wait();
    while !migrated.is_finished() {
        update();
    }
    let migrated = migrated.join().expect("no panic");
    assert!(migrated.status.success() && shown(&migrated).contains(" steps; the tables"), "{}", shown(&migrated));
    let left =
        "select count(*) from pg_class where relname like '%\\_next' and relnamespace = current_schema::regnamespace";
    assert_eq!(roles.sql(left), "0");
    let indexes = "select count(*) from pg_indexes where schemaname = current_schema
        and indexdef like '%(subject, created_at DESC, id DESC)%'";
    assert_eq!(roles.sql(indexes), "3");
}
