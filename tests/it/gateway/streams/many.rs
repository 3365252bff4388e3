//! Many streams that one revocation ends.

use super::*;

#[tokio::test]
async fn a_revocation_ends_500_streams_within_a_second() {
    const STREAMS: usize = 500;
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let mut sockets = Vec::new();
    for _ in 0..STREAMS {
        sockets.push(open(&gateway, &alice.access).await);
    }
    let mut other = open(&gateway, &bob.access).await;
    gateway.wait_for_metric("streams_opened_total", STREAMS as u64 + 1).await;
    assert_eq!(gateway.admin_client().delete("/admin/v1/subjects/alice/tokens").await.status, 200);
    let started = Instant::now();
    let all = sockets.iter_mut().map(|socket| async {
        let message = socket.next().await;
        assert!(message.is_some_and(|message| message.is_ok_and(|message| message.is_close())));
    });
    futures_util::future::join_all(all).await;
    assert!(started.elapsed() < SECOND, "took {:?}", started.elapsed());
    assert_open(&mut other).await;
}
