//! Logins at other issuers through several gateways, and gateways that do not know them.

use std::sync::Arc;
use std::time::Duration;

use bearward::store::postgres::PostgresStore;
use bearward::store::{
    FamilyStore, LoginLease, Mark, MarkKind, MarkStore, Marked, ProviderLogin, ProviderLoginStore, RefreshedLogin,
    Renewed, RevocationStore, RevokedBy, SavedLogin,
};
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::{Family, FamilyOrigin};
use bearward::types::clock::UnixTime;

use super::open;
use crate::support::given::*;
use crate::support::postgres::PostgresServer;
use crate::support::wait::eventually;

const A: &str = "https://a.example";

fn from(session: &str) -> Family {
    let origin =
        FamilyOrigin { issuer: A.into(), subject: "alice".into(), session: Some(session.into()), dated: LOGIN };
    Family { origin: Some(origin), ..login("a|alice", LOGIN) }
}

fn session(session: &str) -> Revoked {
    Revoked::Session { issuer: A.into(), session: session.into() }
}

fn sql(schema: &str, sql: &str) -> String {
    PostgresServer::shared().sql("bearward", &format!("set search_path = {schema}; {sql}"))
}

/// The statement of the login does not see that of the revocation, or the other way round.
#[tokio::test]
async fn no_login_escapes_a_revocation_at_the_same_time() {
    let schema = PostgresServer::shared().schema();
    let stores = [Arc::new(open(&schema)), Arc::new(open(&schema))];
    for round in 0..60 {
        let name = round.to_string();
        let family = from(&name);
        let revoke = || stores[1].revoke(session(&name), LOGIN.into());
        let issue = || stores[0].issue(family.clone(), ANY, UnixTime::into(LOGIN));
        let (revoked, began) = match round % 2 {
            0 => (revoke(), issue()),
            _ => {
                let began = issue();
                (revoke(), began)
            }
        };
        revoked.await.expect("the store works");
        let began = began.await.expect("the store works");
        let found = stores[1].family(family.id).await.expect("the store works");
        let is_live = found.is_some_and(|family| family.revoked.is_none());
        assert!(!is_live, "round {round}: began {}", began.is_some());
    }
}

/// The statement of the login waits for the lock of another transaction, and does not see what is written meanwhile.
#[tokio::test]
async fn a_login_that_could_not_see_a_revocation_is_void() {
    let (schema, server) = (PostgresServer::shared().schema(), PostgresServer::shared());
    let stores = [open(&schema), open(&schema)];
    let blocking = format!(
        "from pg_stat_activity a, unnest(pg_blocking_pids(a.pid)) p where a.application_name = 'bearward/{schema}'"
    );
    for round in 0..20 {
        let name = round.to_string();
        let family = from(&name);
        let same_id = format!(
            "insert into {schema}.families (id, subject, scope, audience, client_id, claims, label, salt, generation,
                 root, rotated_at, confirmed, created_at, last_used_at, idle_expiry, absolute_expiry)
             values ('{}', 'a', '', '[]', '', '{{}}', '', sha256(''), 1, 1, 0, 0, 0, 0, 0, 0)",
            family.id
        );
        let mut other = server.open_transaction("bearward", &same_id);
        let is_open = format!(
            "select count(*) from pg_stat_activity where query like '%pg_sleep(3600)%'
            and pid in (select pid from pg_locks where relation = '{schema}.families'::regclass)"
        );
        eventually("the other transaction holds the id", || server.sql("bearward", &is_open) == "1").await;
        let issue = stores[0].issue(family.clone(), ANY, LOGIN.into());
        eventually("the login waits", || server.sql("bearward", &format!("select count(*) {blocking}")) != "0").await;
        stores[1].revoke(session(&name), LOGIN.into()).await.expect("the store works");
        server.sql("bearward", &format!("select pg_terminate_backend(p) {blocking}"));
        other.wait().expect("it has ended");
        // On a busy machine, the login may have waited for too long.
        let Ok(began) = issue.await else { continue };
        assert_eq!(began, None);
        assert!(stored(&stores[1], &family).await.revoked.is_some(), "it was written, and ended");
        return;
    }
    panic!("the login always waited for too long");
}

/// Two gateways get the same logout token.
#[tokio::test]
async fn a_mark_is_used_by_one_gateway() {
    let schema = PostgresServer::shared().schema();
    let stores = [open(&schema), open(&schema)];
    for round in 0..30_usize {
        let (kind, value) = (MarkKind::LogoutToken, [7; 32]);
        let mark = Mark { kind, issuer: A.into(), key: round.to_string(), value, until: UnixTime::MAX };
        let name = round.to_string();
        let [one, other] =
            [0, 1].map(|gateway: usize| stores[gateway].mark(mark.clone(), vec![session(&name)], LOGIN.into()));
        let outcomes = [one.await.expect("the store works"), other.await.expect("the store works")];
        assert!(outcomes.contains(&Marked::First) && outcomes.contains(&Marked::Repeated), "{outcomes:?}");
        let log = stores[0].revocations_since(0).await.expect("the store works");
        assert_eq!(log.len(), round + 1);
    }
}

