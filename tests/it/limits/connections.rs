//! So many connections, and so many requests on each.

use http::Request;

use super::GET;
use crate::support::frames::{self, GOAWAY, HEADERS, RST_STREAM};
use crate::support::session::{self, Session, eventually};
use crate::support::{Gateway, Upstream, Wire};

#[tokio::test]
async fn connections_over_the_limit_are_closed_at_once_and_those_below_it_are_served() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[limits]\nconnections = 3");
    let mut guests = Vec::new();
    for _ in 0..3 {
        let mut guest = Wire::connect(gateway.address()).await;
        guest.say(GET).await;
        assert_eq!(guest.answer().await.status, 200);
        guests.push(guest);
    }
    Wire::connect(gateway.address()).await.hear_to_the_end().await;
    Wire::connect(gateway.tls_address()).await.hear_to_the_end().await;
    gateway.counts("connections_refused_total", 2).await;
    for guest in &mut guests {
        guest.say(GET).await;
        assert_eq!(guest.answer().await.status, 200, "guests are not disturbed");
    }
    drop(guests.pop());
    let mut came_again = 0;
    loop {
        let mut guest = Wire::connect(gateway.address()).await;
        // Until the gateway has seen the other leave, it closes.
        if guest.try_say(GET).await.is_ok()
            && guest.try_hear_until("\r\n\r\n").await.is_some_and(|head| head.starts_with("HTTP/1.1 200"))
        {
            break;
        }
        came_again += 1;
        assert!(came_again < 1000, "a place is never free again");
    }
}

/// All of `127.0.0.0/8` is this machine, so an attacker and an honest client can come from two addresses.
#[tokio::test]
async fn an_address_that_opens_too_many_connections_is_refused_and_another_is_served() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[limits]\nconnections_per_address = 3");
    let (attacker, honest) = ([127, 0, 0, 66].into(), [127, 0, 0, 7].into());
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut wire = Wire::connect_from(attacker, gateway.address()).await;
        wire.say(GET).await;
        assert_eq!(wire.answer().await.status, 200);
        held.push(wire);
    }
    for address in [gateway.address(), gateway.tls_address()] {
        for _ in 0..20 {
            Wire::connect_from(attacker, address).await.is_closed().await;
        }
    }
    gateway.counts("address_connections_refused_total", 40).await;
    let mut neighbour = Wire::connect_from(honest, gateway.address()).await;
    neighbour.say(GET).await;
    assert_eq!(neighbour.answer().await.status, 200);
    // A place that is free again is found again.
    drop(held.pop());
    let mut tries = 0;
    loop {
        let mut wire = Wire::connect_from(attacker, gateway.address()).await;
        if wire.try_say(GET).await.is_ok() && wire.try_hear_until("\r\n\r\n").await.is_some() {
            break;
        }
        tries += 1;
        assert!(tries < 1000, "a place is never free again");
    }
}

/// It brings everybody's connections.
#[tokio::test]
async fn a_trusted_proxy_may_open_any_number_of_connections() {
    let upstream = Upstream::start();
    let more = "[forwarding]\ntrusted = [\"127.0.0.1\"]\n[limits]\nconnections_per_address = 2";
    let gateway = Gateway::open(upstream.address, more);
    let mut guests = Vec::new();
    for _ in 0..6 {
        let mut guest = Wire::connect(gateway.address()).await;
        guest.say(GET).await;
        assert_eq!(guest.answer().await.status, 200);
        guests.push(guest);
    }
}

#[tokio::test]
async fn streams_over_the_limit_are_refused_and_those_below_it_are_served() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[limits]\nstreams = 2");
    let said = [frames::hello(), frames::get(1, "/hang"), frames::get(3, "/drip"), frames::get(5, "/")];
    let mut client = frames::connect(gateway.address(), &said).await;
    let refused = frames::next(&mut client, &[RST_STREAM, GOAWAY]).await;
    assert_eq!((refused.kind, refused.stream, refused.payload), (RST_STREAM, 5, vec![0, 0, 0, 7]), "REFUSED_STREAM");
    assert_eq!(frames::next(&mut client, &[HEADERS]).await.stream, 3);
}

/// Requests that are cancelled as fast as they are sent (CVE-2023-44487) end their connection, not the gateway.
#[tokio::test]
async fn rapid_resets_end_their_connection_and_nobody_elses() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let mut neighbour = Session::http2(gateway.address()).await;
    let reset = |stream| [frames::get(stream, "/hang"), frames::frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat();
    let flood: Vec<_> = (0..5000).map(|number| reset(2 * number + 1)).collect();
    let mut attacker = frames::connect(gateway.address(), &[frames::hello()]).await;
    let _ = attacker.try_say(flood.concat()).await;
    let ended = frames::next(&mut attacker, &[GOAWAY]).await;
    assert_eq!(ended.payload[4..8], [0, 0, 0, 11], "ENHANCE_YOUR_CALM");
    let answer = neighbour.send(Request::get("/").body(session::empty()).expect("a request")).await;
    assert_eq!(answer.status(), 200);
    eventually("what was asked of the backend is cancelled", || upstream.in_flight() == 0).await;
}

#[tokio::test]
async fn a_head_over_the_limit_is_refused_over_http2_as_well() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[limits]\nhead_size = \"8KiB\"");
    let [_, client, ..] = gateway.clients();
    let answer = client.header("x-large", &"v".repeat(9000)).get("/").await;
    assert_eq!(answer.status, 431);
    assert!(upstream.seen().is_empty());
}
