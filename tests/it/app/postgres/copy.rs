//! `bearward store copy`: a gateway moves from SQLite to PostgreSQL.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use bearward::store::{AcmeEntry, Mark, MarkKind, Marked, ProviderLogin};
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::{Family, FamilyOrigin};
use bearward::types::clock::UnixTime;
use serde_json::json;

use super::{folder, gateway, schema, start_error, store_keys, text};
use crate::support::clock::ManualClock;
use crate::support::given::login;
use crate::support::postgres::PostgresServer;
use crate::support::program::bearward;
use crate::support::tokens::EXTERNAL_ISSUER;
use crate::support::{Gateway, TokenPair, Upstream};

/// Copies the database in `folder`, which the configuration there does not name any more.
fn copy(folder: &Path) -> Output {
    bearward(folder, &["store", "copy", "--from", "sqlite", "--to", "postgres"])
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_copied(output: &Output) {
    assert!(output.status.success(), "{}", errors(output));
}

fn sql(schema: &str, text: &str) -> String {
    PostgresServer::shared().sql("bearward", &format!("set role bearward; set search_path = {schema}; {text}"))
}

#[tokio::test]
async fn a_gateway_moves_to_postgresql_and_no_session_ends() {
    let (upstream, clock, keys, files) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    let sqlite = Gateway::in_folder(text(&upstream, ""), files.clone(), clock.clone());
    let (alice, bob, carol) =
        (sqlite.issue("alice", "").await, sqlite.issue("bob", "").await, sqlite.issue("carol", "").await);
    let child = TokenPair::from_json(&sqlite.refresh(&alice.access, &alice.refresh).await.json());
    assert_eq!(sqlite.revoke(&bob.access, &bob.token_id).await.status, 200);
    let admin = sqlite.admin_client();
    let erin = json!({ "sub": "erin", "clientId": "spa" });
    let erin = TokenPair::from_json(&sqlite.request_tokens(&erin).await.json());
    assert_eq!(admin.delete("/admin/v1/clients/spa/tokens").await.status, 200);
    assert_eq!(admin.post("/admin/v1/revocations", &json!({ "subject": "carol" })).await.status, 200);
    clock.advance(Duration::from_secs(1));
    // A name that PostgreSQL cannot store as it is.
    let strange = sqlite.issue("d\u{0}e\u{10FFFF}", "").await;
    assert_eq!(admin.post("/admin/v1/keys/rotate", &json!({})).await.status, 200);
    let (_, key_id) = sqlite.issue_key(&json!({ "sub": "robot" })).await;
    let from_provider = login_elsewhere(&sqlite).await;
    for version in 1..=2 {
        assert!(sqlite.running().broker.store.save_acme_entry(certificate(version)).await.expect("writes"));
    }
    let signing = admin.get("/admin/v1/keys").await.json();
    let revocations = sqlite.running().metrics.render();
    drop(sqlite);

    std::fs::write(files.path().join("gateway.toml"), text(&upstream, &keys)).expect("written");
    let output = copy_when_free(files.path());
    assert_copied(&output);
    let (progress, printed) = (errors(&output), String::from_utf8_lossy(&output.stdout));
    assert!(progress.contains("sessions: 7 of 7") && progress.contains("revocations: 4 of 4"), "{progress}");
    for line in [
        "sessions, compared: 7 of 7",
        "watermarks of clients: 1 of 1",
        "list of what was ended: 4 of 4",
        "marks of what was used once: 1 of 1",
        "logins at providers: 1 of 1",
        "accounts and certificates of ACME: 1 of 1",
    ] {
        assert!(progress.contains(line) && !progress.contains('\r'), "{progress}");
    }
    assert!(printed.contains("both have the same content"), "{printed}");

    let shared = gateway(&upstream, &keys, &files, &clock);
    assert_eq!(shared.admin_client().get("/admin/v1/keys").await.json(), signing);
    let sequence = |metrics: &str| {
        let line = metrics.lines().find(|line| line.starts_with("bearward_revocation_sequence "));
        line.expect("the metric").to_owned()
    };
    assert_eq!(sequence(&shared.running().metrics.render()), sequence(&revocations));
    let listed = shared.admin_client().get("/admin/v1/api-keys").await.json();
    assert_eq!((&listed["apiKeys"][0]["keyId"], &listed["apiKeys"][0]["state"]), (&json!(key_id), &json!("live")));
    assert_eq!(shared.status_of(&child.access).await, 200);
    assert_eq!(shared.refresh(&child.access, &child.refresh).await.status, 200, "alice goes on");
    assert_eq!(shared.refresh(&strange.access, &strange.refresh).await.status, 200);
    assert_eq!(shared.status_of(&bob.access).await, 401, "bob stays logged out");
    assert_eq!(shared.status_of(&carol.access).await, 401);
    shared.refresh(&carol.access, &carol.refresh).await.assert_rejected(400, "invalid_grant");
    assert_eq!(shared.status_of(&erin.access).await, 401);
    shared.refresh(&erin.access, &erin.refresh).await.assert_rejected(400, "invalid_grant");
    let dave = shared.issue("dave", "").await;
    assert_eq!(shared.revoke(&dave.access, &dave.token_id).await.status, 200, "the log goes on");
    assert_eq!(sql(schema(&keys), "select max(sequence) from revocations"), "5");
    let ended = shared.admin_client().get("/admin/v1/tokens/ended").await.json();
    let subjects: Vec<_> = [0, 1, 2, 4].map(|index| ended["ended"][index]["sub"].clone()).into();
    assert_eq!(subjects, [json!("dave"), json!(null), json!("carol"), json!("bob")]);
    assert_eq!((&ended["ended"][2]["operator"], ended["ended"][4].get("operator")), (&json!("admin"), None));
    assert_eq!(ended["ended"][1]["session"], "s0");
    assert_eq!((&ended["ended"][3]["what"], &ended["ended"][3]["clientId"]), (&json!("client"), &json!("spa")));
    let store = &shared.running().broker.store;
    let found = store.provider_login(from_provider.id).await.expect("reads");
    assert_eq!(found, Some((from_provider, provider_login())));
    assert_eq!(use_mark(&shared).await, Marked::Repeated);
    assert_eq!(store.acme_entries(Vec::new()).await.expect("reads"), [certificate(2)]);
}

/// What the gateway keeps of a name.
fn certificate(version: u64) -> AcmeEntry {
    AcmeEntry { name: "name api.example".into(), version, root: 1, sealed: vec![0, 255, version as u8] }
}

/// A login at another issuer, and the end of another session there.
async fn login_elsewhere(gateway: &Gateway) -> Family {
    let now = UnixTime::from_secs(gateway.now_secs());
    let (issuer, session) = (String::from(EXTERNAL_ISSUER), Some("s1".into()));
    let origin = FamilyOrigin { issuer, subject: "alice".into(), session, dated: now };
    let family = Family { origin: Some(origin), ..login("a|alice", now) };
    let began = gateway.running().broker.store.begin_login(family, provider_login(), None, 100, now.into()).await;
    let began = began.expect("the store works");
    assert_eq!(use_mark(gateway).await, Marked::First);
    began.expect("not void")
}

fn provider_login() -> ProviderLogin {
    let sealed = vec![0, 255, 1];
    ProviderLogin { provider: "cörp".into(), root: 1, sealed, version: 3, due: UnixTime::MAX, claimed: true }
}

async fn use_mark(gateway: &Gateway) -> Marked {
    let (issuer, key) = (String::from(EXTERNAL_ISSUER), "1".into());
    let revoke = vec![Revoked::Session { issuer: issuer.clone(), session: "s0".into() }];
    let mark = Mark { kind: MarkKind::LogoutToken, issuer, key, value: [7; 32], until: UnixTime::MAX };
    let now = UnixTime::from_secs(gateway.now_secs());
    gateway.running().broker.store.mark(mark, revoke, now.into()).await.expect("the store works")
}

#[tokio::test]
async fn events_that_were_not_delivered_move_too() {
    let (upstream, clock, keys, files) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    // Port 1 has no server.
    let with_webhook = |store: &str| text(&upstream, store) + "[audit]\nwebhook = \"http://127.0.0.1:1/\"\n";
    let sqlite = Gateway::in_folder(with_webhook(""), files.clone(), clock.clone());
    let alice = sqlite.issue("alice", "").await;
    drop(sqlite);
    std::fs::write(files.path().join("gateway.toml"), with_webhook(&keys)).expect("written");
    let output = copy_when_free(files.path());
    assert_copied(&output);
    let of_alice = format!("from audit where event::json->>'token_id' = '{}'", alice.token_id);
    assert_eq!(sql(schema(&keys), &format!("select event::json->>'event' {of_alice}")), "token.issued");
    let before: i64 = sql(schema(&keys), "select max(sequence) from audit").parse().expect("a number");

    let shared = Gateway::in_folder(with_webhook(&keys), files.clone(), clock);
    shared.issue("bob", "").await;
    let of_bob = "select min(sequence) from audit where event::json->>'subject' = 'bob'";
    let after: i64 = sql(schema(&keys), of_bob).parse().expect("a number");
    assert!(after > before, "{before} {after}: the numbers go on");
}

#[tokio::test]
async fn a_database_in_use_is_neither_read_nor_overwritten() {
    let (upstream, clock, keys, files) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    std::fs::write(files.path().join("gateway.toml"), text(&upstream, &keys)).expect("written");
    assert!(errors(&copy(files.path())).contains("there is no database"));
    let sqlite = Gateway::in_folder(text(&upstream, ""), files.clone(), clock.clone());
    sqlite.issue("alice", "").await;
    assert!(errors(&copy(files.path())).contains("is in use by a running gateway"));
    drop(sqlite.restart());

    assert_copied(&copy_when_free(files.path()));
    let again = errors(&copy(files.path()));
    assert!(again.contains("is not empty") && again.contains("DROP SCHEMA t_"), "{again}");
    assert_eq!(sql(schema(&keys), "select count(*) from families"), "1");
}

/// The gateway of the test shuts down on another thread.
pub(super) fn copy_when_free(folder: &Path) -> Output {
    loop {
        let output = copy(folder);
        if !errors(&output).contains("is in use") {
            return output;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test]
async fn no_gateway_starts_on_an_interrupted_copy() {
    let (upstream, clock, keys, files) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    let sqlite = Gateway::in_folder(text(&upstream, ""), files.clone(), clock.clone());
    let alice = sqlite.issue("alice", "").await;
    drop(sqlite);
    std::fs::write(files.path().join("gateway.toml"), text(&upstream, &keys)).expect("written");
    assert_copied(&copy_when_free(files.path()));

    sql(schema(&keys), "insert into meta (name, value) values ('copy', 1); delete from families");
    let error = start_error(&text(&upstream, &keys), files.path());
    assert!(error.contains("a copy to it was interrupted"), "{error}");
    assert_copied(&copy(files.path()));
    let shared = gateway(&upstream, &keys, &files, &clock);
    assert_eq!(shared.refresh(&alice.access, &alice.refresh).await.status, 200);
}

#[tokio::test]
async fn a_copy_that_differs_is_reported_and_not_used() {
    let (upstream, clock, keys, files) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    let sqlite = Gateway::in_folder(text(&upstream, ""), files.clone(), clock.clone());
    sqlite.issue("alice", "").await;
    drop(sqlite);
    std::fs::write(files.path().join("gateway.toml"), text(&upstream, &keys)).expect("written");
    assert_copied(&copy_when_free(files.path()));

    sql(
        schema(&keys),
        "create function change() returns trigger language plpgsql as
             'begin new.generation = new.generation + 1; return new; end';
         create trigger change before insert on families for each row execute function change();
         insert into meta (name, value) values ('copy', 1)",
    );
    let output = copy(files.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("the copy differs from its source: 1 sessions"), "{}", errors(&output));
    let error = start_error(&text(&upstream, &keys), files.path());
    assert!(error.contains("a copy to it was interrupted"), "{error}");
}

#[tokio::test]
async fn a_copy_needs_the_root_secrets_of_its_source() {
    let (upstream, clock, keys, files) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    let sqlite = Gateway::in_folder(text(&upstream, ""), files.clone(), clock.clone());
    sqlite.issue("alice", "").await;
    drop(sqlite);
    std::fs::write(files.path().join("gateway.toml"), text(&upstream, &keys)).expect("written");
    let other = "1 0000000000000000000000000000000000000000001\n";
    std::fs::write(files.path().join("bearward.secret"), other).expect("written");
    let output = copy_when_free(files.path());
    assert!(errors(&output).contains("sealed under another root secret"), "{}", errors(&output));
    let tables = PostgresServer::shared().sql("bearward", "select schemaname from pg_tables");
    assert!(!tables.contains(schema(&keys)), "nothing was written");
}