/// The sender repeats a message because the gateway was killed before its response.
#[tokio::test]
async fn a_repeated_mark_ends_what_the_first_use_left() {
    let schema = PostgresServer::shared().schema();
    let store = open(&schema);
    let mark = || {
        let (kind, key) = (MarkKind::LogoutToken, "1".into());
        Mark { kind, issuer: A.into(), key, value: [7; 32], until: UnixTime::MAX }
    };
    store.mark(mark(), vec![session("s")], LOGIN.into()).await.expect("the store works");
    let family = from("other");
    store.issue(family.clone(), ANY, LOGIN.into()).await.expect("the store works").expect("not void");
    sql(&schema, "update families set origin_session = 's'");
    let again = store.mark(mark(), vec![session("s")], LOGIN.into()).await.expect("the store works");
    assert_eq!(again, Marked::Repeated);
    assert!(stored(&store, &family).await.revoked.is_some());
    let log = store.revocations_since(0).await.expect("the store works");
    let what: Vec<_> = log.into_iter().map(|entry| entry.what).collect();
    assert_eq!(what, [session("s"), Revoked::Family(family.id)]);
}

/// An older gateway fails at a kind that it does not know, and then rejects every token.
#[tokio::test]
async fn older_gateways_read_a_session_as_one_token() {
    let schema = PostgresServer::shared().schema();
    let store = open(&schema);
    store.revoke(session("s"), LOGIN.into()).await.expect("the store works");
    let token = Revoked::Token { issuer: A.into(), jti: "s".into() };
    store.revoke(token, LOGIN.into()).await.expect("the store works");
    for table in ["revocations", "endings"] {
        let kinds =
            format!("select string_agg(kind || ' ' || name || ' ' || session, ',' order by sequence) from {table}");
        assert_eq!(sql(&schema, &kinds), "token s true,token s false");
    }
    // What an older gateway writes.
    sql(&schema, "update revocations set session = null where sequence = 2; update endings set session = null");
    let log = store.revocations_since(1).await.expect("the store works");
    assert!(matches!(log[0].what, Revoked::Token { .. }));
}

fn tokens(version: u64) -> ProviderLogin {
    let sealed = version.to_string().into_bytes();
    ProviderLogin { provider: "corp".into(), root: 1, sealed, version, due: LOGIN, claimed: true }
}

async fn begun(store: &PostgresStore, name: &str) -> Family {
    let began = store.begin_login(from(name), tokens(0), None, ANY, LOGIN.into()).await;
    began.expect("the store works").expect("not void")
}

#[tokio::test]
async fn one_gateway_refreshes_a_login() {
    let schema = PostgresServer::shared().schema();
    let stores = [open(&schema), open(&schema)];
    let until = LOGIN + Duration::from_secs(10);
    for round in 0..20 {
        let family = begun(&stores[0], &round.to_string()).await;
        let leases = [0, 1]
            .map(|gateway: u8| stores[usize::from(gateway)].lease_login(family.id, 0, [gateway; 16], LOGIN, until));
        let mut granted = Vec::new();
        for (gateway, lease) in leases.into_iter().enumerate() {
            match lease.await.expect("the store works") {
                LoginLease::Granted => granted.push(gateway),
                other => assert_eq!(other, LoginLease::Held { until }),
            }
        }
        let [holder] = granted[..] else { panic!("{granted:?}") };
        // Both have refreshed the tokens: the lease of one ended before its response came.
        let saved = [holder, 1 - holder].map(|gateway| {
            let id = [u8::try_from(gateway).expect("small"); 16];
            let (scope, claims, due_before) = (String::new(), Default::default(), tokens(0).due);
            let renewed = Some(Renewed { scope, claims, due_before });
            let refreshed = RefreshedLogin { login: tokens(1), renewed };
            stores[gateway].save_login(family.id, id, refreshed, LOGIN.into())
        });
        for saved in saved {
            assert_eq!(saved.await.expect("the store works"), SavedLogin::Saved, "both have the same tokens");
        }
        let events = "select count(*) from audit where event::json->>'event' = 'provider_login.refreshed'";
        assert_eq!(sql(&schema, events), (round + 1).to_string(), "and one has written them");
    }
}

/// Between them are the ends of many other sessions, more than one statement reads.
#[tokio::test]
async fn each_end_is_found_by_one_gateway() {
    let schema = PostgresServer::shared().schema();
    let stores = [open(&schema), open(&schema)];
    let (first, last) = (begun(&stores[0], "1").await, begun(&stores[0], "2").await);
    let end = |family: &Family| stores[1].revoke_family(family.id, RevokedBy::Admin, LOGIN.into());
    end(&first).await.expect("the store works");
    sql(
        &schema,
        "insert into endings (sequence, kind, name, at, reason, until)
         select n, 'family', n::text, 0, 'admin', 9000000000000 from generate_series(2, 12000) n;
         update meta set value = 12000 where name = 'revocation_sequence'",
    );
    end(&last).await.expect("the store works");
    let mut told = Vec::new();
    let calls = [0, 1].map(|gateway: usize| stores[gateway].logins_to_revoke("corp".into(), LOGIN, 10));
    for call in calls {
        told.extend(call.await.expect("the store works"));
    }
    // Both gateways may have looked before one of them had read the list.
    told.extend(stores[0].logins_to_revoke("corp".into(), LOGIN, 10).await.expect("the store works"));
    told.sort_by_key(|(id, _)| *id != first.id);
    assert_eq!(told.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [first.id, last.id]);
}
