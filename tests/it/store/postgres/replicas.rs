//! Whole gateways on one database: what is done through one holds at the others.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::support::certificates::Authority;
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::preload;
use crate::support::program::{GatewayProcess, Program};
use crate::support::tokens::{claims_of, header_of};
use crate::support::wait::{eventually_ok, eventually_within};
use crate::support::{Gateway, TokenPair, Upstream};

/// How long the others may need. Most of it is for the machine that runs all tests at once.
const SECOND: Duration = Duration::from_secs(1);

/// `count` gateways on one schema of this server. `keys`: more keys of `[store]`; `more`: more tables.
pub(super) fn gateways<const COUNT: usize>(
    server: &PostgresServer,
    upstream: &Upstream,
    keys: &str,
    more: &str,
) -> [Gateway; COUNT] {
    let store = format!("[store]\n{}{keys}\n", server.store_keys());
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("{store}{more}"));
    let mut secret: Option<Vec<u8>> = None;
    std::array::from_fn(|_| {
        let folder = Arc::new(TempDir::new().expect("a folder"));
        // The operator gives each gateway the same root secret.
        if let Some(secret) = &secret {
            write_secret(&folder, secret);
        }
        let gateway = Gateway::in_folder(text.clone(), folder, Arc::new(ManualClock::new()));
        secret.get_or_insert_with(|| fs::read(gateway.path().join("bearward.secret")).expect("the first one made it"));
        gateway
    })
}

fn write_secret(folder: &TempDir, secret: &[u8]) {
    let path = folder.path().join("bearward.secret");
    fs::write(&path, secret).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("private");
}

async fn until_status(gateway: &Gateway, access: &str, expected: u16) {
    eventually_within(Duration::from_secs(10), "the status changes", async || match gateway.status_of(access).await {
        status if status == expected => Ok(()),
        status => Err(format!("{status} instead of {expected}")),
    })
    .await;
}

#[tokio::test]
async fn several_gateways_are_one() {
    let upstream = Upstream::start();
    let [one, two, three] = gateways(PostgresServer::shared(), &upstream, "", "");
    let mut pair = one.issue("alice", "").await;
    for gateway in [&two, &three, &one, &two] {
        assert_eq!(gateway.status_of(&pair.access).await, 200, "the signing keys are the same");
        pair = TokenPair::from_json(&gateway.refresh(&pair.access, &pair.refresh).await.json());
    }
    assert_eq!(claims_of(&pair.access)["rgn"], 5);
    assert_eq!(three.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(three.status_of(&pair.access).await, 401);
    for gateway in [&one, &two] {
        until_status(gateway, &pair.access, 401).await;
        gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(400, "invalid_grant");
    }
    for (name, value) in [("store_forked_total", 0.0), ("revocation_gaps_total", 0.0), ("revocation_sequence", 1.0)] {
        assert_eq!(one.metric(&format!("bearward_{name}")).await, value, "{name}");
    }
}

#[tokio::test]
async fn a_revocation_elsewhere_ends_a_websocket_within_a_second() {
    let upstream = Upstream::start();
    let [one, two] = gateways(PostgresServer::shared(), &upstream, "", "");
    let (alice, bob) = (one.issue("alice", "").await, one.issue("bob", "").await);
    let (mut of_alice, mut of_bob) = (open(&two, &alice.access).await, open(&two, &bob.access).await);
    assert_eq!(one.revoke(&alice.access, &alice.token_id).await.status, 200);
    let closed = tokio::time::timeout(SECOND, of_alice.next()).await;
    let Ok(Some(Ok(Message::Close(Some(frame))))) = closed else { panic!("{closed:?}") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1008, "the token was revoked"));
    of_bob.send(Message::text("hello")).await.expect("sent");
    assert_eq!(of_bob.next().await.expect("open").expect("a message"), Message::text("hello"));
}

async fn open(gateway: &Gateway, access: &str) -> WebSocketStream<TcpStream> {
    let mut request = "ws://gateway.test/ws".into_client_request().expect("a request");
    request.headers_mut().insert("authorization", format!("Bearer {access}").parse().expect("a value"));
    let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
    tokio_tungstenite::client_async(request, stream).await.expect("a WebSocket").0
}

#[tokio::test]
async fn a_key_that_is_rotated_or_revoked_elsewhere_is_in_force_here() {
    let upstream = Upstream::start();
    let [one, two] = gateways(PostgresServer::shared(), &upstream, "", "");
    let old = two.issue("alice", "").await;
    let rotated = one.admin_client().post("/admin/v1/keys/rotate", &json!({ "now": true })).await;
    assert_eq!(rotated.status, 200, "{rotated:?}");
    let new = one.issue("alice", "").await;
    let kid = |token: &str| header_of(token)["kid"].clone();
    assert_ne!(kid(&old.access), kid(&new.access));
    until_status(&two, &new.access, 200).await;
    eventually_ok("it signs with the new key", async || {
        let signed = kid(&two.issue("bob", "").await.access);
        (signed == kid(&new.access)).then_some(()).ok_or(format!("{signed}"))
    })
    .await;
    let path = format!("/admin/v1/keys/{}/revoke", kid(&old.access).as_str().expect("text"));
    assert_eq!(one.admin_client().post(&path, &json!({})).await.status, 200);
    until_status(&two, &old.access, 401).await;
    assert_eq!(two.status_of(&new.access).await, 200);
}

