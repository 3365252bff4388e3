//! The certificate for a server name, and the expiry of certificates in the metrics.

use std::sync::Arc;

use bearward::types::secret;
use tempfile::TempDir;

use super::{TLS12, TLS13, handshake};
use crate::support::clock::ManualClock;
use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn the_certificate_matches_the_requested_server_name() {
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    let mut made = Vec::new();
    for (file, names) in [
        ("first", &["first.example"][..]),
        ("several", &["one.example", "two.example"]),
        ("wild", &["*.wild.example", "exact.example"]),
        ("exact", &["exact.wild.example"]),
    ] {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certified = rcgen::generate_simple_self_signed(names).expect("a certificate");
        std::fs::write(folder.path().join(format!("{file}.pem")), certified.cert.pem()).expect("written");
        secret::write_private(
            &folder.path().join(format!("{file}.key")),
            certified.signing_key.serialize_pem().as_bytes(),
        )
        .expect("written");
        made.push((file, certified.cert.der().clone()));
    }
    let pairs = made.iter().map(|(file, _)| format!("{{ certificate = \"{file}.pem\", key = \"{file}.key\" }}"));
    let tls = format!("tls = [{}]", pairs.collect::<Vec<_>>().join(", "));
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "").replace("tls = \"self-signed\"", &tls);
    let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
    for (name, expected) in [
        ("first.example", "first"),
        ("one.example", "several"),
        ("two.example", "several"),
        ("TWO.example", "several"),
        ("a.wild.example", "wild"),
        ("exact.example", "wild"),
        ("exact.wild.example", "exact"),
        ("a.b.wild.example", "first"),
        ("wild.example", "first"),
        ("unknown.example", "first"),
        // No server name: a client does not send an address.
        ("127.0.0.1", "first"),
    ] {
        for versions in [TLS13, TLS12] {
            let stream = handshake(&gateway, name, versions, &["h2"]).await.expect("a handshake");
            let shown = &stream.get_ref().1.peer_certificates().expect("a certificate")[0];
            let (file, _) = made.iter().find(|(_, certificate)| certificate == shown).expect("one of ours");
            assert_eq!(*file, expected, "{name}");
        }
    }
}

/// The metric shows the active certificates, so that an operator sees the expiry of one that was renewed but not
/// loaded.
#[tokio::test]
async fn the_metrics_show_the_expiry_of_each_certificate() {
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    let make = |file: &str, year: i32| {
        let mut certificate = rcgen::CertificateParams::new([format!("{file}.example")]).expect("a name");
        certificate.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = certificate.self_signed(&key).expect("a certificate");
        std::fs::write(folder.path().join(format!("{file}.pem")), certificate.pem()).expect("written");
        secret::write_private(&folder.path().join(format!("{file}.key")), key.serialize_pem().as_bytes())
            .expect("written");
    };
    make("one", 2031);
    // From 2050 on, a certificate has the year in four digits.
    make("other", 2051);
    let pair = |file: &str| format!("{{ certificate = \"{file}.pem\", key = \"{file}.key\" }}");
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "")
        .replace("tls = \"self-signed\"", &format!("tls = [{}, {}]", pair("one"), pair("other")));
    let gateway = Gateway::in_folder(text, folder.clone(), Arc::new(ManualClock::new()));
    let ends = async |file: &str| {
        let (listener, certificate) = (gateway.tls_address(), folder.path().join(format!("{file}.pem")));
        let labels = format!("listener=\"{listener}\",certificate=\"{}\"", certificate.display());
        gateway.metric(&format!("bearward_certificate_not_after_timestamp_seconds{{{labels}}} ")).await
    };
    assert_eq!((ends("one").await, ends("other").await), (1_924_992_000.0, 2_556_144_000.0));
    make("one", 2032);
    assert_eq!(ends("one").await, 1_924_992_000.0, "the new certificate is not loaded");
    gateway.running().reload(gateway.config()).expect("it reloads");
    assert_eq!((ends("one").await, ends("other").await), (1_956_528_000.0, 2_556_144_000.0));
}
