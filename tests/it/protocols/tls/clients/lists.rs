//! Several revocation lists of one authority: every one counts.

use std::sync::Arc;

use bearward::types::clock::{Clock, SystemClock};
use rcgen::SerialNumber;
use tempfile::TempDir;

use crate::support::certificates::{Authority, Signed};
use crate::support::mutual_tls::MutualClient;
use crate::support::{Gateway, Upstream};

const DAY: u64 = 24 * 60 * 60;
const ROUTES: &str = "[[route]]\npath = \"/\"\npublic = true\n";

fn now() -> u64 {
    SystemClock.now().as_secs()
}

/// A gateway that accepts clients of these authorities, with each list in a file of its own.
fn gateway(upstream: &Upstream, authorities: &[&Authority], lists: &[String]) -> Gateway {
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("clients.pem", &authorities.iter().map(|authority| authority.pem()).collect::<String>());
    let files: Vec<String> = (0..lists.len()).map(|number| format!("{number}.crl")).collect();
    files.iter().zip(lists).for_each(|(file, list)| write(file, list));
    let keys = format!("client_certificate = \"required\"\nclient_ca = \"clients.pem\"\nclient_crl = {files:?}");
    Gateway::with_clients_in(folder, upstream, &keys, ROUTES)
}

fn client(authority: &Authority, serial: u64) -> Signed {
    authority.client(|params| params.serial_number = Some(SerialNumber::from(serial)))
}

/// The status that each client gets. 0: no handshake.
async fn statuses(gateway: &Gateway, clients: &[&Signed]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for client in clients {
        statuses.push(MutualClient::new(gateway, Some(client.pair(&[]))).status("/", "").await);
    }
    statuses
}

/// Both orders of two lists.
fn orders(one: String, other: String) -> [[String; 2]; 2] {
    [[one.clone(), other.clone()], [other, one]]
}

#[tokio::test]
async fn an_authority_with_a_new_key_has_a_list_by_each_key() {
    let upstream = Upstream::start();
    // Both have one name.
    let old = Authority::new();
    let new = Authority::new();
    let clients = [client(&old, 1), client(&old, 2), client(&new, 3), client(&new, 4)];
    let tomorrow = now() + DAY;
    for lists in orders(old.revocation_list(&[2, 3], tomorrow), new.revocation_list(&[4, 1], tomorrow)) {
        let gateway = gateway(&upstream, &[&old, &new], &lists);
        // A list of the other key is about other certificates, and any signed list that names one revokes it.
        let found = statuses(&gateway, &clients.each_ref()).await;
        assert_eq!(found, [200, 0, 200, 0], "{lists:?}");
    }
    let gateway = gateway(&upstream, &[&old, &new], &[old.revocation_list(&[], tomorrow)]);
    assert_eq!(statuses(&gateway, &clients.each_ref()).await, [200, 200, 0, 0], "no list is by the new key");
}

#[tokio::test]
async fn a_new_list_counts_beside_one_that_has_ended_or_begins_later() {
    let (upstream, authority, foreign) = (Upstream::start(), Authority::new(), Authority::new());
    let clients = [client(&authority, 1), client(&authority, 2), client(&authority, 3)];
    let present = || authority.revocation_list(&[2], now() + DAY);
    for (what, other, expected) in [
        ("ended", authority.revocation_list(&[3], now() - 1), [200, 0, 200]),
        ("of the future", authority.revocation_list(&[3], now() + 10 * DAY), [200, 0, 0]),
        ("another one", authority.revocation_list(&[3], now() + DAY), [200, 0, 0]),
        ("of an authority with the same name", foreign.revocation_list(&[1], now() + DAY), [200, 0, 200]),
    ] {
        for lists in orders(other, present()) {
            let gateway = gateway(&upstream, &[&authority], &lists);
            assert_eq!(statuses(&gateway, &clients.each_ref()).await, expected, "{what}");
        }
    }
    let ended = [authority.revocation_list(&[2], now() - 1), authority.revocation_list(&[2], now() - 2)];
    let gateway = gateway(&upstream, &[&authority], &ended);
    assert_eq!(statuses(&gateway, &clients.each_ref()).await, [0, 0, 0], "all lists have ended");
}
