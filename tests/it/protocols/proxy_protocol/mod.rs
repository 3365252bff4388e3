//! PROXY protocol: the header that names the client, from a balancer and to an upstream.

mod haproxy;

use std::net::SocketAddr;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::certificates::Authority;
use crate::support::client::tls_connect;
use crate::support::scripted_backend::ScriptedBackend;
use crate::support::{Gateway, Upstream, Wire, frames};

/// The addresses of the balancers of these tests, and of a proxy over HTTP.
const TRUSTED: &str = "[forwarding]\ntrusted = [\"127.0.0.1\", \"10.0.0.0/8\"]\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A gateway with two listeners that expect the header. `keys` belong to `[[upstream]]`.
fn gateway(upstream: SocketAddr, keys: &str) -> Gateway {
    let text = Gateway::public_config(upstream, &format!("{keys}\n{TRUSTED}"));
    Gateway::from_text(text.replace("\ntls = ", "\nproxy_protocol = true\ntls = "))
}

fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len()).expect("short").to_be_bytes();
    [SIGNATURE, &[command, family], &len, rest].concat()
}

fn get(path: &str, fields: &str) -> String {
    format!("GET /{path} HTTP/1.1\r\nHost: gateway.test\r\n{fields}\r\n")
}

#[tokio::test]
async fn the_client_address_is_that_of_the_header() {
    let upstream = Upstream::start();
    let gateway = gateway(upstream.address, "");
    let v4 = [198, 51, 100, 7, 192, 0, 2, 1, 0xc8, 0x22, 1, 0xbb];
    let v6 = [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7][..], &[0; 20]].concat();
    let forwarded = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n";
    let rows = [
        (b"PROXY TCP4 198.51.100.7 192.0.2.1 51234 443\r\n".to_vec(), "198.51.100.7", "http"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 51234 443\r\n".to_vec(), "2001:db8::7", "http"),
        (v2(0x21, 0x11, &v4), "198.51.100.7", "http"),
        (v2(0x21, 0x11, &[&v4[..], &[4, 0, 3, 1, 2, 3], &[0; 3000]].concat()), "198.51.100.7", "http"),
        (v2(0x21, 0x21, &v6), "2001:db8::7", "http"),
        // A trusted proxy behind the balancer, so its forwarding headers count.
        (b"PROXY TCP4 10.1.2.3 192.0.2.1 51234 443\r\n".to_vec(), "203.0.113.9", "https"),
        // A connection of the balancer itself, for example a health check, and one of an unnamed client, which is not
        // trusted.
        (v2(0x20, 0x00, &[]), "127.0.0.1", "http"),
        (v2(0x21, 0x31, &[0; 216]), "127.0.0.1", "http"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1", "http"),
    ];
    for (row, (header, client, proto)) in rows.iter().enumerate() {
        for in_pieces in [false, true] {
            let bytes = [header.as_slice(), get(&row.to_string(), forwarded).as_bytes()].concat();
            let mut balancer = Wire::connect(gateway.address()).await;
            balancer.stream.set_nodelay(true).expect("a socket");
            for piece in bytes.chunks(if in_pieces { 1 } else { bytes.len() }) {
                balancer.send(piece).await;
                tokio::task::yield_now().await;
            }
            assert_eq!(balancer.read_response().await.status, 200, "{row}");
            let seen = upstream.only_request();
            assert_eq!(seen.header("x-forwarded-for"), Some(*client), "{row}");
            assert_eq!(seen.header("x-forwarded-proto"), Some(*proto), "{row}");
            upstream.forget();
            // The header also counts for the second request.
            balancer.send(get("again", "")).await;
            assert_eq!(balancer.read_response().await.status, 200);
            let response_body = upstream.only_request().header("x-forwarded-for").map(str::to_owned);
            assert_eq!(response_body.as_deref(), Some(if *proto == "https" { "10.1.2.3" } else { client }), "{row}");
            upstream.forget();
        }
    }
    let lines = gateway.log_lines(4 * rows.len()).await;
    for (row, (_, client, _)) in rows.iter().enumerate() {
        let mut its = lines.iter().filter(|line| line["path"] == format!("/{row}"));
        assert!(its.all(|line| line["client"] == *client), "{client}: {lines:?}");
    }
}

#[tokio::test]
async fn tls_begins_after_the_header() {
    let upstream = Upstream::start();
    let gateway = gateway(upstream.address, "");
    let certificate = CertificateDer::from_pem_file(gateway.certificate()).expect("a certificate");
    let mut balancer = Wire::connect(gateway.tls_address()).await;
    balancer.send("PROXY TCP4 198.51.100.7 192.0.2.1 51234 443\r\n").await;
    let mut client = tls_connect(balancer.stream, certificate, "http/1.1").await.expect("a handshake");
    let request = get("", "Connection: close\r\n").replace("gateway.test", "localhost");
    client.write_all(request.as_bytes()).await.expect("written");
    let mut received = String::new();
    client.read_to_string(&mut received).await.expect("an answer");
    assert!(received.starts_with("HTTP/1.1 200"), "{received}");
    assert_eq!(upstream.only_request().header("x-forwarded-for"), Some("198.51.100.7"));
    assert_eq!(upstream.only_request().header("x-forwarded-proto"), Some("https"));
}

#[tokio::test]
async fn a_connection_without_a_valid_header_is_closed() {
    let upstream = Upstream::start();
    let gateway = gateway(upstream.address, "[timeouts]\ntls_handshake = \"300ms\"");
    let header = "PROXY TCP4 198.51.100.7 192.0.2.1 51234 443\r\n";
    let get = get("", "");
    let mut tried = 0;
    for bytes in [
        get.clone().into_bytes(),
        format!("PROXY TCP4 198.51.100.7 192.0.2.1 51234\r\n{get}").into_bytes(),
        format!("PROXY TCP4 198.51.100.7 192.0.2.1 51234 443\n{get}").into_bytes(),
        format!("PROXY UNKNOWN {}\r\n{get}", "x".repeat(100)).into_bytes(),
        [&v2(0x21, 0x12, &[0; 12]), get.as_bytes()].concat(),
        [&v2(0x21, 0x11, &[0; 4]), get.as_bytes()].concat(),
        [&v2(0x21, 0x11, &[0; 5000]), get.as_bytes()].concat(),
        frames::connection_preface(),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
        // An incomplete header: the rest never arrives.
        b"PROXY TCP4 198.51".to_vec(),
        SIGNATURE.to_vec(),
        v2(0x21, 0x11, &[0; 12])[..20].to_vec(),
        Vec::new(),
    ] {
        for address in [gateway.address(), gateway.tls_address()] {
            let mut client_wire = Wire::connect(address).await;
            // The gateway may close the connection before all is sent.
            let _ = client_wire.try_send(&bytes).await;
            client_wire.assert_closed().await;
            tried += 1;
        }
    }
    // The gateway does not read from an untrusted address.
    let mut stranger = Wire::connect_from("127.0.0.2".parse().expect("an address"), gateway.address()).await;
    let _ = stranger.try_send(format!("{header}{get}")).await;
    stranger.assert_closed().await;
    gateway.wait_for_metric("proxy_protocol_failed_total", tried + 1).await;
    assert_eq!(upstream.connections(), 0);
    // A second header is not a valid request.
    let mut balancer = Wire::connect(gateway.address()).await;
    balancer.send([header, header, &get].concat()).await;
    assert_eq!(balancer.read_response().await.status, 400);
    balancer.assert_closed().await;
    assert_eq!(upstream.connections(), 0);
}

/// Limits per address count the clients, not the balancer in front of them.
#[tokio::test]
async fn limits_count_the_client_of_the_header() {
    let upstream = Upstream::start();
    let listeners = Gateway::config_text(&upstream.address.to_string(), TRUSTED);
    let text = listeners.replace("\ntls = ", "\nproxy_protocol = true\ntls = ").replace("calls = 0", "calls = 1");
    let gateway = Gateway::from_text(text);
    let ask = async |client: &str| {
        let mut balancer = Wire::connect(gateway.address()).await;
        let request = "POST /user/refresh HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        balancer.send(format!("PROXY TCP4 {client} 192.0.2.1 1 443\r\n{request}")).await;
        balancer.read_response().await.status
    };
    assert_ne!(ask("198.51.100.7").await, 429);
    assert_eq!(ask("198.51.100.7").await, 429);
    assert_ne!(ask("198.51.100.8").await, 429);
}

#[tokio::test]
async fn connection_limits_and_rates_count_the_client_of_the_header() {
    let upstream = Upstream::start();
    let limits = "[limits]\nconnections_per_address = 2\n[[rate]]\nper = \"address\"\nrequests = 3\nwindow = \"1h\"";
    let gateway = gateway(upstream.address, limits);
    let arrive = async |client: &str| {
        let mut wire = Wire::connect(gateway.address()).await;
        // The gateway may close the connection before all is sent.
        let _ = wire.try_send(format!("PROXY TCP4 {client} 192.0.2.1 1 443\r\n{}", get("", ""))).await;
        wire
    };
    let mut held = Vec::new();
    for client in ["198.51.100.7", "198.51.100.7", "198.51.100.8", "198.51.100.8"] {
        let mut wire = arrive(client).await;
        assert_eq!(wire.read_response().await.status, 200, "{client}");
        held.push(wire);
    }
    for client in ["198.51.100.7", "198.51.100.8"] {
        arrive(client).await.assert_closed().await;
    }
    gateway.wait_for_metric("address_connections_rejected_total", 2).await;
    // Their third and fourth request. A rejected connection does not count.
    for (wire, status) in [(0, 200), (1, 429), (2, 200), (3, 429)] {
        held[wire].send(get("", "")).await;
        assert_eq!(held[wire].read_response().await.status, status, "{wire}");
    }
    // A trusted proxy has the connections and requests of all its clients, so no limit applies to it.
    for number in 0..6 {
        let mut wire = Wire::connect(gateway.address()).await;
        let request = get("", &format!("X-Forwarded-For: 203.0.113.{number}\r\n"));
        wire.send(format!("PROXY TCP4 10.1.2.3 192.0.2.1 1 443\r\n{request}")).await;
        assert_eq!(wire.read_response().await.status, 200, "{number}");
        held.push(wire);
    }
}

/// A pooled connection belongs to one client, and only that client's requests use it again.
#[tokio::test]
async fn an_upstream_with_proxy_protocol_gets_the_client_address() {
    for (version, len) in [("v1", None), ("v2", Some(28))] {
        let backend = ScriptedBackend::start(move |mut wire, number| async move {
            let header = match len {
                None => wire.read_until("\r\n").await.into_bytes(),
                Some(len) => wire.read_bytes(len).await,
            };
            let client = match len {
                None => String::from_utf8_lossy(&header).split(' ').nth(2).expect("an address").to_owned(),
                Some(_) => header[16..20].iter().map(u8::to_string).collect::<Vec<_>>().join("."),
            };
            while wire.try_read_until("\r\n\r\n").await.is_some() {
                let response_body = format!("{number} {client}");
                wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{response_body}", response_body.len()))
                    .await;
            }
        });
        let more = format!("proxy_protocol = \"{version}\"\nmax_concurrent_requests = 2");
        let gateway =
            Gateway::from_text(Gateway::public_config(backend.address, &more).replace("workers = 2", "workers = 1"));
        for (client, response_body) in [
            ("127.0.0.7", "0 127.0.0.7"),
            ("127.0.0.8", "1 127.0.0.8"),
            ("127.0.0.7", "0 127.0.0.7"),
            ("127.0.0.8", "1 127.0.0.8"),
            // The pool keeps two connections, the maximum, and closes the least recently used one.
            ("127.0.0.9", "2 127.0.0.9"),
            ("127.0.0.8", "1 127.0.0.8"),
            ("127.0.0.7", "3 127.0.0.7"),
        ] {
            let mut wire = Wire::connect_from(client.parse().expect("an address"), gateway.address()).await;
            wire.send(get("", "")).await;
            assert_eq!(wire.read_response().await.body, response_body, "{version}");
        }
        assert_eq!(backend.connections(), 4);
    }
}

/// A proxy in front of the backend's TLS reads the header first, and forwards the rest.
#[tokio::test]
async fn the_header_for_an_upstream_comes_before_tls() {
    for version in ["v1", "v2"] {
        let (authority, folder) = (Authority::new(), TempDir::new().expect("a folder"));
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).expect("written");
        let acceptor = authority.server("localhost");
        let backend = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = backend.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = backend.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let client = announced(&mut stream, version).await;
                    let mut stream = acceptor.accept(stream).await.expect("TLS follows the header");
                    let mut read = [0; 4096];
                    while let Ok(len @ 1..) = stream.read(&mut read).await {
                        assert!(read[..len].starts_with(b"GET / HTTP/1.1\r\n"), "{:?}", &read[..len]);
                        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{client}", client.len());
                        stream.write_all(answer.as_bytes()).await.expect("the gateway reads");
                    }
                });
            }
        });
        let ca_file = folder.path().join("ca.pem");
        let keys = format!("proxy_protocol = \"{version}\"\nca_file = \"{}\"", ca_file.display());
        let text = Gateway::public_config(address, &keys).replace("http://127.0.0.1", "https://localhost");
        let gateway = Gateway::from_text(text);
        for client in ["127.0.0.7", "127.0.0.8", "127.0.0.7"] {
            let mut wire = Wire::connect_from(client.parse().expect("an address"), gateway.address()).await;
            wire.send(get("", "")).await;
            let answer = wire.read_response().await;
            assert_eq!((answer.status, answer.body.as_str()), (200, client), "{version}");
        }
    }
}