const PATIENT_ROUTE: &str = r#"
[[route]]
path = "/"
[[route]]
path = "/patient/"
on_stale = "serve"
"#;

#[tokio::test]
async fn a_gateway_may_accept_tokens_while_it_has_no_database() {
    let upstream = Upstream::start();
    let mut server = PostgresServer::start();
    let keys = "max_staleness = \"1s\"\non_stale = \"serve\"\n";
    let [one] = gateways(&server, &upstream, keys, &PATIENT_ROUTE.replace("serve", "deny"));
    let pair = one.issue("alice", "").await;
    until_status(&one, &pair.access, 200).await;
    server.kill();
    eventually_ok("its revocations are too old", async || {
        let status = one.client().bearer(&pair.access).get("/patient/x").await.status;
        (status == 503).then_some(()).ok_or(status.to_string())
    })
    .await;
    assert_eq!(one.status_of(&pair.access).await, 200);
}

#[tokio::test]
async fn a_gateway_without_its_database_rejects_tokens_after_a_while() {
    let upstream = Upstream::start();
    let mut server = PostgresServer::start();
    let keys = "max_staleness = \"2s\"\n";
    let [one, two] = gateways(&server, &upstream, keys, PATIENT_ROUTE);
    let pair = one.issue("alice", "").await;
    for gateway in [&one, &two] {
        until_status(gateway, &pair.access, 200).await;
    }
    let mut stream = open(&two, &pair.access).await;
    server.kill();
    assert_eq!(two.status_of(&pair.access).await, 200, "a known token goes on to work");
    assert_eq!(one.refresh(&pair.access, &pair.refresh).await.status, 503);
    for gateway in [&one, &two] {
        until_status(gateway, &pair.access, 503).await;
        let response = gateway.client().bearer(&pair.access).get("/").await;
        response.assert_rejected(503, "temporarily_unavailable");
        assert_eq!(response.header("retry-after"), Some("1"));
        assert_eq!(gateway.client().bearer(&pair.access).get("/patient/x").await.status, 200, "on_stale = \"serve\"");
        let ready = gateway.admin_client().get("/readyz").await;
        assert!(ready.status == 503 && ready.text().contains("the revocations"), "{ready:?}");
    }
    let closed = tokio::time::timeout(SECOND, stream.next()).await;
    let Ok(Some(Ok(Message::Close(Some(frame))))) = closed else { panic!("{closed:?}") };
    assert_eq!(u16::from(frame.code), 1013, "try again later");
    server.restart();
    for gateway in [&one, &two] {
        until_status(gateway, &pair.access, 200).await;
        eventually_ok("it is ready again", async || {
            let ready = gateway.admin_client().get("/readyz").await;
            (ready.status == 200).then_some(()).ok_or(ready.text())
        })
        .await;
    }
    let next = two.refresh(&pair.access, &pair.refresh).await;
    assert_eq!(next.status, 200, "{next:?}");
}

const SHARED_RATE: &str = r#"
[[rate]]
per = "route"
requests = 12
window = "1h"
share = "cluster"
"#;

#[tokio::test]
async fn gateways_share_a_rate() {
    let upstream = Upstream::start();
    let gateways: [Gateway; 3] = gateways(PostgresServer::shared(), &upstream, "", SHARED_RATE);
    for gateway in &gateways {
        eventually_ok("it knows the others", async || {
            let replicas = gateway.metric("bearward_store_replicas").await;
            (replicas == 3.0).then_some(()).ok_or(replicas.to_string())
        })
        .await;
        let pair = gateway.issue("alice", "").await;
        let mut statuses = Vec::new();
        for _ in 0..6 {
            statuses.push(gateway.status_of(&pair.access).await);
        }
        assert_eq!(statuses, [200, 200, 200, 200, 429, 429], "a third of the limit");
    }
}

/// Real clients: `openssl s_client` keeps the ticket of one gateway and shows it to another.
#[tokio::test]
async fn a_tls_session_of_one_gateway_resumes_at_another() {
    let upstream = Upstream::start();
    let [one, two] = gateways(PostgresServer::shared(), &upstream, "", "");
    let folder = TempDir::new().expect("a folder");
    let session = folder.path().join("session").display().to_string();
    let alone = Gateway::start(&upstream);
    for version in ["-tls1_3", "-tls1_2"] {
        let first = s_client(&one, &[version, "-sess_out", &session]).await;
        assert!(first.contains("New, TLSv1"), "{first}");
        for gateway in [&two, &one] {
            let resumed = s_client(gateway, &[version, "-sess_in", &session]).await;
            assert!(resumed.contains("Reused, TLSv1"), "{version}: {resumed}");
        }
        let other = s_client(&alone, &[version, "-sess_in", &session]).await;
        assert!(other.contains("New, TLSv1"), "{version}: a gateway on another store");
    }
}

