//! The first certificate, its renewals, and reloads.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bearward::store::AcmeStore;
use bearward::store::sqlite::SqliteStore;

use tempfile::TempDir;

use super::{Given, NAME, PATIENCE, acme, certificate, issued, renewed, shown, some_turns, with_tls};
use crate::support::certificates::Authority;
use crate::support::clock::ManualClock;
use crate::support::ports::free_port;
use crate::support::wait::eventually_within;
use crate::support::{Gateway, Upstream};

const HOUR: Duration = Duration::from_hours(1);

fn reload(gateway: &Gateway, text: &str) {
    let reloaded = gateway.running().reload(gateway.parse(text)).expect("it reloads");
    assert_eq!(reloaded.requires_restart, Vec::<&str>::new());
}

#[tokio::test]
async fn a_name_gets_a_certificate_and_a_restart_keeps_it() {
    let (mut given, first) = Given::issued().await;
    let text = String::from_utf8_lossy(&first).into_owned();
    assert!(text.contains("Pebble Intermediate CA") && text.contains(NAME), "{text}");
    assert!(given.gateway.metric("bearward_acme_validations_total").await >= 1.0);
    given.gateway.wait_for_metric("acme_orders_total{result=\"issued\"}", 1).await;
    let listener = shown(&given.gateway).await;
    assert_eq!(listener["certificates"][0]["file"], "acme:api.example", "{listener}");
    assert_eq!(listener["certificates"][0]["names"][0], NAME);
    assert_eq!(listener["acme"][0]["issued"], true);
    assert_eq!(listener["acme"][0]["failures"], 0);
    assert!(listener["acme"][0]["nextOrder"].is_string() && listener["acme"][0]["error"].is_null(), "{listener}");
    let metric =
        format!("bearward_certificate_not_after_timestamp_seconds{{listener=\"{}\"", given.gateway.tls_address());
    assert!(given.gateway.metric(&metric).await > 1e9);

    given.front.set_away(true);
    given.gateway = given.gateway.restart();
    assert_eq!(certificate(given.gateway.tls_address(), NAME).await.expect("at once"), first);
    assert_eq!(given.orders(), 1);
    let folder = given.gateway.path().to_owned();
    given.gateway.drain();
    // The keys are encrypted in the store.
    for entry in std::fs::read_dir(&folder).expect("a folder").flatten().filter(|entry| entry.path().is_file()) {
        let content = std::fs::read(entry.path()).expect("a file");
        let is_database = entry.file_name().to_string_lossy().starts_with("bearward.db");
        // Of keys and certificates in PEM, and of a key in the JSON of an entry.
        let parts: [&[u8]; 3] = [b"PRIVATE KEY", b"BEGIN CERTIFICATE", b"\"key\":["];
        let has_key = parts.iter().any(|part| content.windows(part.len()).any(|found| found == *part));
        assert!(!is_database || !has_key, "{:?}", entry.path());
    }
}

#[tokio::test]
async fn the_authority_decides_when_to_renew() {
    let given = Given::start(&acme(&[NAME]), "", |front| {
        front.state.confirms.store(true, Ordering::SeqCst);
        front.suggest(4_000_000_000, 4_000_000_100);
    })
    .await;
    let address = given.gateway.tls_address();
    let first = issued(address, NAME).await;
    let asked = || given.front.state.asked();
    // The gateway has read the answer: it counts the day from then.
    given.next_order_in_years(4.7..4.8).await;
    assert_eq!(asked().len(), 1);
    // Now the authority wants a renewal, and is asked again after a day at the latest.
    given.front.suggest(1_000_000_000, 1_000_000_100);
    given.gateway.advance(23 * HOUR);
    assert_eq!(certificate(address, NAME).await.expect("a certificate"), first);
    given.gateway.advance(2 * HOUR);
    let second = renewed(address, NAME, &first).await;
    let orders = given.front.state.orders();
    assert_eq!(orders.len(), 2, "{orders:?}");
    assert!(orders[0]["replaces"].is_null() && orders[1]["replaces"] == *asked()[0], "{orders:?}");
    assert_ne!(first, second);
    // Not one after the other: the new one is kept for an hour.
    given.next_order_in_years(0.0..0.001).await;
    assert_eq!(asked().len(), 3);
    given.gateway.advance(HOUR / 2);
    some_turns().await;
    assert_eq!((given.orders(), certificate(address, NAME).await.expect("a certificate")), (2, second.clone()));
    // An authority that does not know the replaced certificate prevents nothing.
    given.front.state.confirms.store(false, Ordering::SeqCst);
    given.gateway.advance(HOUR);
    renewed(address, NAME, &second).await;
}

/// Nor does an authority let a certificate expire that suggests a time after its end.
#[tokio::test]
async fn a_certificate_is_renewed_before_it_expires_whatever_the_authority_says() {
    let given = Given::start(&acme(&[NAME]), "", |front| front.suggest(4_000_000_000, 4_000_000_100)).await;
    let first = issued(given.gateway.tls_address(), NAME).await;
    given.next_order_in_years(4.7..4.8).await;
    given.gateway.advance(42_000 * HOUR);
    renewed(given.gateway.tls_address(), NAME, &first).await;
}

