//! Two gateways on one PostgreSQL.

use std::sync::Arc;

use futures_util::future::join_all;
use tempfile::TempDir;

use super::{CI, MachineKey, granted};
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn an_assertion_is_used_once_at_two_gateways() {
    let (upstream, key, clock) = (Upstream::start(), MachineKey::new(), Arc::new(ManualClock::new()));
    let store = PostgresServer::shared().store_keys();
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("[store]\n{store}\n{CI}"));
    let folders = [0, 1].map(|_| Arc::new(TempDir::new().expect("a folder")));
    let start = |folder: &Arc<TempDir>| {
        std::fs::write(folder.path().join("ci.json"), key.0.jwks()).expect("written");
        Gateway::in_folder(text.clone(), folder.clone(), clock.clone())
    };
    let first = start(&folders[0]);
    std::fs::copy(folders[0].path().join("bearward.secret"), folders[1].path().join("bearward.secret"))
        .expect("copied");
    let gateways = [first, start(&folders[1])];
    for _ in 0..3 {
        let assertion = key.assertion(gateways[0].now_secs());
        let calls = (0..12).map(|call| granted(gateways[call % 2].client(), &assertion, &[]));
        let statuses: Vec<u16> = join_all(calls).await.iter().map(|response| response.status.as_u16()).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 11, "{statuses:?}");
    }
}
