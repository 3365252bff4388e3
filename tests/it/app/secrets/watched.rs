//! With `watch = "all"`, the gateway follows every file that it reads, and says which secret only a start uses.

use std::fs;

use bearward::types::secret;
use http::Method;
use tempfile::TempDir;

use super::*;
use crate::support::program::GatewayProcess;
use crate::support::{Gateway, TestResponse, Upstream};

const CONFIG: &str = "[[issuer]]\nissuer = \"https://login.example\"\naudience = [\"https://api.example\"]\n\
    [issuer.introspection]\nendpoint = \"http://UPSTREAM/status/503\"\nallow_http = true\nclient_id = \"bearward\"\n\
    client_secret_file = \"mount/client\"\n\
    [oauth]\nintrospection_endpoint = \"/introspect\"\n[[oauth.resource_server]]\nclient_id = \"orders\"\n\
    secret_file = \"mount/orders\"\n\
    [forward_auth]\npath = \"/auth\"\ndialect = \"x-original\"\nsecret_file = \"mount/proxy\"\n";

/// Secrets that only a start reads, beside the two of every gateway.
const MORE: &str = "[[admin.operator]]\nname = \"alice\"\ntoken_file = \"alice.token\"\n\
    [[event_stream]]\nname = \"hr\"\nissuer = \"https://login.example\"\naudience = \"https://api.example\"\n\
    path = \"/events\"\nallow_http = true\njwks_url = \"http://127.0.0.1:9/jwks\"\nauthorization_file = \"events\"\n";

/// The content of each file of the mount. `letter` tells the versions apart.
fn files(letter: &str) -> Vec<(&'static str, String)> {
    ["client", "orders", "proxy"].into_iter().map(|name| (name, format!("{name}-{}\n", letter.repeat(32)))).collect()
}

fn swap(mounted: &mut MountedVolume, letter: &str) {
    let files = files(letter);
    mounted.swap(&files.iter().map(|(name, content)| (*name, content.as_str())).collect::<Vec<_>>());
}

async fn introspect(client: &Client, token: &str, letter: &str) -> u16 {
    let basic = basic("orders", "orders", letter);
    let client = client.clone().header("authorization", &basic);
    let client = client.header("content-type", "application/x-www-form-urlencoded");
    client.send(Method::POST, "/introspect", format!("token={token}").into()).await.status.as_u16()
}

fn basic(client: &str, name: &str, letter: &str) -> String {
    let secret = format!("{client}:{name}-{}", letter.repeat(32));
    format!("Basic {}", base64::Engine::encode(&base64::engine::general_purpose::STANDARD, secret))
}

async fn ask(client: &Client, letter: &str) -> TestResponse {
    let client = client.clone().proxy().header("x-forwarded-for", "198.51.100.7").header("x-forwarded-proto", "https");
    let client = client.header("x-original-method", "GET").header("x-original-host", "api.example");
    let secret = format!("proxy-{}", letter.repeat(32));
    client.header("x-original-uri", "/").header("x-forward-auth-secret", &secret).get("/auth").await
}

#[tokio::test]
async fn every_secret_of_a_swapped_mount_is_used_without_a_restart() {
    let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
    let mut mounted =
        MountedVolume::new(&folder.path().join("mount"), &[("client", ""), ("orders", ""), ("proxy", "")]);
    swap(&mut mounted, "a");
    let address = upstream.address.to_string();
    let text = Gateway::config_text(&address, &CONFIG.replace("UPSTREAM", &address));
    fs::write(folder.path().join("gateway.toml"), format!("watch = \"all\"\n{text}")).expect("written");
    let served = GatewayProcess::start(folder.path());
    let (client, admin) = (served.client(), served.admin_client());
    // What the gateway shows to the introspection endpoint.
    let shown = async |token: &str| {
        client.clone().bearer(token).get("/").await;
        let seen = upstream.seen();
        let asked = seen.iter().rev().find(|request| request.target() == "/status/503").expect("the gateway asked");
        asked.header("authorization").map(str::to_owned)
    };
    let token = issue(&admin).await.access;
    let introspect = async |letter: &str| introspect(&client, &token, letter).await;
    assert_eq!(shown("opaque-1").await, Some(basic("bearward", "client", "a")));
    assert_eq!((introspect("a").await, introspect("b").await), (200, 401));
    assert_eq!((ask(&client, "a").await.status.as_u16(), ask(&client, "b").await.status.as_u16()), (401, 403));

    swap(&mut mounted, "b");
    eventually_within(TIMEOUT, "the new secrets are active", async || match introspect("b").await {
        200 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    assert_eq!(introspect("a").await, 401);
    assert_eq!((ask(&client, "a").await.status.as_u16(), ask(&client, "b").await.status.as_u16()), (403, 401));
    assert_eq!(shown("opaque-2").await, Some(basic("bearward", "client", "b")));

    // One file of the next version is missing, so none of it is used.
    let next = files("c");
    mounted.swap(&next[..2].iter().map(|(name, content)| (*name, content.as_str())).collect::<Vec<_>>());
    let log = served.program.wait_for_stderr("mount/proxy does not exist");
    assert!(log.contains("not reloaded; the current settings stay active"), "{log}");
    assert_eq!((introspect("b").await, introspect("c").await), (200, 401));
    assert_eq!(metric(&admin, "bearward_reload_succeeded").await, 0.0);
}

/// The gateway goes on with the secrets of its start, and says so.
#[tokio::test]
async fn a_secret_that_only_a_start_reads_is_reported() {
    let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
    let text = Gateway::config_text(&upstream.address.to_string(), MORE);
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let write = |name: &str, secret: String| {
        secret::write_private(&folder.path().join(name), secret.as_bytes()).expect("written");
    };
    write("alice.token", "a".repeat(40));
    write("events", format!("Bearer {}", "a".repeat(40)));
    let served = GatewayProcess::start(folder.path());
    let (client, admin) = (served.client(), served.admin_client());
    let pair = issue(&admin).await;
    let root = folder.path().join("bearward.secret");
    let content = fs::read_to_string(&root).expect("created at the start");
    fs::write(&root, format!("{content}2 {}\n", "0".repeat(43))).expect("written");
    let log = served.program.wait_for_stderr("a secret has changed; the gateway uses it after a restart");
    assert!(log.contains("store.secret_file") && !log.contains("00000"), "{log}");
    write("alice.token", "b".repeat(40));
    write("events", format!("Bearer {}", "b".repeat(40)));
    for key in ["admin.operator[0].token_file", "event_stream[0].authorization_file"] {
        let log = served.program.wait_for_stderr(key);
        let line = log.lines().find(|line| line.contains(key)).expect("it is there");
        assert!(line.contains("a secret has changed; the gateway uses it after a restart"), "{line}");
        assert!(!log.contains("bbbbb"), "{log}");
    }
    fs::remove_file(folder.path().join("admin.token")).expect("removed");
    let log = served.program.wait_for_stderr("a secret cannot be read any more");
    assert!(log.contains("admin.token_file"), "{log}");
    refresh(&client, &pair).await;
    issue(&admin).await;

    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&root, &elsewhere).expect("moved away");
    served
        .program
        .wait_for_stderr("a secret cannot be read any more; the next start needs it key=\"store.secret_file\"");
    fs::rename(&elsewhere, &root).expect("moved back");
    let log = served.program.wait_for_stderr("a secret can be read again, and has not changed");
    let changed = log.lines().filter(|line| line.contains("has changed") && line.contains("store.secret_file"));
    assert_eq!(changed.count(), 1, "only the first change: {log}");
}
