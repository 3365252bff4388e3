//! A call that failed because the standby is away, and is repeated: its change may be visible, and a failover would
//! lose it.

use std::time::Duration;

use serde_json::json;

use crate::support::postgres::{PostgresServer, REPLICATED, USER};
use crate::support::wait::eventually_within;
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

const CONFIG: &str = r#"
schema = "repeated"
[audit]
file = "off"
[timeouts]
store = "1s"
[oauth]
revocation_endpoint = "/oauth/revoke"
"#;
const RECOVERY: Duration = Duration::from_secs(30);

struct Scene {
    gateway: Gateway,
    primary: PostgresServer,
    standby: PostgresServer,
}

impl Scene {
    fn begin(upstream: &Upstream) -> Scene {
        let own = ["fsync=off", "max_connections=60", "wal_retrieve_retry_interval=100ms"];
        let settings: Vec<&str> = REPLICATED.iter().copied().chain(own).collect();
        let primary = PostgresServer::start_with(&settings, "trust");
        let standby = primary.standby(primary.port);
        primary.wait_for_standby_at_commits();
        let config = format!("[store]\npostgres = \"{}\"{CONFIG}", primary.url());
        Scene { gateway: Gateway::with_config(upstream, &config), primary, standby }
    }

    /// Calls while the standby is away, lets the primary crash, and calls again. `change`: what the call changes.
    async fn repeat(&mut self, what: &str, change: &str, call: impl AsyncFn(&Gateway) -> TestResponse) {
        let is_made = format!("set search_path = repeated; select {change}");
        self.standby.signal_all("STOP");
        assert_eq!(call(&self.gateway).await.status, 503, "{what}: the standby is away");
        self.primary.kill();
        self.primary.restart();
        assert_eq!(self.primary.sql(USER, &is_made), "t", "{what}: the change is visible after the crash");
        let gateway = &self.gateway;
        eventually_within(RECOVERY, "the gateway has read all revocations", async || {
            let (ready, newest) = (gateway.admin_client().get("/admin/v1/subjects/alice/tokens").await, self.newest());
            let applied = gateway.metric("bearward_revocation_sequence").await;
            (ready.status == 200 && newest == applied.to_string()).then_some(()).ok_or(format!("{newest} {ready:?}"))
        })
        .await;
        for _ in 0..2 {
            let again = call(gateway).await;
            assert_eq!(again.status, 503, "{what}: the standby lacks it: {again:?}");
        }
        self.standby.signal_all("CONT");
        eventually_within(RECOVERY, what, async || {
            let again = call(gateway).await;
            (again.status == 200).then_some(()).ok_or(format!("{again:?}"))
        })
        .await;
        eventually_within(RECOVERY, what, async || {
            (self.standby.sql(USER, &is_made) == "t").then_some(()).ok_or("the standby lacks it".into())
        })
        .await;
    }

    fn newest(&self) -> String {
        let newest = "set search_path = repeated; select value from meta where name = 'revocation_sequence'";
        self.primary.sql(USER, newest)
    }
}

fn is_revoked(pair: &TokenPair) -> String {
    format!("revoked_at is not null from families where id = '{}'", pair.token_id)
}

#[tokio::test]
async fn a_repeated_call_waits_for_the_standby_too() {
    let upstream = Upstream::start();
    let mut scene = Scene::begin(&upstream);
    let issue = async || scene.gateway.issue("alice", "").await;
    let (caller, ended, left, refreshed) = (issue().await, issue().await, issue().await, issue().await);
    let revoke = async |gateway: &Gateway| gateway.revoke(&caller.access, &ended.token_id).await;
    scene.repeat("DELETE /token", &is_revoked(&ended), revoke).await;
    let by_token = async |gateway: &Gateway| {
        let form = format!("token={}", left.access);
        let client = gateway.client().header("content-type", "application/x-www-form-urlencoded");
        client.send(http::Method::POST, "/oauth/revoke", form.into()).await
    };
    scene.repeat("POST /oauth/revoke", &is_revoked(&left), by_token).await;
    let child = format!("generation = 2 from families where id = '{}'", refreshed.token_id);
    let refresh = async |gateway: &Gateway| gateway.refresh(&refreshed.access, &refreshed.refresh).await;
    scene.repeat("POST /user/refresh", &child, refresh).await;
    let rotate = async |gateway: &Gateway| gateway.admin_client().post("/admin/v1/keys/rotate", &json!({})).await;
    scene.repeat("POST /admin/v1/keys/rotate", "count(*) = 2 from signing_keys", rotate).await;
}