/// All gateways on a store can open its tickets. Where certificates are asked for, none does: a session that began
/// elsewhere, or before certificates were required, is no certificate.
#[tokio::test]
async fn a_tls_session_of_one_gateway_is_no_certificate_at_another() {
    let upstream = Upstream::start();
    let [one, two] = gateways(PostgresServer::shared(), &upstream, "", "");
    let folder = TempDir::new().expect("a folder");
    let session = |version: &str| folder.path().join(version).display().to_string();
    for version in ["-tls1_3", "-tls1_2"] {
        s_client(&one, &[version, "-sess_out", &session(version)]).await;
        let resumed = s_client(&two, &[version, "-sess_in", &session(version)]).await;
        assert!(resumed.contains("Reused, TLSv1"), "{version}: {resumed}");
    }
    fs::write(two.path().join("clients.pem"), Authority::new().pem()).expect("written");
    let tls = "tls = \"self-signed\"";
    let asking = |policy: &str| format!("{tls}\nclient_certificate = \"{policy}\"\nclient_ca = \"clients.pem\"");
    let two = two.restart_with(|text| text.replacen(tls, &asking("optional"), 1));
    for version in ["-tls1_3", "-tls1_2"] {
        let full = s_client(&two, &[version, "-sess_in", &session(version)]).await;
        assert!(full.contains("New, TLSv1") && full.contains("HTTP/1.1 401 "), "{version}: {full}");
    }
    let two = two.restart_with(|text| text.replacen(&asking("optional"), &asking("required"), 1));
    for version in ["-tls1_3", "-tls1_2"] {
        let rejected = s_client(&two, &[version, "-sess_in", &session(version)]).await;
        assert!(!rejected.contains("Reused") && !rejected.contains("HTTP/1.1"), "{version}: {rejected}");
    }
}

async fn s_client(gateway: &Gateway, arguments: &[&str]) -> String {
    let address = gateway.tls_address().to_string();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address, "-servername", "localhost", "-ign_eof"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = move || {
        let mut child = command.spawn().expect("openssl is there");
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        // It may have ended.
        let _ = child.stdin.take().expect("piped").write_all(request);
        child.wait_with_output().expect("it ends")
    };
    let output = tokio::task::spawn_blocking(run).await.expect("no panic");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The real program, on machines with wrong clocks.
async fn with_shifted_clock(text: &str, secret: Option<&[u8]>, seconds: i32) -> (GatewayProcess, TempDir) {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    if let Some(secret) = secret {
        write_secret(&folder, secret);
    }
    let path = folder.path().to_owned();
    let start = move || {
        preload::compile("clock", &path);
        let line = format!("exec env LD_PRELOAD=./clock.so BEARWARD_CLOCK={seconds} \"$0\" serve");
        GatewayProcess::wait_for(Program::start_with_shell(&path, &line), &path)
    };
    (tokio::task::spawn_blocking(start).await.expect("it starts"), folder)
}

/// Their clocks are six seconds apart. All use the clock of the database, so that no session is dated wrongly.
#[tokio::test]
async fn wrong_clocks_do_not_save_or_end_a_session() {
    let upstream = Upstream::start();
    let store = format!("[store]\n{}", PostgresServer::shared().store_keys());
    let text = Gateway::config_text(&upstream.address.to_string(), &store);
    let (ahead, folder) = with_shifted_clock(&text, None, 3).await;
    let secret = fs::read(folder.path().join("bearward.secret")).expect("the first one made it");
    let (behind, _folder) = with_shifted_clock(&text, Some(&secret), -3).await;
    for gateway in [&ahead, &behind] {
        gateway.program.wait_for_stderr("the clock of the database is that far ahead");
    }
    let issue = async |gateway: &GatewayProcess| {
        let response = gateway.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
        assert_eq!(response.status, 201, "{response:?}");
        TokenPair::from_json(&response.json())
    };
    let status = async |gateway: &GatewayProcess, pair: &TokenPair| {
        gateway.client().bearer(&pair.access).get("/").await.status.as_u16()
    };
    for (first, second) in [(&ahead, &behind), (&behind, &ahead)] {
        let old = issue(first).await;
        for gateway in [first, second] {
            assert_eq!(status(gateway, &old).await, 200);
        }
        let refresh = json!({ "refreshToken": old.refresh });
        let refreshed = first.client().bearer(&old.access).post("/user/refresh", &refresh).await;
        let refreshed = TokenPair::from_json(&refreshed.json());
        assert_eq!(second.admin_client().delete("/admin/v1/subjects/alice/tokens").await.status, 200);
        let new = issue(second).await;
        for gateway in [first, second] {
            eventually_ok("all tokens from before are revoked", async || {
                let found = [status(gateway, &old).await, status(gateway, &refreshed).await];
                (found == [401, 401]).then_some(()).ok_or(format!("{found:?}"))
            })
            .await;
            assert_eq!(status(gateway, &new).await, 200, "and none from after");
        }
        let new = issue(first).await;
        assert_eq!((status(first, &new).await, status(second, &new).await), (200, 200));
    }
}
