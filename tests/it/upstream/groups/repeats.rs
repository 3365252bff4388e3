//! What is sent a second time, and how often at most.

use http::Method;

use super::{addresses, counts, in_front_of, metric};
use crate::support::{Scripted, Upstream};

#[tokio::test]
async fn a_get_that_broke_off_goes_to_another_server_and_a_post_does_not() {
    for protocol in ["http1", "h2"] {
        let start = if protocol == "h2" { Upstream::start_http2 } else { Upstream::start };
        let backends = [start(), start()];
        let more = format!("protocol = \"{protocol}\"\n[upstream.ejection]\nconsecutive_failures = 0");
        let gateway = in_front_of(&addresses(&backends), &more);
        // Both break off: once more, and not again and again.
        gateway.client().get("/close").await.refused(502, "bad_gateway");
        assert_eq!(counts(&backends), [1, 1], "{protocol}");
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let before: usize = counts(&backends).iter().sum();
            gateway.client().send(method.clone(), "/close", Default::default()).await.refused(502, "bad_gateway");
            assert_eq!(counts(&backends).iter().sum::<usize>(), before + 1, "{protocol} {method}");
        }
        let before: usize = counts(&backends).iter().sum();
        gateway.client().send(Method::GET, "/close", "with a body".into()).await.refused(502, "bad_gateway");
        assert_eq!(counts(&backends).iter().sum::<usize>(), before + 1, "{protocol}: a body is gone once it is sent");
    }
}

#[tokio::test]
async fn a_group_that_dies_is_not_finished_off_by_repeats() {
    let backends = [Upstream::start(), Upstream::start()];
    let servers = addresses(&backends);
    for (retries, most) in [(20, 10 + 12), (100, 10 + 60), (0, 0)] {
        let before: usize = counts(&backends).iter().sum();
        let gateway = in_front_of(
            &servers,
            &format!("retry_budget_percent = {retries}\n[upstream.ejection]\nconsecutive_failures = 0"),
        );
        for _ in 0..60 {
            gateway.client().get("/close").await.refused(502, "bad_gateway");
        }
        let repeated = counts(&backends).iter().sum::<usize>() - before - 60;
        assert!(repeated <= most && repeated >= most.min(60) * 9 / 10, "{repeated} of 60 with {retries} %");
        let counted =
            metric(&gateway, "retries_total", servers[0]).await + metric(&gateway, "retries_total", servers[1]).await;
        assert_eq!(counted, repeated as f64);
    }
}

/// What was never sent can be sent to anybody, and is no repeat.
#[tokio::test]
async fn a_post_for_which_there_was_no_connection_goes_to_another_server_whatever_the_budget() {
    let nobody =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let upstream = Upstream::start();
    let gateway = in_front_of(
        &[nobody, upstream.address],
        "retry_budget_percent = 0\n[upstream.ejection]\nconsecutive_failures = 0",
    );
    for _ in 0..40 {
        assert_eq!(gateway.client().send(Method::POST, "/", "once".into()).await.text(), "once");
    }
    assert_eq!(upstream.seen().len(), 40);
}

/// Half a head is an answer that began: nothing says that the next one would be better, but nothing is done twice either.
#[tokio::test]
async fn what_is_not_http_is_not_asked_for_again() {
    let garbage = Scripted::answering("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    let other = Upstream::start();
    let gateway = in_front_of(&[garbage.address, other.address], "");
    let mut refused = 0;
    for _ in 0..6 {
        refused += usize::from(gateway.client().get("/").await.status == 502);
    }
    assert_eq!(refused, 3, "until it is ejected");
    assert_eq!(metric(&gateway, "share", garbage.address).await, 0.0);
    assert_eq!(other.seen().len(), 3);
}
