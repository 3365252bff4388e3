//! TLS versions, ALPN, key exchange, and connections without a handshake.

use std::process::{Command, Stdio};

use rustls::{NamedGroup, ProtocolVersion};

use super::{TLS12, TLS13, handshake};
use crate::support::{Gateway, HonestClient, Upstream, Wire};

#[tokio::test]
async fn tls_1_3_and_1_2_negotiate_the_preferred_protocol() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for (versions, version) in [(TLS13, ProtocolVersion::TLSv1_3), (TLS12, ProtocolVersion::TLSv1_2)] {
        for (offered, chosen) in [
            (&["h2", "http/1.1"][..], Some(b"h2".as_slice())),
            (&["http/1.1", "h2"], Some(b"h2")),
            (&["http/1.1"], Some(b"http/1.1")),
            (&["http/1.0"], Some(b"http/1.0")),
            (&[], None),
        ] {
            let stream = handshake(&gateway, "localhost", versions, offered).await.expect("a handshake");
            let connection = stream.get_ref().1;
            assert_eq!((connection.protocol_version(), connection.alpn_protocol()), (Some(version), chosen));
        }
    }
}

#[tokio::test]
async fn a_failed_handshake_ends_with_the_alert_of_its_cause() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for versions in [TLS13, TLS12] {
        let failed = handshake(&gateway, "localhost", versions, &["spdy/3"]).await.expect_err("no protocol in common");
        assert!(failed.to_string().contains("NoApplicationProtocol"), "{failed}");
    }
    let address = gateway.tls_address().to_string();
    for (arguments, alert) in [
        (["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"], "alert handshake failure"),
        (["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"], "alert handshake failure"),
    ] {
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-connect", &address]).args(arguments);
        let output = openssl.stdin(Stdio::null()).output().expect("openssl is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(alert), "{arguments:?}: {errors}");
    }
    gateway.wait_for_metric("tls_handshakes_failed_total", 4).await;
}

/// The response names the mistake. A client that is still sending gets it too.
#[tokio::test]
async fn a_plain_request_on_a_tls_port_gets_400() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nfailed_handshakes = 5");
    let post = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n{}", "x".repeat(30_000));
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for request in [get, &get.replace("GET", "get"), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &post] {
        let mut client = Wire::connect(gateway.tls_address()).await;
        client.send(request).await;
        let response = client.read_response().await;
        assert_eq!((response.status, response.header("connection")), (400, Some("close")));
        assert!(response.body.contains("https"), "{}", response.body);
        client.assert_closed().await;
    }
    assert!(upstream.seen().is_empty());
    gateway.wait_for_metric("tls_handshakes_failed_total", 4).await;
    // Each counts as a failed handshake, so more of them are a flood.
    for _ in 0..2 {
        let mut client = Wire::connect(gateway.tls_address()).await;
        client.send("GET / HTTP/1.1\r\n\r\n").await;
        client.read_to_end().await;
    }
    // The gateway may close it before the client knows that it is open.
    if let Ok(stream) = tokio::net::TcpStream::connect(gateway.address()).await {
        Wire::of(stream).assert_closed().await;
    }
}

#[tokio::test]
async fn the_key_exchange_is_post_quantum() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let stream = handshake(&gateway, "localhost", TLS13, &["h2"]).await.expect("a handshake");
    let group = stream.get_ref().1.negotiated_key_exchange_group().expect("a group");
    assert_eq!(group.name(), NamedGroup::X25519MLKEM768);
}

#[tokio::test]
async fn a_connection_without_a_handshake_is_closed() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[timeouts]\ntls_handshake = \"1s\"");
    let garbage: &[&[u8]] = &[
        b"",
        // Only the beginning of a ClientHello.
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10 as SSL 2.0 does",
        b"(no method begins with this)",
        b"\x16\x03\x01\xff\xff\xff\xff\xff",
    ];
    let mut failed = 0;
    let attack = async || {
        let mut attackers = Vec::new();
        for said in garbage.repeat(5) {
            let mut attacker = Wire::connect(gateway.tls_address()).await;
            let _ = attacker.try_send(said).await;
            attackers.push(attacker);
        }
        // A new client completes its handshake at the same time.
        HonestClient::connect(&gateway).await.assert_served().await;
        for attacker in &mut attackers {
            let received = attacker.read_to_end().await;
            assert!(!received.contains("HTTP"), "{received}");
            failed += 1;
        }
    };
    HonestClient::connect(&gateway).await.assert_served_during(attack).await;
    assert!(upstream.seen().is_empty());
    gateway.wait_for_metric("tls_handshakes_failed_total", failed).await;
}
