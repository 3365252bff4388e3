//! No session is resumed where certificates are asked for: rustls would not look at the certificate again.

use bearward::types::clock::{Clock, SystemClock};
use rcgen::SerialNumber;
use rustls::HandshakeKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::{TLS12, TLS13};
use crate::support::certificates::Authority;
use crate::support::mutual_tls::MutualClient;
use crate::support::{Gateway, Upstream};

const DAY: u64 = 24 * 60 * 60;
const PUBLIC: &str = "[[route]]\npath = \"/\"\npublic = true\n";
const PLAIN: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = \"self-signed\"\n";

/// The kind of the handshake. Reads a response, so that the client gets its tickets.
async fn kind(client: &MutualClient) -> std::io::Result<HandshakeKind> {
    let mut stream = client.connect().await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    Ok(stream.get_ref().1.handshake_kind().expect("a handshake"))
}

#[tokio::test]
async fn each_connection_has_a_full_handshake() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    for policy in ["optional", "required"] {
        let keys = format!("client_certificate = \"{policy}\"");
        let gateway = Gateway::with_clients(&upstream, &authority, &keys, &format!("{PUBLIC}{PLAIN}"));
        let plain = gateway.running().addresses[2];
        for versions in [TLS13, TLS12] {
            let client = MutualClient::of(&gateway, versions, Some(authority.client(|_| {}).pair(&[])));
            for _ in 0..3 {
                assert!(matches!(
                    kind(&client).await,
                    Ok(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest)
                ));
            }
            // The neighbour: a listener that asks for none.
            let client = client.at(plain);
            kind(&client).await.expect("a handshake");
            assert_eq!(kind(&client).await.expect("a handshake"), HandshakeKind::Resumed);
        }
    }
}

/// The client has a ticket of a listener without certificates, and offers it where one is required.
#[tokio::test]
async fn a_ticket_of_another_listener_is_no_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let keys = "client_certificate = \"required\"";
    let gateway = Gateway::with_clients(&upstream, &authority, keys, &format!("{PUBLIC}{PLAIN}"));
    for versions in [TLS13, TLS12] {
        let client = MutualClient::of(&gateway, versions, None);
        kind(&client.at(gateway.running().addresses[2])).await.expect("a handshake");
        assert!(kind(&client).await.is_err(), "{versions:?}");
    }
}

/// A policy changes with a restart alone: at a reload, connections of before would go on without a certificate.
#[tokio::test]
async fn a_ticket_of_before_the_policy_is_no_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let folder = std::sync::Arc::new(tempfile::TempDir::new().expect("a temporary folder"));
    std::fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
    let gateway = Gateway::with_clients_in(folder, &upstream, "client_certificate = \"off\"", PUBLIC);
    let clients = [TLS13, TLS12].map(|versions| MutualClient::of(&gateway, versions, None));
    for client in &clients {
        kind(client).await.expect("a handshake");
    }
    let stricter = |text: String| {
        let required = "client_certificate = \"required\"\nclient_ca = \"clients.pem\"";
        text.replacen("client_certificate = \"off\"", required, 1)
    };
    let text = stricter(gateway.configuration().to_owned());
    let config = bearward::config::parse(&text, gateway.path(), bearward::config::Probe::None).expect("valid");
    assert_eq!(gateway.running().reload(config).expect("it reloads").requires_restart, ["listener"]);
    for client in &clients {
        kind(client).await.expect("the policy is as before");
    }
    let gateway = gateway.restart_with(stricter);
    for client in &clients {
        assert!(kind(&client.at(gateway.tls_address())).await.is_err());
    }
}

#[tokio::test]
async fn a_session_of_before_its_revocation_cannot_go_on() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let keys = "client_certificate = \"required\"\nclient_crl = [\"clients.crl\"]";
    let tomorrow = SystemClock.now().as_secs() + DAY;
    let folder = std::sync::Arc::new(tempfile::TempDir::new().expect("a temporary folder"));
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("written");
    write("clients.pem", authority.pem());
    write("clients.crl", authority.revocation_list(&[2], tomorrow));
    let keys = format!("client_ca = \"clients.pem\"\n{keys}");
    let gateway = Gateway::with_clients_in(folder.clone(), &upstream, &keys, PUBLIC);
    let shown = authority.client(|params| params.serial_number = Some(SerialNumber::from(1)));
    let clients = [TLS13, TLS12].map(|versions| MutualClient::of(&gateway, versions, Some(shown.pair(&[]))));
    for client in &clients {
        kind(client).await.expect("a handshake");
    }
    write("clients.crl", authority.revocation_list(&[2, 1], tomorrow));
    let reloaded = gateway.running().reload(gateway.config()).expect("it reloads");
    assert_eq!(reloaded.active, ["listener"]);
    for client in &clients {
        assert!(kind(client).await.is_err());
    }
}
