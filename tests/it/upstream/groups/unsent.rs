//! Requests that were certainly not sent go to another server, whatever their method.

use std::io::Write;
use std::sync::Arc;

use http::Method;
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::certificates::Authority;
use crate::support::frames::{self, GOAWAY, SETTINGS};
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

/// Completes its side of a TLS handshake, sends `data` and closes the connection, all in one write. The gateway finds
/// the end of the connection before it has sent a request on it.
async fn close_with_the_handshake(mut wire: Wire, config: Arc<ServerConfig>, data: &[u8]) {
    let mut tls = ServerConnection::new(config).expect("a server");
    while !tls.wants_write() {
        let mut received = [0; 4096];
        let count = wire.stream.read(&mut received).await.expect("a ClientHello");
        assert!(count > 0, "closed before a ClientHello");
        tls.read_tls(&mut &received[..count]).expect("read");
        tls.process_new_packets().expect("a handshake");
    }
    tls.writer().write_all(data).expect("buffered");
    tls.send_close_notify();
    let mut sent = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut sent).expect("buffered");
    }
    wire.send(sent).await;
    wire.stream.shutdown().await.expect("closed");
    // Until the gateway has closed it too: a reset would overtake the data.
    let _ = wire.try_read_until("never").await;
}

/// A server that closes each connection as soon as it is open, and a good one. Both are TLS servers.
fn servers(protocol: &str, closing: &Authority, proper: &Gateway) -> (ScriptedBackend, String) {
    let mut config = (**closing.server("localhost").config()).clone();
    config.send_half_rtt_data = true;
    // A HTTP/2 server that goes away has processed no stream.
    let goodbye = [frames::frame(SETTINGS, 0, 0, &[]), frames::frame(GOAWAY, 0, 0, &[0; 8])].concat();
    let (alpn, data) = if protocol == "h2" { ("h2", goodbye) } else { ("http/1.1", Vec::new()) };
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let config = Arc::new(config);
    let backend = ScriptedBackend::start(move |wire, _| {
        let (config, data) = (config.clone(), data.clone());
        async move { close_with_the_handshake(wire, config, &data).await }
    });
    let ca = proper.path().join("both.pem");
    let certificates = std::fs::read_to_string(proper.certificate()).expect("a certificate") + &closing.pem();
    std::fs::write(&ca, certificates).expect("written");
    let ports = [backend.address, proper.tls_address()].map(|address| address.port());
    let options = format!(
        "protocol = \"{protocol}\"\nca_file = \"{}\"\nretry_budget_percent = 0\n\
         [upstream.ejection]\nconsecutive_failures = 0\n[[route]]\npath = \"/\"\npublic = true\n",
        ca.display()
    );
    let urls = ports.map(|port| format!("https://localhost:{port}"));
    let text = Gateway::config_text("SERVERS", &options).replace("http://SERVERS", &urls.join("\", \""));
    (backend, text.replace("workers = 2", "workers = 1"))
}

/// The value of each line with this metric, together.
async fn total(gateway: &Gateway, name: &str) -> f64 {
    let page = gateway.admin_client().get("/metrics").await.text();
    let values = page.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next());
    values.map(|value| value.parse::<f64>().expect("a number")).sum()
}

#[tokio::test]
async fn a_request_unsent_on_a_new_connection_goes_elsewhere() {
    for protocol in ["http1", "h2"] {
        let upstream = Upstream::start();
        let proper = Gateway::public(upstream.address, "");
        let (closing, text) = servers(protocol, &Authority::new(), &proper);
        let gateway = Gateway::from_text(text);
        for number in 0..20 {
            let body = format!("number {number}");
            let response = gateway.client().send(Method::POST, "/", body.clone().into()).await;
            assert_eq!((response.status.as_u16(), response.text()), (200, body), "{protocol}");
        }
        assert_eq!(upstream.seen().len(), 20, "{protocol}: none was sent twice");
        assert!(closing.connections() >= 5, "{protocol}: {} connections closed", closing.connections());
        let retries = total(&gateway, "bearward_upstream_retries_total").await;
        assert_eq!(retries, total(&gateway, "bearward_upstream_server_retries_total").await, "{protocol}");
        assert_eq!(retries, closing.connections() as f64, "{protocol}: each failure was one retry");
    }
}

/// A backend that closes an idle connection makes the gateway send the next request again. Both metrics count that.
#[tokio::test]
async fn both_counters_of_retries_agree() {
    for protocol in ["http1", "h2"] {
        let start = if protocol == "h2" { Upstream::start_http2 } else { Upstream::start };
        let backends = [start(), start()];
        let gateway = super::in_front_of(&super::addresses(&backends), &format!("protocol = \"{protocol}\""));
        for _ in 0..4 {
            gateway.client().get("/close").await;
        }
        let retries = total(&gateway, "bearward_upstream_retries_total").await;
        assert!(retries > 0.0);
        assert_eq!(retries, total(&gateway, "bearward_upstream_server_retries_total").await, "{protocol}");
    }
}