/// Reads a header, and returns its client address. Reads no byte after the header.
async fn announced(stream: &mut TcpStream, version: &str) -> String {
    if version == "v2" {
        let mut header = [0; 28];
        stream.read_exact(&mut header).await.expect("a header");
        assert_eq!((&header[..12], header[12]), (SIGNATURE, 0x21));
        return header[16..20].iter().map(u8::to_string).collect::<Vec<_>>().join(".");
    }
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await.expect("a header"));
    }
    let line = String::from_utf8(line).expect("ASCII");
    let client = line.strip_prefix("PROXY TCP4 ").and_then(|rest| rest.split(' ').next());
    client.unwrap_or_else(|| panic!("{line:?}")).to_owned()
}

/// A balancer that does not name its clients brings the connections of all of them.
#[tokio::test]
async fn unnamed_clients_do_not_share_the_limit_of_an_address() {
    let upstream = Upstream::start();
    let gateway = gateway(upstream.address, "[limits]\nconnections_per_address = 2");
    let mut held = Vec::new();
    for number in 0..5 {
        let mut wire = Wire::connect(gateway.address()).await;
        wire.send(format!("PROXY UNKNOWN\r\n{}", get("", ""))).await;
        assert_eq!(wire.read_response().await.status, 200, "{number}");
        held.push(wire);
    }
}

