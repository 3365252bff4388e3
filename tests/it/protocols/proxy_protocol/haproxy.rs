//! PROXY protocol with HAProxy on both sides.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{gateway, get};
use crate::support::client::tls_connect;
use crate::support::haproxy::Haproxy;
use crate::support::ports::free_address;
use crate::support::{Upstream, Wire};

const DEFAULTS: &str = "defaults\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n";

#[tokio::test]
async fn haproxy_sends_and_receives_client_addresses() {
    for version in ["v1", "v2"] {
        let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
        let [plain, tls, behind] = std::array::from_fn(|_| free_address());
        let gateway = gateway(behind, &format!("proxy_protocol = \"{version}\""));
        let send = if version == "v1" { "send-proxy" } else { "send-proxy-v2" };
        let mut sections = String::new();
        for (name, front, to) in [("plain", plain, gateway.address()), ("tls", tls, gateway.tls_address())] {
            write!(sections, "listen {name}\n mode tcp\n bind {front}\n server gateway {to} {send}\n").expect("memory");
        }
        // HAProxy reports the received address in a header that the gateway does not change.
        write!(
            sections,
            "listen behind\n mode http\n bind {behind} accept-proxy\n http-request set-header X-Told %[src]\n server upstream {}\n",
            upstream.address
        )
        .expect("memory");
        let _haproxy = Haproxy::start(folder.path(), &format!("{DEFAULTS}{sections}"), &[plain, tls]);

        let client = Ipv4Addr::new(127, 0, 0, 9);
        let mut wire = Wire::connect_from(client.into(), plain).await;
        wire.send(get("plain", "X-Forwarded-For: 203.0.113.9\r\n")).await;
        assert_eq!(wire.read_response().await.status, 200, "{version}");

        let certificate = CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
        let wire = Wire::connect_from(client.into(), tls).await;
        let mut wire = tls_connect(wire.stream, certificate, "http/1.1").await.expect("a handshake");
        let request = get("tls", "Connection: close\r\n").replace("gateway.test", "localhost");
        wire.write_all(request.as_bytes()).await.expect("written");
        let mut received = String::new();
        wire.read_to_string(&mut received).await.expect("an answer");
        assert!(received.starts_with("HTTP/1.1 200"), "{version}: {received}");

        let seen = upstream.seen();
        assert_eq!(seen.len(), 2, "{version}");
        for seen in seen {
            assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.9"), "{version}: {seen:?}");
            assert_eq!(seen.header("x-told"), Some("127.0.0.9"), "{version}: {seen:?}");
        }
        let lines = gateway.log_lines(2).await;
        assert!(lines.iter().all(|line| line["client"] == "127.0.0.9"), "{lines:?}");
    }
}
