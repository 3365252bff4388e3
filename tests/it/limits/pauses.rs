//! Whoever flooded the gateway comes again, and is not let in for a while.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpSocket;

use super::GET;
use crate::support::frames::{self, DATA, END_HEADERS, GOAWAY, HEADERS, PING};
use crate::support::{Gateway, HonestClient, Upstream, Wire};

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
const REFUSED: &str = "penalized_connections_rejected_total";

/// After `opening`, more than a second's worth of PING, until the gateway ends it.
async fn flood(mut attacker: Wire, opening: &str) {
    attacker.send(opening).await;
    attacker.send(frames::connection_preface()).await;
    let _ = attacker.try_send(frames::frame(PING, 0, 0, &[7; 8]).repeat(2000)).await;
    let ended = frames::next(&mut attacker, &[GOAWAY]).await;
    assert_eq!(ended.payload[4..8], [0, 0, 0, 11], "ENHANCE_YOUR_CALM");
    attacker.read_to_end().await;
}

/// It is so early that connecting itself may fail.
async fn is_refused(address: SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::new(ATTACKER, 0)).expect("an address of this machine");
    if let Ok(stream) = socket.connect(address).await {
        Wire::of(stream).assert_closed().await;
    }
}

async fn is_served(client: &mut Wire) {
    client.send(GET).await;
    assert_eq!(client.read_response().await.status, 200);
}

/// It could come back a thousand times before the connection is over.
#[tokio::test]
async fn the_pause_has_begun_when_the_flooder_is_told() {
    let upstream = Upstream::start();
    let request = frames::frame(HEADERS, END_HEADERS, 1, &frames::header_block("POST", "/"));
    for (begun, flood) in [
        (Vec::new(), frames::frame(PING, 0, 0, &[7; 8]).repeat(2000)),
        (request, frames::frame(DATA, 0, 1, &[]).repeat(101)),
    ] {
        let gateway = Gateway::public(upstream.address, "");
        let mut attacker = Wire::connect_from(ATTACKER, gateway.address()).await;
        attacker.send([frames::connection_preface(), begun, flood].concat()).await;
        let told = frames::next(&mut attacker, &[GOAWAY]).await;
        assert_eq!(told.payload[4..8], [0, 0, 0, 11], "ENHANCE_YOUR_CALM");
        is_refused(gateway.address()).await;
    }
}

#[tokio::test]
async fn an_address_that_floods_is_not_let_in_for_a_while_and_others_are() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "");
    let mut neighbour = Wire::connect_from(ATTACKER, gateway.address()).await;
    is_served(&mut neighbour).await;
    let mut honest = HonestClient::connect(&gateway).await;
    flood(Wire::connect_from(ATTACKER, gateway.address()).await, "").await;
    gateway.wait_for_metric("rejections_total{reason=\"http2_flood\"}", 1).await;
    let mut refused = 0;
    honest
        .assert_served_during(async || {
            for address in [gateway.address(), gateway.tls_address()].repeat(5) {
                is_refused(address).await;
                refused += 1;
            }
        })
        .await;
    gateway.wait_for_metric(REFUSED, refused).await;
    HonestClient::connect(&gateway).await.assert_served().await;
    is_served(&mut neighbour).await;
    gateway.advance(Duration::from_secs(10));
    is_served(&mut Wire::connect_from(ATTACKER, gateway.address()).await).await;
    gateway.wait_for_metric(REFUSED, refused).await;
}

#[tokio::test]
async fn nobody_is_paused_where_that_is_turned_off() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\npenalty_duration = \"0s\"");
    for _ in 0..2 {
        flood(Wire::connect_from(ATTACKER, gateway.address()).await, "").await;
    }
    is_served(&mut Wire::connect_from(ATTACKER, gateway.address()).await).await;
    gateway.wait_for_metric(REFUSED, 0).await;
}

/// It brings the requests of many, and one of them must not keep it from that.
#[tokio::test]
async fn a_trusted_proxy_is_never_paused() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[forwarding]\ntrusted = [\"127.0.0.66\"]");
    flood(Wire::connect_from(ATTACKER, gateway.address()).await, "").await;
    gateway.wait_for_metric("rejections_total{reason=\"http2_flood\"}", 1).await;
    is_served(&mut Wire::connect_from(ATTACKER, gateway.address()).await).await;
    gateway.wait_for_metric(REFUSED, 0).await;
}

