//! An order goes on after what interrupts it: the program is killed, or the authority rejects a nonce or the account.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::authority::{CHALLENGE, Front};
use super::{Given, NAME, acme, issued, renewed, with_tls};
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

/// Each step of an order repeats what was rejected for its nonce, also more often than the library does.
#[tokio::test]
async fn bad_nonces_end_no_order() {
    for path in ["/sign-me-up", "/order-plz", "/authZ/", CHALLENGE, "/finalize-order/", "/certZ/"] {
        let tls = acme(&[NAME]);
        let given = Given::start(&tls, "", |front| {
            *front.state.bad_nonces.lock().expect("unpoisoned") = Some((path, 5));
        });
        let given = given.await;
        issued(given.gateway.tls_address(), NAME).await;
        let left = *given.front.state.bad_nonces.lock().expect("unpoisoned");
        assert_eq!((left, given.orders()), (Some((path, 0)), 1), "{path}");
        assert_eq!(given.gateway.metric("bearward_acme_orders_total{result=\"failed\"}").await, 0.0, "{path}");
    }
}

/// An authority finds a deactivated account by its key, as Pebble, or not, as Let's Encrypt.
#[tokio::test]
async fn an_account_that_the_authority_deactivated_is_replaced() {
    for finds_deactivated in [true, false] {
        for restarts in [false, true] {
            let (mut given, first) = Given::issued().await;
            let state = given.front.state.clone();
            let accounts = state.accounts();
            let account = accounts[0].as_str().expect("a URL").to_owned();
            *state.deactivated.lock().expect("unpoisoned") = vec![account];
            state.finds_deactivated.store(finds_deactivated, Ordering::SeqCst);
            if restarts {
                given.gateway = given.gateway.restart();
            }
            given.gateway.advance(Duration::from_hours(4 * 365 * 24));
            renewed(given.gateway.tls_address(), NAME, &first).await;
            let accounts = state.accounts();
            assert!(accounts.len() == 2 && accounts[0] != accounts[1], "{accounts:?}");
        }
    }
}

/// An authority rejects a single request with the same error. The account then stays: a CAA record may name it.
#[tokio::test]
async fn a_rejected_order_replaces_no_account() {
    let (given, first) = Given::issued().await;
    given.front.set_wrong(Some(("/order-plz", |_| super::authority::problem(StatusCode::FORBIDDEN, "unauthorized"))));
    given.fails_after(Duration::from_hours(4 * 365 * 24)).await;
    given.front.set_wrong(None);
    given.gateway.advance(Duration::from_hours(1));
    renewed(given.gateway.tls_address(), NAME, &first).await;
    let accounts = given.front.state.accounts();
    assert!(accounts.iter().all(|account| *account == accounts[0]), "{accounts:?}");
}
