//! Everything that a reload can renew, renewed again and again by the real program while clients are being served, in
//! cleartext and over TLS.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::{Clock, SystemClock};
use http::Version;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{TcpStream, UnixDatagram};

use super::load::{Current, Load, Way};
use super::{metric, soon, write};
use crate::support::certificates::Authority;
use crate::support::client::tls_connect;
use crate::support::gateway::AUDIENCE;
use crate::support::program::{Program, Served};
use crate::support::rounds::rounds;
use crate::support::tokens::{FOREIGN, Mint};
use crate::support::wire::PATIENCE;
use crate::support::{Gateway, Pair, Upstream};

fn mint() -> Mint {
    Mint::new(Algorithm::ES256)
}

fn fresh(key: &Mint) -> String {
    key.good(SystemClock.now().as_secs())
}

/// As an issuer does that changes its key: for a time, both are listed.
fn publish(folder: &Path, keys: &[&Mint]) {
    let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
    fs::write(folder.join("login.json"), json!({ "keys": keys }).to_string()).expect("written");
}

/// A gateway of which only SIGHUP renews anything.
fn text(upstream: &Upstream, has_more: bool) -> String {
    let tls = "tls = { certificate = \"a.pem\", key = \"a.key\" }";
    let text = Gateway::open_text(upstream.address, "").replace("tls = \"self-signed\"", tls);
    let more = if has_more { "[[route]]\npath = \"/more/\"\n" } else { "" };
    format!(
        "watch = \"off\"\n{text}\n[[route]]\npath = \"/private\"\n{more}[[issuer]]\nissuer = \"{FOREIGN}\"\n\
         audience = [\"{AUDIENCE}\"]\njwks_file = \"login.json\"\nalgorithms = [\"ES256\"]\n"
    )
}

/// As systemd reloads a `Type=notify-reload`: by SIGHUP, and then it waits to be told.
async fn reload(served: &Served, told: &UnixDatagram) {
    served.program.signal("HUP");
    while next(told).await != "READY=1" {}
}

async fn next(told: &UnixDatagram) -> String {
    let mut message = [0; 256];
    let heard = tokio::time::timeout(PATIENCE, told.recv(&mut message)).await;
    let length = heard.expect("it is told in time").expect("it is told");
    String::from_utf8_lossy(&message[..length]).trim().to_owned()
}

async fn status(served: &Served, token: &str) -> u16 {
    served.client().bearer(token).get("/private").await.status.as_u16()
}

#[tokio::test]
async fn what_a_hundred_reloads_renew_is_in_force_and_nobody_notices_who_is_served() {
    let upstreams = [Upstream::start(), Upstream::start()];
    let folder = TempDir::new().expect("a folder");
    let (authority, mut key) = (Authority::new(), mint());
    authority.sign("localhost").write(folder.path(), "a");
    publish(folder.path(), &[&key]);
    let (mut upstream, mut has_more) = (0, false);
    write(folder.path(), &text(&upstreams[upstream], has_more));
    let place = folder.path().join("notify");
    let told = UnixDatagram::bind(&place).expect("bound");
    let program = Program::start_with(("NOTIFY_SOCKET", place.as_os_str()), folder.path(), &["serve"]);
    let served = Served::of(program, folder.path());
    assert_eq!(next(&told).await, "READY=1", "the start");
    let secure = served.addresses[1];
    let token = Current::new(&fresh(&key));
    // Streams stand on a token of the gateway's own: those of the issuer go with its keys.
    let issued = served.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
    let alice = Pair::of(&issued.json()).access;

    let mut load = Load::begin();
    for way in [Way::Cleartext(served.addresses[0]), Way::Tls(secure, authority.certificate())] {
        load = load.newcomers(way.clone(), 1).websocket(way.clone()).await;
        load = load.bearers_websocket(way.clone(), &alice).await;
        for version in [Version::HTTP_11, Version::HTTP_2] {
            load = load.bearers_events(way.clone(), version, &alice).await;
            load = load.bearers(way.clone(), version, 1, &token).stream(way.clone(), version).await;
        }
    }
    load.goes_on_for(20).await;

    let mut next_key = mint();
    let reloads = rounds(100);
    for round in 0..reloads {
        match round % 5 {
            0 => {
                let renewed = authority.sign("localhost");
                renewed.write(folder.path(), "a");
                reload(&served, &told).await;
                let stream = TcpStream::connect(secure).await.expect("it listens");
                let stream = tls_connect(stream, authority.certificate(), "h2").await.expect("a handshake");
                let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first().cloned());
                assert_eq!(shown, Some(renewed.certificate()), "{round}");
            }
            1 => {
                publish(folder.path(), &[&key, &next_key]);
                reload(&served, &told).await;
                assert_eq!([status(&served, &fresh(&key)).await, status(&served, &fresh(&next_key)).await], [200; 2]);
                token.becomes(&fresh(&next_key)).await;
            }
            2 => {
                publish(folder.path(), &[&next_key]);
                reload(&served, &told).await;
                assert_eq!(status(&served, &fresh(&key)).await, 401, "{round}");
                key = std::mem::replace(&mut next_key, mint());
            }
            3 => {
                has_more = !has_more;
                write(folder.path(), &text(&upstreams[upstream], has_more));
                reload(&served, &told).await;
                let expected = if has_more { 401 } else { 200 };
                assert_eq!(served.client().get("/more/").await.status, expected, "{round}");
            }
            _ => {
                upstream = 1 - upstream;
                write(folder.path(), &text(&upstreams[upstream], has_more));
                upstreams[upstream].forget();
                reload(&served, &told).await;
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
    let (answered, longest) = load.end().await;
    eprintln!("{answered} answers, the slowest newcomer waited {longest:?}");
    let done = async || metric(&served, "bearward_reloads_total{outcome=\"succeeded\"}").await;
    soon("all are counted", async || done().await == reloads as f64).await;
    assert_eq!(metric(&served, "bearward_reloads_total{outcome=\"failed\"}").await, 0.0);
    assert_eq!(served.client().get("/private/events").await.status, 401, "they stood on a token");
    let lines = fs::read_to_string(folder.path().join("access.log")).expect("a log");
    assert!(!lines.contains("\"ended\":"), "the gateway ended a stream:\n{lines}");
    assert!(!lines.contains("\"status\":5"), "of {answered} answers:\n{lines}");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}
