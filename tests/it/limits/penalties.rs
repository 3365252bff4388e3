//! The penalty: an address that attacked the gateway cannot connect for some time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpSocket;

use super::GET;
use crate::support::frames::{self, DATA, END_HEADERS, GOAWAY, HEADERS, PING};
use crate::support::{Gateway, HonestClient, Upstream, Wire};

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
const REJECTED: &str = "penalized_connections_rejected_total";

/// Sends `begin` and more PING frames than one second allows, until the gateway closes the connection.
async fn flood(mut attacker: Wire, begin: &str) {
    attacker.send(begin).await;
    attacker.send(frames::connection_preface()).await;
    let _ = attacker.try_send(frames::frame(PING, 0, 0, &[7; 8]).repeat(2000)).await;
    let ended = frames::next(&mut attacker, &[GOAWAY]).await;
    assert_eq!(ended.payload[4..8], [0, 0, 0, 11], "ENHANCE_YOUR_CALM");
    attacker.read_to_end().await;
}

/// The gateway closes the connection so early that `connect` itself may fail.
async fn assert_penalized(address: SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::new(ATTACKER, 0)).expect("an address of this machine");
    if let Ok(stream) = socket.connect(address).await {
        Wire::of(stream).assert_closed().await;
    }
}

async fn assert_served(client: &mut Wire) {
    client.send(GET).await;
    assert_eq!(client.read_response().await.status, 200);
}

/// Otherwise the client could reconnect a thousand times before its connection is over.
#[tokio::test]
async fn the_penalty_begins_before_the_goaway_is_sent() {
    let upstream = Upstream::start();
    let request = frames::frame(HEADERS, END_HEADERS, 1, &frames::header_block("POST", "/"));
    for (begun, flood) in [
        (Vec::new(), frames::frame(PING, 0, 0, &[7; 8]).repeat(2000)),
        (request, frames::frame(DATA, 0, 1, &[]).repeat(101)),
    ] {
        let gateway = Gateway::public(upstream.address, "");
        let mut attacker = Wire::connect_from(ATTACKER, gateway.address()).await;
        attacker.send([frames::connection_preface(), begun, flood].concat()).await;
        let goaway = frames::next(&mut attacker, &[GOAWAY]).await;
        assert_eq!(goaway.payload[4..8], [0, 0, 0, 11], "ENHANCE_YOUR_CALM");
        assert_penalized(gateway.address()).await;
    }
}

#[tokio::test]
async fn only_the_address_of_a_flood_gets_a_penalty() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "");
    let mut neighbour = Wire::connect_from(ATTACKER, gateway.address()).await;
    assert_served(&mut neighbour).await;
    let mut honest = HonestClient::connect(&gateway).await;
    flood(Wire::connect_from(ATTACKER, gateway.address()).await, "").await;
    gateway.wait_for_metric("rejections_total{reason=\"http2_flood\"}", 1).await;
    let mut rejected = 0;
    honest
        .assert_served_during(async || {
            for address in [gateway.address(), gateway.tls_address()].repeat(5) {
                assert_penalized(address).await;
                rejected += 1;
            }
        })
        .await;
    gateway.wait_for_metric(REJECTED, rejected).await;
    HonestClient::connect(&gateway).await.assert_served().await;
    assert_served(&mut neighbour).await;
    gateway.advance(Duration::from_secs(10));
    assert_served(&mut Wire::connect_from(ATTACKER, gateway.address()).await).await;
    gateway.wait_for_metric(REJECTED, rejected).await;
}

#[tokio::test]
async fn a_penalty_duration_of_zero_disables_penalties() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\npenalty_duration = \"0s\"");
    for _ in 0..2 {
        flood(Wire::connect_from(ATTACKER, gateway.address()).await, "").await;
    }
    assert_served(&mut Wire::connect_from(ATTACKER, gateway.address()).await).await;
    gateway.wait_for_metric(REJECTED, 0).await;
}

/// A proxy brings the requests of many clients. One of them must not lock out the others.
#[tokio::test]
async fn a_trusted_proxy_gets_no_penalty() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[forwarding]\ntrusted = [\"127.0.0.66\"]");
    flood(Wire::connect_from(ATTACKER, gateway.address()).await, "").await;
    gateway.wait_for_metric("rejections_total{reason=\"http2_flood\"}", 1).await;
    assert_served(&mut Wire::connect_from(ATTACKER, gateway.address()).await).await;
    gateway.wait_for_metric(REJECTED, 0).await;
}

/// The balancer names the client of each connection. If it does not, the connection is its own and gets no penalty.
#[tokio::test]
async fn behind_a_balancer_the_client_gets_the_penalty() {
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "[forwarding]\ntrusted = [\"127.0.0.1\"]");
    let gateway = Gateway::from_text(text.replace("\ntls = ", "\nproxy_protocol = true\ntls = "));
    let (attacker, other) =
        ("PROXY TCP4 198.51.100.66 192.0.2.1 51234 443\r\n", "PROXY TCP4 198.51.100.7 192.0.2.1 51234 443\r\n");
    for header in ["PROXY UNKNOWN\r\n", attacker] {
        flood(Wire::connect(gateway.address()).await, header).await;
    }
    gateway.wait_for_metric("rejections_total{reason=\"http2_flood\"}", 2).await;
    let mut again = Wire::connect(gateway.address()).await;
    again.send(attacker).await;
    again.assert_closed().await;
    gateway.wait_for_metric(REJECTED, 1).await;
    for header in [other, "PROXY UNKNOWN\r\n"] {
        let mut client = Wire::connect(gateway.address()).await;
        client.send(header).await;
        assert_served(&mut client).await;
    }
    gateway.wait_for_metric(REJECTED, 1).await;
}

