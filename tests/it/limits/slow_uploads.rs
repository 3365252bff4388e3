//! Uploads that come slowly have their places at the backend for long. Others find room all the same.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::GET;
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream, Wire};

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));
const UPLOAD: &str = "POST /swallow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nsome of it";

/// Of 16 places, an address has the 12 that are for anybody and one of those that are kept back.
#[tokio::test]
async fn who_uploads_slowly_over_many_connections_leaves_room_for_others() {
    let upstream = Upstream::start();
    let gateway =
        Gateway::public_single_worker(upstream.address, "max_concurrent_requests = 16\nconnect_timeout = \"2s\"");
    let mut uploads = Vec::new();
    for _ in 0..40 {
        let mut upload = Wire::connect_from(ATTACKER, gateway.address()).await;
        upload.send(UPLOAD).await;
        uploads.push(upload);
    }
    eventually("it has all that it may have", || upstream.in_flight() == 13).await;
    let began = Instant::now();
    let mut honest = Wire::connect_from(HONEST, gateway.address()).await;
    for _ in 0..20 {
        honest.send(GET).await;
        assert_eq!(honest.read_response().await.status, 200);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "nobody waited: {:?}", began.elapsed());
    assert_eq!(upstream.in_flight(), 13, "and nobody was sent away for it");
}
