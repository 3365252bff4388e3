//! TLS as it should be, cleartext where it was asked for, and a listener for each.

use std::io::{ErrorKind, Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, NamedGroup, ProtocolVersion, SignatureScheme};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::support::clock::ManualClock;
use crate::support::session::eventually;
use crate::support::{Client, Gateway, Honest, Upstream, Wire};

/// Looks at certificates and takes any.
#[derive(Debug)]
struct Curious;

impl ServerCertVerifier for Curious {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

async fn handshake(
    gateway: &Gateway,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).expect("versions");
    let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(Curious)).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(gateway.tls_address()).await.expect("the gateway listens");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

const TLS13: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
const TLS12: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];

#[tokio::test]
async fn tls_1_3_and_1_2_with_the_protocol_that_both_prefer() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for (versions, version) in [(TLS13, ProtocolVersion::TLSv1_3), (TLS12, ProtocolVersion::TLSv1_2)] {
        for (offered, chosen) in [
            (&["h2", "http/1.1"][..], Some(b"h2".as_slice())),
            (&["http/1.1", "h2"], Some(b"h2")),
            (&["http/1.1"], Some(b"http/1.1")),
            (&[], None),
        ] {
            let stream = handshake(&gateway, "localhost", versions, offered).await.expect("a handshake");
            let session = stream.get_ref().1;
            assert_eq!((session.protocol_version(), session.alpn_protocol()), (Some(version), chosen));
        }
    }
    assert!(handshake(&gateway, "localhost", TLS13, &["spdy/3"]).await.is_err(), "no protocol in common");
}

#[tokio::test]
async fn keys_are_exchanged_so_that_a_quantum_computer_does_not_help() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let stream = handshake(&gateway, "localhost", TLS13, &["h2"]).await.expect("a handshake");
    let group = stream.get_ref().1.negotiated_key_exchange_group().expect("a group");
    assert_eq!(group.name(), NamedGroup::X25519MLKEM768);
}

#[tokio::test]
async fn the_certificate_is_the_one_for_the_name_that_is_asked_for() {
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
        std::fs::write(folder.path().join(format!("{file}.key")), certified.signing_key.serialize_pem())
            .expect("written");
        made.push((file, certified.cert.der().clone()));
    }
    let pairs = made.iter().map(|(file, _)| format!("{{ certificate = \"{file}.pem\", key = \"{file}.key\" }}"));
    let tls = format!("tls = [{}]", pairs.collect::<Vec<_>>().join(", "));
    let upstream = Upstream::start();
    let text = Gateway::open_text(upstream.address, "").replace("tls = \"self-signed\"", &tls);
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
        // No name at all: an address is not sent.
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

/// Read from those in force, so that one that was renewed on disk and is not loaded is still seen to end.
#[tokio::test]
async fn the_metrics_say_when_each_certificate_ends() {
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    let make = |file: &str, year: i32| {
        let mut certificate = rcgen::CertificateParams::new([format!("{file}.example")]).expect("a name");
        certificate.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = certificate.self_signed(&key).expect("a certificate");
        std::fs::write(folder.path().join(format!("{file}.pem")), certificate.pem()).expect("written");
        std::fs::write(folder.path().join(format!("{file}.key")), key.serialize_pem()).expect("written");
    };
    make("one", 2031);
    // A date that the certificate writes with four digits of its year.
    make("other", 2051);
    let pair = |file: &str| format!("{{ certificate = \"{file}.pem\", key = \"{file}.key\" }}");
    let upstream = Upstream::start();
    let text = Gateway::open_text(upstream.address, "")
        .replace("tls = \"self-signed\"", &format!("tls = [{}, {}]", pair("one"), pair("other")));
    let gateway = Gateway::in_folder(text, folder.clone(), Arc::new(ManualClock::new()));
    let ends = async |file: &str| {
        let (listener, certificate) = (gateway.tls_address(), folder.path().join(format!("{file}.pem")));
        let labels = format!("listener=\"{listener}\",certificate=\"{}\"", certificate.display());
        gateway.metric(&format!("bearward_certificate_not_after_timestamp_seconds{{{labels}}} ")).await
    };
    assert_eq!((ends("one").await, ends("other").await), (1_924_992_000.0, 2_556_144_000.0));
    make("one", 2032);
    assert_eq!(ends("one").await, 1_924_992_000.0, "nobody has loaded it");
    gateway.running().reload(gateway.config()).expect("it reloads");
    assert_eq!((ends("one").await, ends("other").await), (1_956_528_000.0, 2_556_144_000.0));
}

#[tokio::test]
async fn whoever_does_not_shake_hands_is_closed() {
    let upstream = Upstream::start();
    let gateway = Gateway::narrow(upstream.address, "[timeouts]\ntls_handshake = \"1s\"");
    let garbage: &[&[u8]] = &[
        b"",
        // The beginning of a ClientHello, and no more of it.
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
            let _ = attacker.try_say(said).await;
            attackers.push(attacker);
        }
        // Who comes now shakes hands beside them.
        Honest::connect(&gateway).await.is_served().await;
        for attacker in &mut attackers {
            let heard = attacker.hear_to_the_end().await;
            assert!(!heard.contains("HTTP"), "{heard}");
            failed += 1;
        }
    };
    Honest::connect(&gateway).await.beside(attack).await;
    assert!(upstream.seen().is_empty());
    gateway.counts("tls_handshakes_failed_total", failed).await;
}

