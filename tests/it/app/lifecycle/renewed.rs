//! The real program reloads certificates, keys, routes and upstreams many times under load, in cleartext and over TLS.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::{Clock, SystemClock};
use http::Version;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{TcpStream, UnixDatagram};

use super::load::{Current, Load, Transport};
use super::{metric, soon, write};
use crate::support::certificates::Authority;
use crate::support::client::tls_connect;
use crate::support::gateway::AUDIENCE;
use crate::support::program::{GatewayProcess, Program};
use crate::support::repetitions::repetitions;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, TokenPair, Upstream};

fn mint() -> Mint {
    Mint::new(Algorithm::ES256)
}

fn valid_token(key: &Mint) -> String {
    key.valid_token(SystemClock.now().as_secs())
}

/// Publishes both keys for a time, as an issuer does that rotates its key.
fn publish(folder: &Path, keys: &[&Mint]) {
    let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
    fs::write(folder.join("login.json"), json!({ "keys": keys }).to_string()).expect("written");
}

/// A configuration that only SIGHUP reloads.
fn text(upstream: &Upstream, has_more: bool) -> String {
    let tls = "tls = { certificate = \"a.pem\", key = \"a.key\" }";
    let text = Gateway::public_config(upstream.address, "").replace("tls = \"self-signed\"", tls);
    let more = if has_more { "[[route]]\npath = \"/more/\"\n" } else { "" };
    format!(
        "watch = \"off\"\n{text}\n[[route]]\npath = \"/private\"\n{more}[[issuer]]\nissuer = \"{EXTERNAL_ISSUER}\"\n\
         audience = [\"{AUDIENCE}\"]\njwks_file = \"login.json\"\nalgorithms = [\"ES256\"]\n"
    )
}

/// Reloads as systemd does with `Type=notify-reload`: sends SIGHUP, then waits for READY=1.
async fn reload(served: &GatewayProcess, notifications: &UnixDatagram) {
    served.program.signal("HUP");
    while next_notification(notifications).await != "READY=1" {}
}

async fn next_notification(notifications: &UnixDatagram) -> String {
    let mut message = [0; 256];
    let received = tokio::time::timeout(TIMEOUT, notifications.recv(&mut message)).await;
    let length = received.expect("a notification in time").expect("a notification");
    String::from_utf8_lossy(&message[..length]).trim().to_owned()
}

async fn status(served: &GatewayProcess, token: &str) -> u16 {
    served.client().bearer(token).get("/private").await.status.as_u16()
}

#[tokio::test]
async fn a_hundred_reloads_take_effect_without_disturbing_clients() {
    let upstreams = [Upstream::start(), Upstream::start()];
    let folder = TempDir::new().expect("a folder");
    let (authority, mut key) = (Authority::new(), mint());
    authority.sign("localhost").write(folder.path(), "a");
    publish(folder.path(), &[&key]);
    let (mut upstream, mut has_more) = (0, false);
    write(folder.path(), &text(&upstreams[upstream], has_more));
    let notify_path = folder.path().join("notify");
    let notifications = UnixDatagram::bind(&notify_path).expect("bound");
    let program = Program::start_with(("NOTIFY_SOCKET", notify_path.as_os_str()), folder.path(), &["serve"]);
    let served = GatewayProcess::wait_for(program, folder.path());
    assert_eq!(next_notification(&notifications).await, "READY=1", "after the start");
    let tls_address = served.addresses[1];
    let token = Current::new(&valid_token(&key));
    // Streams use a token of the gateway: tokens of the issuer end with its keys.
    let issued = served.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
    let alice = TokenPair::from_json(&issued.json()).access;

    let mut load = Load::begin();
    for transport in [Transport::Cleartext(served.addresses[0]), Transport::Tls(tls_address, authority.certificate())] {
        load = load.new_connections(transport.clone(), 1).websocket(transport.clone()).await;
        load = load.bearers_websocket(transport.clone(), &alice).await;
        for version in [Version::HTTP_11, Version::HTTP_2] {
            load = load.bearers_events(transport.clone(), version, &alice).await;
            load = load.bearers(transport.clone(), version, 1, &token).stream(transport.clone(), version).await;
        }
    }
    load.goes_on_for(20).await;

    let mut next_key = mint();
    let reloads = repetitions(100);
    for round in 0..reloads {
        match round % 5 {
            0 => {
                let renewed = authority.sign("localhost");
                renewed.write(folder.path(), "a");
                reload(&served, &notifications).await;
                let stream = TcpStream::connect(tls_address).await.expect("it listens");
                let stream = tls_connect(stream, authority.certificate(), "h2").await.expect("a handshake");
                let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first().cloned());
                assert_eq!(shown, Some(renewed.certificate()), "{round}");
            }
            1 => {
                publish(folder.path(), &[&key, &next_key]);
                reload(&served, &notifications).await;
                assert_eq!(
                    [status(&served, &valid_token(&key)).await, status(&served, &valid_token(&next_key)).await],
                    [200; 2]
                );
                token.becomes(&valid_token(&next_key)).await;
            }
            2 => {
                publish(folder.path(), &[&next_key]);
                reload(&served, &notifications).await;
                assert_eq!(status(&served, &valid_token(&key)).await, 401, "{round}");
                key = std::mem::replace(&mut next_key, mint());
            }
            3 => {
                has_more = !has_more;
                write(folder.path(), &text(&upstreams[upstream], has_more));
                reload(&served, &notifications).await;
                let expected = if has_more { 401 } else { 200 };
                assert_eq!(served.client().get("/more/").await.status, expected, "{round}");
            }
            _ => {
                upstream = 1 - upstream;
                write(folder.path(), &text(&upstreams[upstream], has_more));
                upstreams[upstream].forget();
                reload(&served, &notifications).await;
                let path = format!("/round/{round}");
                assert_eq!(served.client().get(&path).await.status, 200);
                assert!(upstreams[upstream].seen().iter().any(|seen| seen.uri == path), "{round}");
            }
        }
        if round % 10 == 9 {
            load.goes_on_for(20).await;
        }
    }
    load.goes_on_for(20).await;
    let (responses, longest) = load.end().await;
    eprintln!("{responses} responses, the slowest new connection waited {longest:?}");
    let succeeded = async || metric(&served, "bearward_reloads_total{outcome=\"succeeded\"}").await;
    soon("all reloads are counted", async || succeeded().await == reloads as f64).await;
    assert_eq!(metric(&served, "bearward_reloads_total{outcome=\"failed\"}").await, 0.0);
    assert_eq!(served.client().get("/private/events").await.status, 401, "the stream needed a token");
    let lines = fs::read_to_string(folder.path().join("access.log")).expect("a log");
    assert!(!lines.contains("\"ended\":"), "the gateway ended a stream:\n{lines}");
    assert!(!lines.contains("\"status\":5"), "of {responses} responses:\n{lines}");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}
