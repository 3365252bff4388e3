//! Slow uploads hold slots of the upstream for a long time. Other clients still get slots.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::GET;
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream, Wire};

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));
const UPLOAD: &str = "POST /swallow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nsome of it";

/// Of 16 slots, one address gets the 12 that are open to all and one of the reserve.
#[tokio::test]
async fn slow_uploads_of_one_address_leave_slots_for_others() {
    let upstream = Upstream::start();
    let gateway =
        Gateway::public_single_worker(upstream.address, "max_concurrent_requests = 16\nconnect_timeout = \"2s\"");
    let mut uploads = Vec::new();
    for _ in 0..40 {
        let mut upload = Wire::connect_from(ATTACKER, gateway.address()).await;
        upload.send(UPLOAD).await;
        uploads.push(upload);
    }
    eventually("the uploads have all slots that one address may have", || upstream.in_flight() == 13).await;
    let began = Instant::now();
    let mut honest = Wire::connect_from(HONEST, gateway.address()).await;
    for _ in 0..20 {
        honest.send(GET).await;
        assert_eq!(honest.read_response().await.status, 200);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "the requests took {:?}", began.elapsed());
    assert_eq!(upstream.in_flight(), 13, "no upload was ended for it");
}

/// With a part of the reserve that does not shrink, eight addresses would have two of its sixteen slots each.
#[tokio::test]
async fn slow_uploads_of_eight_addresses_leave_slots_for_others() {
    let upstream = Upstream::start();
    let gateway =
        Gateway::public_single_worker(upstream.address, "max_concurrent_requests = 64\nconnect_timeout = \"2s\"");
    let mut uploads = Vec::new();
    for (last, count) in (1..=8).zip([60].into_iter().chain([4; 7])) {
        for _ in 0..count {
            let mut upload = Wire::connect_from([127, 0, 1, last].into(), gateway.address()).await;
            upload.send(UPLOAD).await;
            uploads.push(upload);
        }
        eventually("an address has all slots that it may have", || upstream.in_flight() == 48 + usize::from(last))
            .await;
    }
    for last in 1..=8 {
        let mut honest = Wire::connect_from([127, 0, 2, last].into(), gateway.address()).await;
        honest.send(GET).await;
        assert_eq!(honest.read_response().await.status, 200, "a new address");
    }
}
