//! The root secrets of gateways that share a database.

use std::fs;
use std::sync::Arc;

use bearward::admin::SecretSource;
use bearward::app;

use super::{copy_roots, folder, gateway, start_error, store_keys, text};
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::program::GatewayProcess;
use crate::support::{TokenPair, Upstream};

#[tokio::test]
async fn gateways_with_the_same_root_secret_share_sessions() {
    let (upstream, clock, keys) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys());
    let (one, two) = (folder(), folder());
    let first = gateway(&upstream, &keys, &one, &clock);
    copy_roots(one.path(), two.path());
    let second = gateway(&upstream, &keys, &two, &clock);
    let pair = first.issue("alice", "").await;
    assert_eq!(second.status_of(&pair.access).await, 200);
    let next = TokenPair::from_json(&second.refresh(&pair.access, &pair.refresh).await.json());
    assert_eq!(first.status_of(&next.access).await, 200);
    assert_eq!(first.revoke(&next.access, &next.token_id).await.status, 200);
    assert_eq!(first.status_of(&next.access).await, 401);
    second.refresh(&next.access, &next.refresh).await.assert_rejected(400, "invalid_grant");
}

#[tokio::test]
async fn a_gateway_with_another_root_secret_does_not_start() {
    let (upstream, clock, keys) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys());
    let (one, two) = (folder(), folder());
    let first = gateway(&upstream, &keys, &one, &clock);
    let pair = first.issue("alice", "").await;

    let other = "1 0000000000000000000000000000000000000000001\n";
    bearward::types::secret::write_private(&two.path().join("bearward.secret"), other.as_bytes()).expect("written");
    let error = start_error(&text(&upstream, &keys), two.path());
    assert!(error.contains("root secret 1 is not the one that the database is used with"), "{error}");
    assert!(error.contains("bearward.secret") && !error.contains("00000001"), "{error}");

    copy_roots(one.path(), two.path());
    let second = gateway(&upstream, &keys, &two, &clock);
    assert_eq!(second.refresh(&pair.access, &pair.refresh).await.status, 200);
}

/// An operator may provide the root secret before the first start, so that this is no error.
#[test]
fn a_new_database_beside_an_old_root_secret_is_a_warning() {
    let upstream = Upstream::start();
    let keys = store_keys();
    let files = folder();
    let secret = format!("1 {}1\n", "0".repeat(42));
    bearward::types::secret::write_private(&files.path().join("bearward.secret"), secret.as_bytes()).expect("written");
    fs::write(files.path().join("gateway.toml"), text(&upstream, &keys)).expect("written");
    for is_new in [true, false] {
        let log = GatewayProcess::start(files.path()).program.stderr_so_far();
        assert_eq!(log.contains("is new, but its root secret") && log.contains("deploy/backup.md"), is_new, "{log}");
    }
}

#[tokio::test]
async fn a_lost_root_secret_is_not_replaced_by_a_new_one() {
    let (upstream, clock, keys, one) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys(), folder());
    drop(gateway(&upstream, &keys, &one, &clock));
    let file = one.path().join("bearward.secret");
    let saved = fs::read(&file).expect("created at the start");
    fs::remove_file(&file).expect("removed");
    let error = start_error(&text(&upstream, &keys), one.path());
    assert!(error.contains("cannot be used without it") && error.contains("DROP SCHEMA t_"), "{error}");
    assert!(!file.exists(), "a start must not hide the loss");
    bearward::types::secret::write_private(&file, &saved).expect("restored");
    drop(gateway(&upstream, &keys, &one, &clock));
}

/// A gateway that runs does not know a root secret that was added later, so no other one may use it yet.
#[tokio::test]
async fn a_new_root_secret_is_used_when_every_gateway_knows_it() {
    let (upstream, clock, keys) = (Upstream::start(), Arc::new(ManualClock::new()), store_keys());
    let (one, two) = (folder(), folder());
    let first = gateway(&upstream, &keys, &one, &clock);
    copy_roots(one.path(), two.path());
    let second = gateway(&upstream, &keys, &two, &clock);

    app::add_root(&SecretSource::File(one.path().join("bearward.secret"))).expect("added");
    let first = first.restart();
    let pair = first.issue("alice", "").await;
    assert_eq!(newest_root(&keys), "1");
    assert_eq!(second.refresh(&pair.access, &pair.refresh).await.status, 200, "made with the old root secret");

    drop(second);
    let error = start_error(&text(&upstream, &keys), two.path());
    assert!(error.contains("lacks root secret 2"), "{error}");
    fs::remove_file(two.path().join("bearward.secret")).expect("removed");
    copy_roots(one.path(), two.path());
    let second = gateway(&upstream, &keys, &two, &clock);
    let first = first.restart();
    let pair = first.issue("bob", "").await;
    assert_eq!(newest_root(&keys), "2");
    assert_eq!(second.refresh(&pair.access, &pair.refresh).await.status, 200, "made with the new root secret");
}

/// The root secret of the newest session in the database.
fn newest_root(keys: &str) -> String {
    let schema = keys.rsplit('"').nth(1).expect("the last key is the schema");
    let sql = format!("select root from {schema}.families order by created_at desc, root desc limit 1");
    PostgresServer::shared().sql("bearward", &sql)
}
