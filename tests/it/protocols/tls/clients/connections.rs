//! A connection ends with its certificate.

use std::time::Duration;

use bearward::types::clock::{Clock, SystemClock};
use rcgen::SerialNumber;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::support::certificates::{Authority, set_validity};
use crate::support::mutual_tls::MutualClient;
use crate::support::{Gateway, Upstream};

const DAY: u64 = 24 * 60 * 60;
const PUBLIC: &str = "[[route]]\npath = \"/\"\npublic = true\n";

/// The head and body of the next response. Empty if the connection has closed.
async fn next(stream: &mut TlsStream<TcpStream>) -> String {
    let mut response = Vec::new();
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    while sent.is_ok() && !response.ends_with(b"hello") && !response.ends_with(b"}") {
        match stream.read_u8().await {
            Ok(byte) => response.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(response).expect("text")
}

fn gateway_with_list(upstream: &Upstream, authority: &Authority, revoked: &[u64], ends: u64) -> Gateway {
    Gateway::with_revocation_list(upstream, authority, &authority.revocation_list(revoked, ends), PUBLIC)
}

fn assert_ended(response: &str) {
    assert!(response.starts_with("HTTP/1.1 403 "), "{response}");
    assert!(response.to_ascii_lowercase().contains("connection: close"), "{response}");
}

#[tokio::test]
async fn a_request_after_the_end_of_the_certificate_is_rejected() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"required\"", PUBLIC);
    let until = gateway.now_secs() + 3_600;
    let shown = authority.client(|params| set_validity(params, until - DAY, until));
    let mut stream = MutualClient::new(&gateway, Some(shown.pair(&[]))).connect().await.expect("a handshake");
    assert!(next(&mut stream).await.starts_with("HTTP/1.1 200 "));
    gateway.advance(Duration::from_secs(3_600));
    assert!(next(&mut stream).await.starts_with("HTTP/1.1 200 "), "the last second");
    gateway.advance(Duration::from_secs(1));
    assert_ended(&next(&mut stream).await);
    assert_eq!(next(&mut stream).await, "", "the connection is closed");
    gateway
        .log_line(|line| line["reason"] == "certificate_revoked" && line["detail"] == "the certificate has expired")
        .await;
    assert_eq!(upstream.seen().len(), 2);
}

/// The connection is idle: no request notices the end.
#[tokio::test]
async fn an_idle_connection_closes_with_its_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"required\"", PUBLIC);
    let until = SystemClock.now().as_secs() + 3;
    let short = authority.client(|params| set_validity(params, until - DAY, until));
    let long = authority.client(|_| {});
    let connect = async |shown| MutualClient::new(&gateway, Some(shown)).connect().await.expect("a handshake");
    let (mut short, mut long) = (connect(short.pair(&[])).await, connect(long.pair(&[])).await);
    for stream in [&mut short, &mut long] {
        assert!(next(stream).await.starts_with("HTTP/1.1 200 "));
    }
    // Until the gateway closes it.
    assert_eq!(short.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!(SystemClock.now().as_secs() >= until);
    assert!(next(&mut long).await.starts_with("HTTP/1.1 200 "), "the other one goes on");
}

#[tokio::test]
async fn a_revocation_ends_connections_that_are_open() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let tomorrow = SystemClock.now().as_secs() + DAY;
    let gateway = gateway_with_list(&upstream, &authority, &[3], tomorrow);
    let numbered =
        |serial: u64| authority.client(move |params| params.serial_number = Some(SerialNumber::from(serial)));
    let connect = async |shown| MutualClient::new(&gateway, shown).connect().await.expect("a handshake");
    let (mut revoked, mut other) =
        (connect(Some(numbered(1).pair(&[]))).await, connect(Some(numbered(2).pair(&[]))).await);
    let mut without = connect(None).await;
    for stream in [&mut revoked, &mut other, &mut without] {
        assert!(next(stream).await.starts_with("HTTP/1.1 200 "));
    }
    std::fs::write(gateway.path().join("clients.crl"), authority.revocation_list(&[3, 1], tomorrow)).expect("written");
    gateway.running().reload(gateway.config()).expect("it reloads");
    assert_ended(&next(&mut revoked).await);
    for stream in [&mut other, &mut without] {
        assert!(next(stream).await.starts_with("HTTP/1.1 200 "));
    }
}

#[tokio::test]
async fn no_certificate_is_good_after_the_end_of_the_list() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let ends = SystemClock.now().as_secs() + DAY;
    let gateway = gateway_with_list(&upstream, &authority, &[], ends);
    let shown = authority.client(|params| params.serial_number = Some(SerialNumber::from(1)));
    let mut stream = MutualClient::new(&gateway, Some(shown.pair(&[]))).connect().await.expect("a handshake");
    assert!(next(&mut stream).await.starts_with("HTTP/1.1 200 "));
    let labels =
        format!("listener=\"{}\",crl=\"{}\"", gateway.tls_address(), gateway.path().join("clients.crl").display());
    let metric = format!("bearward_client_crl_next_update_timestamp_seconds{{{labels}}} ");
    assert_eq!(gateway.metric(&metric).await, ends as f64);
    gateway.advance(Duration::from_secs(DAY));
    assert_ended(&next(&mut stream).await);
}

/// An invalid file at a reload leaves the authority and the list active.
#[tokio::test]
async fn a_file_that_cannot_be_read_changes_nothing() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = gateway_with_list(&upstream, &authority, &[2], SystemClock.now().as_secs() + DAY);
    let config = gateway.config();
    let numbered =
        |serial: u64| authority.client(move |params| params.serial_number = Some(SerialNumber::from(serial)));
    for (file, content) in [("clients.crl", ""), ("clients.pem", ""), ("clients.crl", "-----BEGIN X509 CRL-----\n")] {
        let path = gateway.path().join(file);
        let before = std::fs::read(&path).expect("a file");
        std::fs::write(&path, content).expect("written");
        gateway.running().reload(config.clone()).expect_err(content);
        std::fs::write(&path, before).expect("written");
        for (serial, expected) in [(1, 200), (2, 0)] {
            let client = MutualClient::new(&gateway, Some(numbered(serial).pair(&[])));
            assert_eq!(client.status("/", "").await, expected, "{file} {content}");
        }
    }
}

/// The alert about the end of a list is one about an authority without a list, too.
#[tokio::test]
async fn the_metric_tells_the_keys_of_an_authority_apart() {
    let (old, new, upstream) = (Authority::new(), Authority::new(), Upstream::start());
    let now = SystemClock.now().as_secs();
    let gateway = gateway_with_list(&upstream, &old, &[], now + DAY);
    let write = |name: &str, text: &str| std::fs::write(gateway.path().join(name), text).expect("written");
    write("clients.pem", &format!("{}{}", old.pem(), new.pem()));
    let ends = async || {
        gateway.running().reload(gateway.config()).expect("it reloads");
        let page = gateway.admin_client().get("/metrics").await.text();
        let lines = page.lines().filter(|line| line.starts_with("bearward_client_crl_next_update"));
        let values = lines.map(|line| line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or(1.0));
        values.collect::<Vec<f64>>()
    };
    assert_eq!(ends().await, [(now + DAY) as f64, 0.0]);
    let both = |end: u64| format!("{}{}", old.revocation_list(&[], now + DAY), new.revocation_list(&[], end));
    write("clients.crl", &both(now + 60));
    assert_eq!(ends().await, [(now + 60) as f64]);
    write("clients.crl", &both(now + 2 * DAY));
    assert_eq!(ends().await, [(now + DAY) as f64]);
}
