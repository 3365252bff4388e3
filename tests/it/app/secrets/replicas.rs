//! Two gateways on one database, each with a mount of the same secret. The kubelets swap them minutes apart.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::program::GatewayProcess;
use crate::support::{Gateway, Upstream};

struct Replica {
    served: GatewayProcess,
    mounted: MountedVolume,
    folder: TempDir,
}

/// `root`: the folder with the root secret of another gateway.
fn start(upstream: &Upstream, store: &str, pem: &str, root: Option<&Path>) -> Replica {
    let folder = TempDir::new().expect("a folder");
    let mounted = MountedVolume::new(&folder.path().join("mount"), &[("signing.pem", pem)]);
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("[store]\n{store}\n"))
        .replace("[tokens]\n", "[tokens]\nsigning_key_file = \"mount/signing.pem\"\n");
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    for root in root.iter() {
        fs::copy(root.join("bearward.secret"), folder.path().join("bearward.secret")).expect("copied");
    }
    Replica { served: GatewayProcess::start(folder.path()), mounted, folder }
}

#[tokio::test]
async fn a_secret_is_swapped_at_one_gateway_after_the_other() {
    let (upstream, store) = (Upstream::start(), PostgresServer::shared().store_keys());
    let [(old, old_kid), (new, new_kid)] = [new_key(), new_key()];
    let mut one = start(&upstream, &store, &old, None);
    let mut two = start(&upstream, &store, &old, Some(one.folder.path()));
    let both = [one.served.client(), two.served.client()];
    let [first_admin, second_admin] = [one.served.admin_client(), two.served.admin_client()];
    let before = issue(&second_admin).await;

    one.mounted.swap(&[("signing.pem", &new)]);
    let of_one = wait_for_signer(&first_admin, &new_kid).await;
    let of_two = issue(&second_admin).await;
    assert_eq!(kid_of(&of_two.access), old_kid, "its own mount has not changed");
    for client in &both {
        for pair in [&before, &of_one, &of_two] {
            assert_eq!(status(client, &pair.access).await, 200);
        }
    }
    let moved = refresh(&both[0], &of_two).await;
    assert_eq!(kid_of(&moved.access), new_kid);
    assert_eq!(status(&both[1], &moved.access).await, 200);

    two.mounted.swap(&[("signing.pem", &new)]);
    wait_for_signer(&second_admin, &new_kid).await;
    assert_eq!(second_admin.post(&format!("/admin/v1/keys/{old_kid}/revoke"), &json!({})).await.status, 200);
    for client in &both {
        eventually_within(TIMEOUT, "the old key is dead", async || match status(client, &before.access).await {
            401 => Ok(()),
            other => Err(other.to_string()),
        })
        .await;
        assert_eq!(status(client, &of_one.access).await, 200);
    }
}

/// A mount that does not follow must not make tokens that no gateway accepts.
#[tokio::test]
async fn a_gateway_that_keeps_the_old_file_keeps_its_key() {
    let (upstream, store) = (Upstream::start(), PostgresServer::shared().store_keys());
    let clock = Arc::new(ManualClock::new());
    let keys = [new_key(), new_key()];
    let start = |pem: &str, root: Option<&Path>| {
        let folder = Arc::new(TempDir::new().expect("a folder"));
        bearward::types::secret::write_private(&folder.path().join("signing.pem"), pem.as_bytes()).expect("written");
        for root in root.iter() {
            fs::copy(root.join("bearward.secret"), folder.path().join("bearward.secret")).expect("copied");
        }
        let text = Gateway::config_text(&upstream.address.to_string(), &format!("[store]\n{store}\n"))
            .replace("[tokens]\n", "[tokens]\nsigning_key_file = \"signing.pem\"\n");
        Gateway::in_folder(text, folder, clock.clone())
    };
    let one = start(&keys[0].0, None);
    let two = start(&keys[1].0, Some(one.path()));
    for _ in 0..6 {
        // Less than a retired key verifies, and two of these are more.
        clock.advance(Duration::from_mins(10));
        eventually_within(TIMEOUT, "both gateways accept the tokens of both", async || {
            for issuer in [&one, &two] {
                let pair = issuer.issue("alice", "").await;
                for verifier in [&one, &two] {
                    let found = verifier.status_of(&pair.access).await;
                    if found != 200 {
                        return Err(format!("{found} for {}", kid_of(&pair.access)));
                    }
                }
            }
            Ok(())
        })
        .await;
    }
    wait_for_states(&one.admin_client(), &[(&keys[0].1, "active"), (&keys[1].1, "active")]).await;
}

/// The password of the database, as a secret store renews it.
#[tokio::test]
async fn a_renewed_database_password_is_used_for_the_next_connection() {
    let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
    let server = PostgresServer::start_with(&["max_connections=40"], "scram-sha-256");
    let mut mounted = MountedVolume::new(&folder.path().join("mount"), &[("password", "secret\n")]);
    let store = format!("{}postgres_password_file = \"mount/password\"\n", server.store_keys());
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("[store]\n{store}"));
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let served = GatewayProcess::start(folder.path());
    let (client, admin) = (served.client(), served.admin_client());
    let pair = issue(&admin).await;

    server.sql("postgres", "alter role bearward password 'renewed'");
    assert!(server.terminate_connections("bearward/") > 0);
    eventually_within(TIMEOUT, "the gateway has no connection", async || {
        match admin.post("/admin/v1/tokens", &json!({ "sub": "bob" })).await.status.as_u16() {
            503 => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await;
    mounted.swap(&[("password", "renewed\n")]);
    let next = eventually_within(TIMEOUT, "the gateway is connected again", async || {
        let body = json!({ "refreshToken": pair.refresh });
        let response = client.clone().bearer(&pair.access).post("/user/refresh", &body).await;
        if response.status == 200 { Ok(TokenPair::from_json(&response.json())) } else { Err(response.text()) }
    })
    .await;
    assert_eq!(status(&client, &next.access).await, 200);
}
