//! An address that has many connections sends a first request on all of them at once. Other clients do not wait for
//! these.

use std::net::IpAddr;

use super::GET;
use crate::support::{Gateway, Upstream, Wire};

const CROWD: usize = 400;

#[tokio::test]
async fn a_crowd_of_new_connections_delays_no_other_client() {
    let upstream = Upstream::start();
    let more = "max_concurrent_requests = 1000\nreserve_percent = 0";
    let gateway = Gateway::public_single_worker(upstream.address, more);
    let mut honest = Wire::connect_from(IpAddr::from([127, 0, 2, 1]), gateway.address()).await;
    honest.send(GET).await;
    honest.read_until("hello").await;
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(Wire::connect_from(IpAddr::from([127, 0, 1, 1]), gateway.address()).await);
    }
    gateway.wait_for_metric("connections_opened_total", 1 + CROWD as u64).await;
    for wire in &crowd {
        assert_eq!(wire.stream.try_write(GET.as_bytes()).expect("there is room"), GET.len());
    }
    honest.send(GET).await;
    honest.read_until("hello").await;
    let before = upstream.seen().len() - 2;
    assert!(before < CROWD / 2, "{before} of {CROWD} requests came before that of another client");
    for wire in &mut crowd {
        wire.read_until("hello").await;
    }
}
