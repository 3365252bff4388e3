//! An address that has many connections sends a first request on all of them at once. Other clients do not wait for
//! these.

use std::net::IpAddr;

use tempfile::TempDir;

use super::GET;
use crate::support::program::GatewayProcess;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream, Wire};

const CROWD: usize = 400;
/// No client of the crowd asks for this path.
const HONEST: &str = "/honest-client";

/// The gateway stands still while the clients send, so that it finds all requests at once, and only their order counts.
#[tokio::test]
async fn a_crowd_of_new_connections_delays_no_other_client() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let more = "max_concurrent_requests = 1000\nreserve_percent = 0";
    let text = Gateway::public_config(upstream.address, more).replace("workers = 2", "workers = 1");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let gateway = GatewayProcess::start(folder.path());
    let address = gateway.addresses[0];
    let mut honest = Wire::connect_from(IpAddr::from([127, 0, 2, 1]), address).await;
    honest.send(GET).await;
    honest.read_until("hello").await;
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(Wire::connect_from(IpAddr::from([127, 0, 1, 1]), address).await);
    }
    let opened = format!("bearward_connections_opened_total {}", 1 + CROWD);
    eventually_ok("the gateway has accepted all connections", async || {
        let page = gateway.admin_client().get("/metrics").await.text();
        if page.contains(&opened) { Ok(()) } else { Err(page) }
    })
    .await;

    gateway.program.signal("STOP");
    for wire in &crowd {
        assert_eq!(wire.stream.try_write(GET.as_bytes()).expect("there is room"), GET.len());
    }
    honest.send(format!("GET {HONEST} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
    gateway.program.signal("CONT");
    honest.read_until("hello").await;
    // The backend goes on while this test waits, so the place of the request counts, and not the number of all.
    let place = upstream.seen().iter().position(|request| request.target() == HONEST).expect("it was forwarded");
    // The first request of this client came before the crowd.
    let before = place - 1;
    assert!(before < CROWD / 2, "{before} of {CROWD} requests came before that of another client");
    for wire in &mut crowd {
        wire.read_until("hello").await;
    }
}