/// A ClientHello costs the client nothing, and the gateway a signature.
#[tokio::test]
async fn an_address_gets_a_penalty_for_failed_handshakes() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[limits]\nfailed_handshakes = 20");
    let attack = async || {
        for _ in 0..5 {
            let mut attacker = Wire::connect_from(ATTACKER, gateway.tls_address()).await;
            attacker.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            attacker.read_to_end().await;
        }
    };
    let mut honest = HonestClient::connect(&gateway).await;
    for failed in [5, 10, 15, 20] {
        attack().await;
        gateway.wait_for_metric("tls_handshakes_failed_total", failed).await;
    }
    gateway.wait_for_metric(REJECTED, 0).await;
    let mut last = Wire::connect_from(ATTACKER, gateway.tls_address()).await;
    last.send("no hello").await;
    last.read_to_end().await;
    gateway.wait_for_metric("tls_handshakes_failed_total", 21).await;
    let again = async || assert_penalized(gateway.tls_address()).await;
    honest.assert_served_during(again).await;
    HonestClient::connect(&gateway).await.assert_served().await;
}

/// Each malformed request closes its connection, so the next one costs the gateway another connection.
#[tokio::test]
async fn an_address_gets_a_penalty_for_malformed_requests() {
    let upstream = Upstream::start();
    let gateway =
        Gateway::public_single_worker(upstream.address, "[limits]\nmalformed_requests = 20\nrequest_header_count = 10");
    let send_malformed = async || {
        let mut attacker = Wire::connect_from(ATTACKER, gateway.address()).await;
        attacker.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(10))).await;
        assert_eq!(attacker.read_response().await.status, 431);
    };
    for _ in 0..20 {
        send_malformed().await;
    }
    assert_served(&mut Wire::connect_from(ATTACKER, gateway.address()).await).await;
    send_malformed().await;
    let again = async || assert_penalized(gateway.address()).await;
    HonestClient::connect(&gateway).await.assert_served_during(again).await;
    HonestClient::connect(&gateway).await.assert_served().await;
    assert_eq!(upstream.seen().len(), 1);
}

/// A gateway with a limit on bodies, and a route with a rate of one request an hour that is used up.
async fn with_used_up_rate(upstream: &Upstream, limits: &str) -> Gateway {
    let rate = "[[route.rate]]\nper = \"address\"\nrequests = 1\nwindow = \"1h\"";
    let route = format!("[[route]]\npath = \"/once/\"\npublic = true\n{rate}");
    let gateway =
        Gateway::public_single_worker(upstream.address, &format!("[limits]\nbody_size = \"64KiB\"\n{limits}\n{route}"));
    assert_status(&gateway, "GET /once/ HTTP/1.1", 200).await;
    gateway
}

/// Sends a request on a new connection.
async fn assert_status(gateway: &Gateway, head: &str, status: u16) {
    let mut attacker = Wire::connect_from(ATTACKER, gateway.address()).await;
    attacker.send(format!("{head}\r\nHost: a\r\n\r\n")).await;
    assert_eq!(attacker.read_response().await.status, status);
}

const TOO_LARGE: &str = "POST / HTTP/1.1\r\nContent-Length: 100000";

/// The body that each client has sent by then fills the buffers of the system, and still arrives after the connection
/// closed.
#[tokio::test]
async fn an_address_gets_a_penalty_for_rejected_bodies() {
    let upstream = Upstream::start();
    let gateway = with_used_up_rate(&upstream, "rejected_bodies = 20").await;
    for _ in 0..10 {
        assert_status(&gateway, TOO_LARGE, 413).await;
        assert_status(&gateway, "POST /once/ HTTP/1.1\r\nContent-Length: 1", 429).await;
    }
    assert_status(&gateway, TOO_LARGE, 413).await;
    let again = async || assert_penalized(gateway.address()).await;
    HonestClient::connect(&gateway).await.assert_served_during(again).await;
    HonestClient::connect(&gateway).await.assert_served().await;
}

#[tokio::test]
async fn rejected_requests_without_a_body_cause_no_penalty() {
    let upstream = Upstream::start();
    let gateway = with_used_up_rate(&upstream, "rejected_bodies = 10\nrequests_per_connection = 1").await;
    for _ in 0..20 {
        assert_status(&gateway, "GET /once/ HTTP/1.1", 429).await;
    }
    assert_status(&gateway, "GET / HTTP/1.1", 200).await;
    gateway.wait_for_metric(REJECTED, 0).await;
}

#[tokio::test]
async fn rejected_bodies_of_zero_disables_the_penalty() {
    let upstream = Upstream::start();
    let gateway = with_used_up_rate(&upstream, "rejected_bodies = 0").await;
    for _ in 0..30 {
        assert_status(&gateway, TOO_LARGE, 413).await;
    }
    assert_status(&gateway, "GET / HTTP/1.1", 200).await;
    gateway.wait_for_metric(REJECTED, 0).await;
}
