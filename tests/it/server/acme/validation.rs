//! Connections with `acme-tls/1`, and listeners that ask for certificates.

use std::io;
use std::time::Duration;

use rustls::{AlertDescription, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Given, NAME, acme};
use crate::protocols::tls::{TLS12, TLS13, handshake_at, handshake_with};

fn alert(error: &io::Error) -> AlertDescription {
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(Error::AlertReceived(alert)) => *alert,
        other => panic!("{other:?} of {error:?}"),
    }
}

#[tokio::test]
async fn only_pending_names_are_validated() {
    let (given, _) = Given::issued().await;
    let address = given.gateway.tls_address();
    for versions in [TLS12, TLS13] {
        for name in [NAME, "other.example", "127.0.0.1"] {
            let error = handshake_at(address, name, versions, &["acme-tls/1"]).await.expect_err("nothing is pending");
            assert_eq!(alert(&error), AlertDescription::NoApplicationProtocol, "{name}");
        }
        // Beside another protocol, it is ignored.
        for (offered, expected) in
            [(&["acme-tls/1", "h2"][..], Some("h2")), (&["http/1.1", "acme-tls/1"], Some("http/1.1")), (&[], None)]
        {
            let stream = handshake_at(address, NAME, versions, offered).await.expect("an ordinary client");
            let chosen =
                stream.get_ref().1.alpn_protocol().map(|protocol| String::from_utf8_lossy(protocol).into_owned());
            assert_eq!(chosen.as_deref(), expected, "{offered:?}");
        }
        let error = handshake_at(address, NAME, versions, &["acme-tls/2"]).await.expect_err("unknown");
        assert_eq!(alert(&error), AlertDescription::NoApplicationProtocol);
    }
    // The first message in many records (CVE-2026-32305).
    for (offered, is_ordinary) in [("acme-tls/1", false), ("h2", true)] {
        let split = |config: &mut rustls::ClientConfig| config.max_fragment_size = Some(64);
        let connected = handshake_with(address, NAME, TLS13, &[offered], split).await;
        assert_eq!(connected.is_ok(), is_ordinary, "{offered}");
    }
    // A question about a name that is not pending costs at most half a second, and others go on meanwhile.
    assert_eq!(given.gateway.client().get("/").await.status, 200);
}

#[tokio::test]
async fn an_unfinished_hello_is_cut_off_and_plain_http_gets_a_response() {
    let given = Given::start(&acme(&[NAME]), "[timeouts]\ntls_handshake = \"300ms\"\n", |_| {}).await;
    let address = given.gateway.tls_address();
    for beginning in [&b"\x16\x03\x01\x02\x00\x01"[..], b"\x16"] {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(beginning).await.expect("sent");
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
        read.expect("it is cut off").expect("closed");
    }
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("closed");
    assert!(response.starts_with("HTTP/1.1 400 ") && response.contains("https"), "{response}");
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(&[0x16, 3, 1, 0xff, 0xff]).await.expect("sent");
    let mut alert = Vec::new();
    stream.read_to_end(&mut alert).await.expect("closed");
    assert_eq!(alert.first(), Some(&0x15), "an alert: {alert:?}");
}

/// A validation has no client certificate.
#[tokio::test]
async fn a_listener_that_requires_certificates_is_validated_too() {
    let tls = format!("{}\nclient_certificate = \"required\"\nclient_ca = \"directory-ca.pem\"", acme(&[NAME]));
    let given = Given::start(&tls, "", |_| {}).await;
    given.gateway.wait_for_metric("acme_orders_total{result=\"issued\"}", 1).await;
    let validated = given.gateway.metric("bearward_acme_validations_total").await;
    assert!(validated >= 1.0, "{validated}");
    // TLS 1.2 tells in the handshake.
    let error = handshake_at(given.gateway.tls_address(), NAME, TLS12, &["h2"]).await.expect_err("no certificate");
    assert_ne!(alert(&error), AlertDescription::AccessDenied);
}
