//! A stream ends with the certificate of its client.

use std::time::{Duration, Instant};

use bearward::types::clock::{Clock, SystemClock};
use rcgen::SerialNumber;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::support::certificates::{Authority, set_validity};
use crate::support::mutual_tls::MutualClient;
use crate::support::{Gateway, Upstream};

const DAY: u64 = 24 * 60 * 60;
const ROUTES: &str = "[[route]]\npath = \"/\"\npublic = true\nclient_certificate = \"required\"\n";

/// Opens a stream of events, and reads until it lasts: it is registered after a moment.
async fn events(client: &MutualClient) -> TlsStream<TcpStream> {
    let mut stream = client.connect().await.expect("a handshake");
    stream.write_all(b"GET /private/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("written");
    let (mut read, began) = (Vec::new(), Instant::now());
    while began.elapsed() < Duration::from_secs(2) {
        assert_ne!(stream.read_buf(&mut read).await.expect("it goes on"), 0, "{}", String::from_utf8_lossy(&read));
    }
    assert!(read.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&read));
    stream
}

/// Reads until the end of the stream.
async fn ends(mut stream: TlsStream<TcpStream>) {
    let mut read = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), async {
        while !read.ends_with(b"0\r\n\r\n") && stream.read_buf(&mut read).await.unwrap_or(0) > 0 {}
    });
    ended.await.expect("it ends");
}

#[tokio::test]
async fn a_stream_ends_when_the_certificate_expires_or_is_revoked() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let folder = std::sync::Arc::new(tempfile::TempDir::new().expect("a temporary folder"));
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("written");
    let tomorrow = SystemClock.now().as_secs() + DAY;
    write("clients.pem", authority.pem());
    write("clients.crl", authority.revocation_list(&[9], tomorrow));
    let keys = "client_certificate = \"optional\"\nclient_ca = \"clients.pem\"\nclient_crl = [\"clients.crl\"]";
    let gateway = Gateway::with_clients_in(folder.clone(), &upstream, keys, ROUTES);
    let client = |serial: u64, until: u64| {
        let shown = authority.client(|params| {
            params.serial_number = Some(SerialNumber::from(serial));
            set_validity(params, until - 2 * DAY, until);
        });
        MutualClient::new(&gateway, Some(shown.pair(&[])))
    };
    let (short, revoked, other) = (client(1, tomorrow - DAY / 2), client(2, tomorrow), client(3, tomorrow));
    let (short, revoked, mut other) = tokio::join!(events(&short), events(&revoked), events(&other));
    write("clients.crl", authority.revocation_list(&[9, 2], tomorrow));
    gateway.running().reload(gateway.config()).expect("it reloads");
    ends(revoked).await;
    gateway.advance(Duration::from_secs(DAY / 2 + 1));
    ends(short).await;
    let mut event = [0; 1];
    assert_eq!(other.read(&mut event).await.expect("it goes on"), 1);
    gateway.log_line(|line| line["ended"] == "certificate_revoked").await;
}