/// A write of its own for the tickets would be a tenth of a handshake.
#[tokio::test]
async fn tickets_leave_with_the_first_answer() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let mut client = ByHand::shake_hands(&gateway).await;
    client.say(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n1").await;
    eventually("the backend has the request", || upstream.in_flight() == 1).await;
    let nothing = client.stream.try_read(&mut [0]).expect_err("the backend waits for the rest of the body");
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    client.say(b"2").await;
    assert!(client.hear().await.starts_with(b"HTTP/1.1 200 "));
    assert!(client.session.tls13_tickets_received() > 0);
}

/// Who connects and asks later has them, also if it never asks.
#[tokio::test]
async fn tickets_wait_for_no_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let mut client = ByHand::shake_hands(&gateway).await;
    client.say(b"").await;
    while client.session.tls13_tickets_received() == 0 {
        client.read().await;
    }
}

/// A TLS client that says when what it has written leaves.
struct ByHand {
    session: ClientConnection,
    stream: TcpStream,
}

impl ByHand {
    /// To the client's last message, which has not left yet.
    async fn shake_hands(gateway: &Gateway) -> ByHand {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(TLS13).expect("versions");
        let config = builder.dangerous().with_custom_certificate_verifier(Arc::new(Curious)).with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::new(config), name).expect("a client");
        let stream = TcpStream::connect(gateway.tls_address()).await.expect("the gateway listens");
        let mut client = ByHand { session, stream };
        while client.session.is_handshaking() {
            client.say(b"").await;
            client.read().await;
        }
        client
    }

    /// With whatever else there is to be sent, at one go.
    async fn say(&mut self, what: &[u8]) {
        self.session.writer().write_all(what).expect("room");
        let mut records = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut records).expect("room");
        }
        self.stream.write_all(&records).await.expect("the gateway reads");
    }

    async fn read(&mut self) {
        let mut records = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), self.stream.read_buf(&mut records));
        assert!(read.await.expect("something in time").expect("no reset") > 0, "closed");
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            self.session.read_tls(&mut rest).expect("room");
            self.session.process_new_packets().expect("TLS");
        }
    }

    /// What an answer begins with.
    async fn hear(&mut self) -> Vec<u8> {
        let mut heard = vec![0; 1024];
        loop {
            self.read().await;
            if let Ok(read) = self.session.reader().read(&mut heard) {
                heard.truncate(read);
                return heard;
            }
        }
    }
}

#[tokio::test]
async fn a_cleartext_listener_speaks_both_protocols() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for client in [Client::http1(gateway.address()), Client::http2(gateway.address())] {
        let answer = client.get("/").await;
        assert_eq!((answer.status.as_u16(), answer.version), (200, client.version()));
    }
    // The preface may come in pieces.
    let mut client = Wire::connect(gateway.address()).await;
    for piece in ["P", "R", "I * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        client.say(piece).await;
        client.stream.flush().await.expect("flushed");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(client.hear_bytes(9).await[3], 4, "SETTINGS");
    // And TLS is no request.
    let mut client = Wire::connect(gateway.address()).await;
    client.say(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").await;
    assert!(client.hear_to_the_end().await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn listeners_of_ipv4_and_ipv6_stand_side_by_side() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(
        upstream.address,
        "[[listener]]\naddress = \"[::1]:0\"\ntls = \"off\"\n[[listener]]\naddress = \"[::1]:0\"\ntls = \"self-signed\"",
    );
    let addresses = gateway.running().addresses.clone();
    assert_eq!(addresses.len(), 4);
    for (number, address) in addresses.into_iter().enumerate() {
        let client = Client::http2(address);
        let client = if number % 2 == 1 { client.over_tls(&gateway.certificate()) } else { client };
        assert_eq!(client.get("/").await.status, 200, "{address}");
    }
}

/// Runs the real curl; answers what it printed.
fn curl(arguments: &[&str]) -> String {
    let ran = Command::new("curl").args(["-sS", "--max-time", "20"]).args(arguments).output();
    let ran = ran.expect("curl is installed: tests/run does that");
    assert!(ran.status.success(), "curl {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[tokio::test]
async fn curl_is_content_with_either_protocol() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let certificate = gateway.certificate();
    let certificate = certificate.to_str().expect("a path");
    let url = format!("https://localhost:{}/orders", gateway.tls_address().port());
    let resolve = format!("localhost:{}:127.0.0.1", gateway.tls_address().port());
    let bearer = format!("Authorization: Bearer {}", pair.access);
    for (protocol, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let told = curl(&[
            protocol,
            "--cacert",
            certificate,
            "--resolve",
            &resolve,
            "-H",
            &bearer,
            "-d",
            "a body",
            "-w",
            " %{http_version} %{http_code}",
            &url,
        ]);
        assert_eq!(told, format!("a body {version} 200"));
        let told = curl(&[
            protocol,
            "--cacert",
            certificate,
            "--resolve",
            &resolve,
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            &url,
        ]);
        assert_eq!(told, "401");
    }
    eventually("both bodies arrived", || upstream.seen().len() == 2).await;
}
