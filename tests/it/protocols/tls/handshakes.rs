//! TLS versions, ALPN, key exchange, and connections without a handshake.

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
            (&[], None),
        ] {
            let stream = handshake(&gateway, "localhost", versions, offered).await.expect("a handshake");
            let connection = stream.get_ref().1;
            assert_eq!((connection.protocol_version(), connection.alpn_protocol()), (Some(version), chosen));
        }
    }
    assert!(handshake(&gateway, "localhost", TLS13, &["spdy/3"]).await.is_err(), "no protocol in common");
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
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
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
