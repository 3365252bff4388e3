//! The gateway reads certificates and revocation lists that change on disk, and says what is wrong with them.

use std::fs;

use bearward::types::clock::{Clock, SystemClock};
use rcgen::SerialNumber;
use tempfile::TempDir;

use super::{metric, soon, write};
use crate::support::certificates::Authority;
use crate::support::mutual_tls::MutualClient;
use crate::support::program::GatewayProcess;
use crate::support::{Gateway, Upstream};

const DAY: u64 = 24 * 60 * 60;
const FAULT: &str = "the certificate files that were read have a fault";

/// No check of an operator is between such a file and the clients that it rejects.
#[tokio::test]
async fn a_list_with_which_no_client_is_accepted_is_taken_and_logged() {
    let (upstream, authority, other) = (Upstream::start(), Authority::new(), Authority::new());
    let folder = TempDir::new().expect("a folder");
    let now = SystemClock.now().as_secs();
    let replace = |content: String| {
        fs::write(folder.path().join("new"), content).expect("written");
        fs::rename(folder.path().join("new"), folder.path().join("clients.crl")).expect("renamed");
    };
    fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
    let good = || authority.revocation_list(&[9], now + DAY);
    replace(good());
    let tls = "tls = \"self-signed\"";
    let asking = "client_certificate = \"required\"\nclient_ca = \"clients.pem\"\nclient_crl = [\"clients.crl\"]";
    let text = Gateway::public_config(upstream.address, "").replacen(tls, &format!("{tls}\n{asking}"), 1);
    write(folder.path(), &text);
    let served = GatewayProcess::start(folder.path());
    let signed = authority.client(|params| params.serial_number = Some(SerialNumber::from(2_u64)));
    let certificate = folder.path().join("tls/self-signed.pem");
    let client = MutualClient::to(served.addresses[1], &certificate, rustls::ALL_VERSIONS, Some(signed.pair(&[])));
    let unlisted = "no list is by the authority \\\"CN=authority of the tests\\\" of client_ca";
    for (bad, said) in [
        (other.revocation_list(&[9], now + DAY), "another key signed those of its name"),
        (other.authority(7).revocation_list(&[9], now + DAY), unlisted),
        (authority.revocation_list(&[9], now - 60), "clients.crl ended at "),
    ] {
        let before = served.program.stderr_so_far().len();
        replace(bad);
        soon("no client connects", async || client.status("/", "").await == 0).await;
        let logged = || served.program.stderr_so_far()[before..].to_owned();
        soon("the journal says so", async || logged().contains(said)).await;
        let lines = logged();
        let line = lines.lines().find(|line| line.contains(said)).unwrap_or_default();
        assert!(line.contains("WARN") && line.contains(FAULT) && line.contains("listener[1].client_crl: "), "{lines}");
        let soonest = metric(&served, "bearward_client_crl_next_update_timestamp_seconds").await;
        assert!(soonest < (now + DAY) as f64 || lines.contains("no list"), "{soonest}");
        replace(good());
        soon("clients connect", async || client.status("/", "").await == 200).await;
    }
    assert_eq!(served.program.stderr_so_far().matches(FAULT).count(), 3, "a good list has no warning");
}

#[tokio::test]
async fn a_certificate_that_has_ended_is_taken_and_logged() {
    let (upstream, authority) = (Upstream::start(), Authority::new());
    let folder = TempDir::new().expect("a folder");
    authority.sign_until("localhost", 30).write(folder.path(), "a");
    let tls = "tls = { certificate = \"a.pem\", key = \"a.key\" }";
    let text = Gateway::public_config(upstream.address, "").replacen("tls = \"self-signed\"", tls, 1);
    write(folder.path(), &text);
    let served = GatewayProcess::start(folder.path());
    authority.sign_until("localhost", -1).write(folder.path(), "a");
    let said = "a.pem ended at ";
    soon("the journal says so", async || served.program.stderr_so_far().contains(said)).await;
    let lines = served.program.stderr_so_far();
    let line = lines.lines().rfind(|line| line.contains(said)).unwrap_or_default();
    assert!(line.contains("WARN") && line.contains("listener[1].tls: the certificate in "), "{lines}");
}
