//! A login right after "log out everywhere" through another gateway.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::support::postgres::PostgresServer;
use crate::support::program::GatewayProcess;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TokenPair, Upstream};

/// How long each piece takes on the way to the database and back.
const WAY: Duration = Duration::from_millis(30);

/// A slow network. Returns its port.
fn slow_way_to(target: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
            let (requests, responses) = (client.try_clone().expect("cloned"), server.try_clone().expect("cloned"));
            thread::spawn(move || pass(requests, server));
            thread::spawn(move || pass(responses, client));
        }
    });
    port
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        thread::sleep(WAY);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// The real program, because the clock of a test is no clock of the system.
fn start(text: &str, secret: Option<&[u8]>) -> (GatewayProcess, TempDir) {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    if let Some(secret) = secret {
        bearward::types::secret::write_private(&folder.path().join("bearward.secret"), secret).expect("written");
    }
    (GatewayProcess::start(folder.path()), folder)
}

/// Where the gateway cannot tell which of both came first, it rejects the login, and the next one is accepted.
#[tokio::test]
async fn a_login_after_a_watermark_waits_at_most_for_the_clocks() {
    let upstream = Upstream::start();
    let server = PostgresServer::shared();
    let keys = server.store_keys();
    let text = |keys: &str| Gateway::config_text(&upstream.address.to_string(), &format!("[store]\n{keys}"));
    let slow = keys.replacen(&server.port.to_string(), &slow_way_to(server.port).to_string(), 1);
    let (near, folder) = start(&text(&keys), None);
    let secret = std::fs::read(folder.path().join("bearward.secret")).expect("the first one made it");
    let (far, _folder) = start(&text(&slow), Some(&secret));
    let login = json!({ "sub": "alice" });
    for _ in 0..5 {
        let revoked = near.admin_client().delete("/admin/v1/subjects/alice/tokens").await;
        assert_eq!(revoked.status, 200, "{revoked:?}");
        let here = near.admin_client().post("/admin/v1/tokens", &login).await;
        assert_eq!(here.status, 201, "the gateway that revoked has waited: {here:?}");
        let began = Instant::now();
        let issued = eventually_ok("the login is accepted", async || {
            let sent = began.elapsed();
            let response = far.admin_client().post("/admin/v1/tokens", &login).await;
            if response.status == 201 {
                return Ok(TokenPair::from_json(&response.json()));
            }
            response.assert_rejected(503, "temporarily_unavailable");
            assert_eq!(response.header("retry-after"), Some("1"));
            // Half a round trip is the error of the clock, so that twice that is one round trip.
            assert!(sent < 2 * 2 * WAY + Duration::from_secs(1), "rejected {sent:?} after the revocation");
            Err(String::new())
        })
        .await;
        for gateway in [&far, &near] {
            assert_eq!(gateway.client().bearer(&issued.access).get("/").await.status, 200);
        }
    }
}