/// A balancer says whose each connection is. Where it does not, it is its own.
#[tokio::test]
async fn behind_a_balancer_the_client_is_paused() {
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "[forwarding]\ntrusted = [\"127.0.0.1\"]");
    let gateway = Gateway::from_text(text.replace("\ntls = ", "\nproxy_protocol = true\ntls = "));
    let (attacker, other) =
        ("PROXY TCP4 198.51.100.66 192.0.2.1 51234 443\r\n", "PROXY TCP4 198.51.100.7 192.0.2.1 51234 443\r\n");
    for opening in ["PROXY UNKNOWN\r\n", attacker] {
        flood(Wire::connect(gateway.address()).await, opening).await;
    }
    gateway.wait_for_metric("rejections_total{reason=\"http2_flood\"}", 2).await;
    let mut again = Wire::connect(gateway.address()).await;
    again.send(attacker).await;
    again.assert_closed().await;
    gateway.wait_for_metric(REFUSED, 1).await;
    for opening in [other, "PROXY UNKNOWN\r\n"] {
        let mut client = Wire::connect(gateway.address()).await;
        client.send(opening).await;
        is_served(&mut client).await;
    }
    gateway.wait_for_metric(REFUSED, 1).await;
}

/// A ClientHello costs its sender nothing, and the gateway a signature.
#[tokio::test]
async fn an_address_that_never_ends_its_handshakes_is_paused() {
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
    gateway.wait_for_metric(REFUSED, 0).await;
    let mut last = Wire::connect_from(ATTACKER, gateway.tls_address()).await;
    last.send("no hello").await;
    last.read_to_end().await;
    gateway.wait_for_metric("tls_handshakes_failed_total", 21).await;
    let again = async || is_refused(gateway.tls_address()).await;
    honest.assert_served_during(again).await;
    HonestClient::connect(&gateway).await.assert_served().await;
}

/// Each ends its connection, and the next one costs the gateway another.
#[tokio::test]
async fn an_address_that_asks_unreadably_again_and_again_is_paused() {
    let upstream = Upstream::start();
    let gateway =
        Gateway::public_single_worker(upstream.address, "[limits]\nmalformed_requests = 20\nrequest_header_count = 10");
    let ask = async || {
        let mut attacker = Wire::connect_from(ATTACKER, gateway.address()).await;
        attacker.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(10))).await;
        assert_eq!(attacker.read_response().await.status, 431);
    };
    for _ in 0..20 {
        ask().await;
    }
    is_served(&mut Wire::connect_from(ATTACKER, gateway.address()).await).await;
    ask().await;
    let again = async || is_refused(gateway.address()).await;
    HonestClient::connect(&gateway).await.assert_served_during(again).await;
    HonestClient::connect(&gateway).await.assert_served().await;
    assert_eq!(upstream.seen().len(), 1);
}

/// A route whose one request in an hour is used up, and what is too large for any.
async fn once(upstream: &Upstream, limits: &str) -> Gateway {
    let rate = "[[route.rate]]\nper = \"address\"\nrequests = 1\nwindow = \"1h\"";
    let route = format!("[[route]]\npath = \"/once/\"\npublic = true\n{rate}");
    let gateway =
        Gateway::public_single_worker(upstream.address, &format!("[limits]\nbody_size = \"64KiB\"\n{limits}\n{route}"));
    is_answered(&gateway, "GET /once/ HTTP/1.1", 200).await;
    gateway
}

/// On a connection of its own.
async fn is_answered(gateway: &Gateway, head: &str, status: u16) {
    let mut attacker = Wire::connect_from(ATTACKER, gateway.address()).await;
    attacker.send(format!("{head}\r\nHost: a\r\n\r\n")).await;
    assert_eq!(attacker.read_response().await.status, status);
}

const TOO_LARGE: &str = "POST / HTTP/1.1\r\nContent-Length: 100000";

/// What each has sent by then fills the system's buffers, and is on its way still when the connection has ended.
#[tokio::test]
async fn an_address_whose_bodies_are_refused_again_and_again_is_paused() {
    let upstream = Upstream::start();
    let gateway = once(&upstream, "rejected_bodies = 20").await;
    for _ in 0..10 {
        is_answered(&gateway, TOO_LARGE, 413).await;
        is_answered(&gateway, "POST /once/ HTTP/1.1\r\nContent-Length: 1", 429).await;
    }
    is_answered(&gateway, TOO_LARGE, 413).await;
    let again = async || is_refused(gateway.address()).await;
    HonestClient::connect(&gateway).await.assert_served_during(again).await;
    HonestClient::connect(&gateway).await.assert_served().await;
}

#[tokio::test]
async fn whoever_sends_no_body_is_not_paused_for_one() {
    let upstream = Upstream::start();
    let gateway = once(&upstream, "rejected_bodies = 10\nrequests_per_connection = 1").await;
    for _ in 0..20 {
        is_answered(&gateway, "GET /once/ HTTP/1.1", 429).await;
    }
    is_answered(&gateway, "GET / HTTP/1.1", 200).await;
    gateway.wait_for_metric(REFUSED, 0).await;
}

#[tokio::test]
async fn any_number_of_bodies_may_be_refused_where_the_operator_says_so() {
    let upstream = Upstream::start();
    let gateway = once(&upstream, "rejected_bodies = 0").await;
    for _ in 0..30 {
        is_answered(&gateway, TOO_LARGE, 413).await;
    }
    is_answered(&gateway, "GET / HTTP/1.1", 200).await;
    gateway.wait_for_metric(REFUSED, 0).await;
}
