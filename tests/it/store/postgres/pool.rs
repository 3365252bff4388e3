//! Metrics of the connections and of the operations on them.

use serde_json::json;

use crate::support::postgres::{PostgresServer, USER};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream};

/// Waits until a metric is this value at least, or exactly.
async fn until(gateway: &Gateway, metric: &str, is_reached: impl Fn(f64) -> bool) {
    eventually_ok(metric, async || match gateway.metric(metric).await {
        value if is_reached(value) => Ok(()),
        value => Err(value.to_string()),
    })
    .await;
}

/// Operations that ended.
async fn ended(gateway: &Gateway, operation: &str) -> f64 {
    gateway.metric(&format!("bearward_store_operation_seconds_count{{operation=\"{operation}\"}}")).await
}

#[tokio::test]
async fn the_metrics_show_connections_and_operations() {
    let upstream = Upstream::start();
    let mut server = PostgresServer::start_with(&["fsync=off"], "trust");
    let schema = server.schema();
    let store = format!("[store]\npostgres = \"{}\"\nschema = \"{schema}\"\npool = 2\n", server.url());
    let gateway = Gateway::with_config(&upstream, &store);
    for (lane, count) in [("changes", 2.0), ("log", 1.0), ("upkeep", 1.0), ("follower", 1.0)] {
        until(&gateway, &format!("bearward_store_connections{{lane=\"{lane}\"}}"), |open| open == count).await;
    }
    until(&gateway, "bearward_store_up", |up| up == 1.0).await;

    let alice = gateway.issue("alice", "").await;
    let bob = gateway.issue("bob", "").await;
    assert_eq!(gateway.refresh(&alice.access, &alice.refresh).await.status, 200);
    assert_eq!(gateway.revoke(&bob.access, &bob.token_id).await.status, 200);
    for (operation, count) in [("issue", 2.0), ("refresh", 1.0), ("revoke", 1.0)] {
        assert_eq!(ended(&gateway, operation).await, count, "{operation}");
    }
    assert!(ended(&gateway, "poll").await > 0.0 && ended(&gateway, "upkeep").await > 0.0);

    // A known token needs no database.
    let of_requests = ["issue", "refresh", "revoke", "read", "mark"];
    let mut before = Vec::new();
    for operation in of_requests {
        before.push(ended(&gateway, operation).await);
    }
    for _ in 0..20 {
        assert_eq!(gateway.status_of(&alice.access).await, 200);
    }
    for (operation, count) in of_requests.into_iter().zip(before) {
        assert_eq!(ended(&gateway, operation).await, count, "{operation}");
    }

    let lock = format!("set application_name = 'operator'; lock table {schema}.meta in exclusive mode");
    let mut shell = server.open_transaction(USER, &lock);
    let path = format!("/admin/v1/tokens/{}", alice.token_id);
    let admin = gateway.admin_client();
    let revoked = tokio::spawn(async move { admin.delete(&path).await.status });
    until(&gateway, "bearward_store_operations{state=\"running\"}", |running| running >= 1.0).await;
    assert_eq!(gateway.metric("bearward_store_operations{state=\"waiting\"}").await, 0.0, "each has a place");
    server.terminate_connections("operator");
    let _ = shell.wait();
    revoked.await.expect("no panic");
    until(&gateway, "bearward_store_operation_seconds_count{operation=\"revoke\"}", |count| count >= 2.0).await;

    server.kill();
    until(&gateway, "bearward_store_up", |up| up == 0.0).await;
    assert_eq!(gateway.request_tokens(&json!({ "sub": "carol" })).await.status, 503);
    server.restart();
    until(&gateway, "bearward_store_up", |up| up == 1.0).await;
}