/// A customer with a large IPv6 network has four times the limit of an address, not one limit for each /64.
#[tokio::test]
async fn ipv6_networks_have_limits_of_their_own() {
    let upstream = Upstream::start();
    let gateway = gateway(upstream.address, "[limits]\nconnections_per_address = 2");
    let mut held = Vec::new();
    let mut arrive = async |client: &str| {
        let mut wire = Wire::connect(gateway.address()).await;
        let request = format!("PROXY TCP6 {client} 2001:db8::1 1 443\r\n{}", get("", ""));
        let is_served = wire.try_send(request).await.is_ok() && wire.try_read_until("hello").await.is_some();
        held.push(wire);
        is_served
    };
    for (client, is_served) in [
        ("2001:db8:1:0::1", true),
        ("2001:db8:1:0::2", true),
        ("2001:db8:1:0::3", false),
        ("2001:db8:1:1::1", true),
        ("2001:db8:1:2::1", true),
        // A /56 has twice the limit.
        ("2001:db8:1:3::1", false),
        ("2001:db8:1:100::1", true),
        ("2001:db8:1:200::1", true),
        ("2001:db8:1:300::1", true),
        ("2001:db8:1:400::1", true),
        // A /48 has four times the limit.
        ("2001:db8:1:500::1", false),
        ("2001:db8:2:500::1", true),
    ] {
        assert_eq!(arrive(client).await, is_served, "{client}");
    }
}
