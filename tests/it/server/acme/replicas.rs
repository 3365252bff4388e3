//! Two gateways on one PostgreSQL: one orders, both answer and both serve.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::authority::Front;
use super::{NAME, acme, certificate, issued, renewed, with_tls};
use crate::support::clock::ManualClock;
use crate::support::ports::free_port;
use crate::support::postgres::PostgresServer;
use crate::support::{Gateway, Upstream};

/// Passes connections on to one gateway after the other, as DNS with two addresses does.
async fn balancer(to: [SocketAddr; 2]) -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = socket.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let next = AtomicUsize::new(0);
        loop {
            let (mut client, _) = socket.accept().await.expect("accepts");
            let address = to[next.fetch_add(1, Ordering::Relaxed) % 2];
            tokio::spawn(async move {
                if let Ok(mut gateway) = TcpStream::connect(address).await {
                    let _ = copy_bidirectional(&mut client, &mut gateway).await;
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn two_gateways_order_once_and_both_are_validated() {
    let (upstream, ports) = (Upstream::start(), [free_port(), free_port()]);
    let front = Front::start(balancer(ports.map(|port| ([127, 0, 0, 1], port).into())).await).await;
    let store = format!("[store]\n{}\n", PostgresServer::shared().store_keys());
    let clock = Arc::new(ManualClock::new());
    let folders = [(); 2].map(|()| Arc::new(TempDir::new().expect("a folder")));
    let start = |number: usize| {
        let more = format!("{}{store}", front.settings(folders[number].path()));
        let text = with_tls(&upstream, ports[number], &acme(&[NAME]), &more);
        Gateway::in_folder(text, folders[number].clone(), clock.clone())
    };
    // Neither can order before both are there.
    front.set_away(true);
    let first = start(0);
    let secret = |number: usize| folders[number].path().join("bearward.secret");
    std::fs::copy(secret(0), secret(1)).expect("copied");
    let gateways = [first, start(1)];
    front.set_away(false);
    clock.advance(Duration::from_mins(2));
    let found = issued(gateways[0].tls_address(), NAME).await;
    assert_eq!(issued(gateways[1].tls_address(), NAME).await, found);
    assert_eq!(front.state.orders().len(), 1);
    let validated = async |gateway: &Gateway| gateway.metric("bearward_acme_validations_total").await;
    assert!(
        validated(&gateways[0]).await >= 1.0 && validated(&gateways[1]).await >= 1.0,
        "Pebble connects three times"
    );

    // One of them ends. The other one renews.
    let [first, second] = gateways;
    drop(first);
    clock.advance(Duration::from_hours(4 * 365 * 24));
    let both = [second.tls_address(); 2];
    drop(front);
    let front = Front::start(balancer(both).await).await;
    let more = format!("{}{store}", front.settings(folders[1].path()));
    let text = with_tls(&upstream, ports[1], &acme(&[NAME]), &more);
    second.running().reload(second.parse(&text)).expect("it reloads");
    renewed(second.tls_address(), NAME, &found).await;
    assert!(certificate(second.tls_address(), NAME).await.is_ok());
}