/// Pebble's certificates have a life of five years.
#[tokio::test]
async fn without_advice_a_certificate_is_renewed_after_two_thirds_of_its_life() {
    let (given, first) = Given::issued().await;
    let year = 365 * 24 * HOUR;
    given.gateway.advance(3 * year);
    some_turns().await;
    assert_eq!(
        (given.orders(), certificate(given.gateway.tls_address(), NAME).await.expect("one")),
        (1, first.clone())
    );
    given.gateway.advance(year / 2);
    renewed(given.gateway.tls_address(), NAME, &first).await;
}

#[tokio::test]
async fn a_reload_adds_and_removes_names() {
    let (given, first) = Given::issued().await;
    let (gateway, address) = (&given.gateway, given.gateway.tls_address());
    let names = |names: &[&str]| gateway.configuration().replace(&acme(&[NAME]), &acme(names));
    reload(gateway, &names(&[NAME, "www.example"]));
    let other = issued(address, "www.example").await;
    assert_ne!(other, first);
    assert_eq!(certificate(address, NAME).await.expect("it stays"), first);
    assert_eq!(certificate(address, "other.example").await.expect("the first is the default"), first);

    reload(gateway, &names(&["www.example"]));
    assert_eq!(certificate(address, NAME).await.expect("the default"), other);
    assert_eq!(shown(gateway).await["acme"].as_array().map(Vec::len), Some(1));
    // It is still in the store.
    reload(gateway, &names(&["www.example", NAME]));
    eventually_within(PATIENCE, "the first certificate is used again", async || {
        let found = certificate(address, NAME).await.map_err(|error| error.to_string())?;
        if found == first { Ok(()) } else { Err("another one".to_owned()) }
    })
    .await;
    assert_eq!(given.orders(), 2);
}

/// A reload from files to an authority that does not respond.
#[tokio::test]
async fn a_name_keeps_its_certificate_until_the_authority_has_issued_one() {
    let (upstream, folder, port) = (Upstream::start(), Arc::new(TempDir::new().expect("a folder")), free_port());
    Authority::new().sign(NAME).write(folder.path(), "own");
    let with = |tls: &str, more: &str| with_tls(&upstream, port, tls, more);
    let files = with("{ certificate = \"own.pem\", key = \"own.key\" }", "");
    let gateway = Gateway::in_folder(files, folder, Arc::new(ManualClock::new()));
    let address = gateway.tls_address();
    let own = certificate(address, NAME).await.expect("that of the files");
    let away = format!("[acme]\ndirectory = \"https://127.0.0.1:{}/dir\"\n", free_port());
    reload(&gateway, &with(&acme(&[NAME, "www.example"]), &away));
    gateway.wait_for_metric(&format!("acme_failures{{name=\"{NAME}\"}}"), 1).await;
    assert_eq!(certificate(address, NAME).await.expect("it stays"), own);
    assert!(certificate(address, "www.example").await.is_err(), "not the certificate of another name");
    // Another reload changes nothing.
    reload(&gateway, &with(&acme(&[NAME]), &away));
    assert_eq!(certificate(address, NAME).await.expect("it stays"), own);
}

#[tokio::test]
async fn orders_of_an_hour_are_limited() {
    let given = Given::start(&acme(&[NAME, "www.example"]), "orders_per_hour = 1\n", |_| {}).await;
    let (gateway, address) = (&given.gateway, given.gateway.tls_address());
    issued(address, NAME).await;
    gateway.wait_for_metric("limit_hits_total{limit=\"acme.orders_per_hour\"}", 1).await;
    assert_eq!(given.orders(), 1);
    assert!(certificate(address, "www.example").await.is_err(), "not the certificate of another name");
    gateway.advance(HOUR);
    issued(address, "www.example").await;
    assert_eq!(given.orders(), 2);
}

/// The old one can then be removed: the account stays, too.
#[tokio::test]
async fn a_new_root_secret_seals_what_is_there() {
    let mut given = Given::start(&acme(&[NAME]), "", |front| front.suggest(4_000_000_000, 4_000_000_100)).await;
    let first = issued(given.gateway.tls_address(), NAME).await;
    given.next_order_in_years(4.7..4.8).await;
    given.front.set_away(true);
    let file = given.gateway.path().join("bearward.secret");
    let (roots, path) = (std::fs::read_to_string(&file).expect("a secret"), given.gateway.path().join("bearward.db"));
    given.gateway.drain();
    let newer = format!("2 {}\n", "1".repeat(43));
    let write = |roots: &str| bearward::types::secret::write_private(&file, roots.as_bytes()).expect("written");
    write(&format!("{roots}{newer}"));
    given.gateway = given.gateway.restart();
    assert_eq!(certificate(given.gateway.tls_address(), NAME).await.expect("at once"), first);
    some_turns().await;
    given.gateway.drain();
    let settings = crate::support::given::settings();
    let store = SqliteStore::open_within(Duration::from_secs(10), path, settings, Arc::new(|_, _| {})).expect("opens");
    let entries = store.acme_entries(Vec::new()).await.expect("reads");
    let sealed_by: Vec<_> = entries.iter().map(|entry| (&*entry.name, entry.root)).collect();
    assert!(matches!(sealed_by[..], [(_, 2), ("name api.example", 2)]), "{sealed_by:?}");
    drop(store);

    write(&newer);
    given.front.set_away(false);
    given.gateway = given.gateway.restart();
    given.gateway.advance(42_000 * HOUR);
    renewed(given.gateway.tls_address(), NAME, &first).await;
    let accounts = given.front.state.accounts();
    let is_first = |account: &serde_json::Value| account.is_string() && *account == accounts[0];
    assert!(accounts.len() > 1 && accounts.iter().all(is_first), "{accounts:?}");
}
