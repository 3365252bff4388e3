//! The program is killed during an order: the next one goes on with it.

use std::sync::atomic::Ordering;

use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::authority::{CHALLENGE, Front};
use super::{NAME, acme, issued, with_tls};
use crate::support::Upstream;
use crate::support::ports::free_port;
use crate::support::program::GatewayProcess;
use crate::support::wait::{eventually, eventually_within};

/// Starts the program, kills it when a request with this path has reached the authority, and starts it again.
async fn killed_at(path: &'static str) -> (usize, CertificateDer<'static>) {
    let (upstream, port) = (Upstream::start(), free_port());
    let (front, folder) = (Front::start(port).await, TempDir::new().expect("a folder"));
    let text = with_tls(&upstream, port, &acme(&[NAME]), &front.settings(folder.path()));
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    *front.state.silent.lock().expect("unpoisoned") = Some(path);
    let gateway = GatewayProcess::start(folder.path());
    eventually_within(super::PATIENCE, "the authority has the request", async || {
        let silenced = front.state.silenced.load(Ordering::SeqCst);
        if silenced > 0 { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    gateway.program.kill();
    *front.state.silent.lock().expect("unpoisoned") = None;

    let gateway = GatewayProcess::start(folder.path());
    let certificate = issued(gateway.addresses[1], NAME).await;
    let account = gateway.program.wait_for_stderr("the account at the ACME server");
    assert!(account.contains("/my-account/"), "{account}");
    let front_orders = || front.state.orders().len();
    eventually("the order is known", || front_orders() > 0).await;
    (front_orders(), certificate)
}

#[tokio::test]
async fn a_finished_order_is_not_repeated_after_kill_9() {
    let (orders, _) = killed_at("/finalize-order/").await;
    assert_eq!(orders, 1, "its certificate was waiting");
}

#[tokio::test]
async fn an_unfinished_order_goes_on_after_kill_9() {
    let (orders, _) = killed_at(CHALLENGE).await;
    assert_eq!(orders, 1);
}

#[tokio::test]
async fn a_certificate_on_its_way_is_not_lost_by_kill_9() {
    let (orders, _) = killed_at("/certZ/").await;
    assert_eq!(orders, 1);
}
