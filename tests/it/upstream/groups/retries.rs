//! Retries: which requests the gateway sends again, and how often at most.

use http::Method;

use super::{addresses, counts, in_front_of, metric};
use crate::support::ports::ClosedPort;
use crate::support::{ScriptedBackend, Upstream, frames};

#[tokio::test]
async fn a_failed_get_is_retried_at_another_server_and_a_post_is_not() {
    for protocol in ["http1", "h2"] {
        let start = if protocol == "h2" { Upstream::start_http2 } else { Upstream::start };
        let backends = [start(), start()];
        let more = format!("protocol = \"{protocol}\"\n[upstream.ejection]\nconsecutive_failures = 0");
        let gateway = in_front_of(&addresses(&backends), &more);
        // Both servers fail, so the gateway retries only once.
        gateway.client().get("/close").await.assert_rejected(502, "bad_gateway");
        assert_eq!(counts(&backends), [1, 1], "{protocol}");
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let before: usize = counts(&backends).iter().sum();
            gateway
                .client()
                .send(method.clone(), "/close", Default::default())
                .await
                .assert_rejected(502, "bad_gateway");
            assert_eq!(counts(&backends).iter().sum::<usize>(), before + 1, "{protocol} {method}");
        }
        let before: usize = counts(&backends).iter().sum();
        gateway.client().send(Method::GET, "/close", "with a body".into()).await.assert_rejected(502, "bad_gateway");
        assert_eq!(
            counts(&backends).iter().sum::<usize>(),
            before + 1,
            "{protocol}: the gateway cannot send a body again"
        );
    }
}

#[tokio::test]
async fn the_retry_budget_limits_the_load_on_a_failing_group() {
    let backends = [Upstream::start(), Upstream::start()];
    let servers = addresses(&backends);
    for (retries, maximum) in [(20, 10 + 12), (100, 10 + 60), (0, 0)] {
        let before: usize = counts(&backends).iter().sum();
        let gateway = in_front_of(
            &servers,
            &format!("retry_budget_percent = {retries}\n[upstream.ejection]\nconsecutive_failures = 0"),
        );
        for _ in 0..60 {
            gateway.client().get("/close").await.assert_rejected(502, "bad_gateway");
        }
        let repeated = counts(&backends).iter().sum::<usize>() - before - 60;
        assert!(repeated <= maximum && repeated >= maximum.min(60) * 9 / 10, "{repeated} of 60 with {retries} %");
        let counted =
            metric(&gateway, "retries_total", servers[0]).await + metric(&gateway, "retries_total", servers[1]).await;
        assert_eq!(counted, repeated as f64);
    }
}

/// One GOAWAY concerns all requests on their way. A server that ends its connections in good order, as nginx does after
/// `keepalive_requests`, has not failed, also if a request has a body and cannot be sent again.
#[tokio::test]
async fn a_server_that_ends_its_connections_in_good_order_is_not_ejected() {
    const NO_ERROR: u8 = 0;
    const INTERNAL_ERROR: u8 = 2;
    for (code, body, share) in [(NO_ERROR, "", 1.0), (NO_ERROR, "a body", 1.0), (INTERNAL_ERROR, "", 0.0)] {
        let closing = ScriptedBackend::start(move |mut wire, _| async move {
            wire.read_bytes(frames::PREFACE.len()).await;
            wire.send(frames::frame(frames::SETTINGS, 0, 0, &[])).await;
            frames::next(&mut wire, &[frames::HEADERS]).await;
            wire.send(frames::frame(frames::GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, code])).await;
            wire.read_to_end().await;
        });
        let other = Upstream::start_http2();
        let gateway = in_front_of(&[closing.address, other.address], "protocol = \"h2\"");
        let mut failed = 0;
        for _ in 0..20 {
            let response = gateway.client().send(Method::POST, "/", body.into()).await;
            failed += usize::from(response.status == 502);
            assert!(response.status == 200 || !body.is_empty(), "{code}");
        }
        assert_eq!(other.seen().len(), 20 - failed, "{code} {body:?}");
        assert_eq!(metric(&gateway, "share", closing.address).await, share, "{code} {body:?}");
        assert!(body.is_empty() || failed > 3, "{failed}: each of them would have counted");
    }
}

/// A request that was never sent can go to any server, and takes nothing from the retry budget.
#[tokio::test]
async fn a_post_without_a_connection_goes_to_another_server() {
    let closed = ClosedPort::new();
    let upstream = Upstream::start();
    let gateway = in_front_of(
        &[closed.address, upstream.address],
        "retry_budget_percent = 0\n[upstream.ejection]\nconsecutive_failures = 0",
    );
    for _ in 0..40 {
        assert_eq!(gateway.client().send(Method::POST, "/", "once".into()).await.text(), "once");
    }
    assert_eq!(upstream.seen().len(), 40);
}

/// Half a response head shows that the backend processed the request, so a retry could run it twice.
#[tokio::test]
async fn a_request_with_an_invalid_response_is_not_retried() {
    let garbage = ScriptedBackend::responding_with("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    let other = Upstream::start();
    let gateway = in_front_of(&[garbage.address, other.address], "");
    let mut failed = 0;
    for _ in 0..6 {
        failed += usize::from(gateway.client().get("/").await.status == 502);
    }
    assert_eq!(failed, 3, "the server is ejected after three failures");
    assert_eq!(metric(&gateway, "share", garbage.address).await, 0.0);
    assert_eq!(other.seen().len(), 3);
}
