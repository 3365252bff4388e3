//! A webhook that redirects, answers garbage, or answers for ever. Events wait in the outbox until a server has stored
//! them, and nothing of the response is kept.

use std::time::Duration;

use super::sinks::{failures, folder, start_in, waiting};
use crate::support::wait::eventually_within;
use crate::support::{ScriptedBackend, Upstream, Wire};

/// Longer than five retries, or the maximum time of one delivery.
const PATIENCE: Duration = Duration::from_secs(40);

/// Sends until the gateway closes the connection.
async fn send_for_ever(mut wire: Wire, piece: &[u8], pause: Duration) {
    while wire.try_send(piece).await.is_ok() {
        tokio::time::sleep(pause).await;
    }
}

#[tokio::test]
async fn events_outlast_redirects_and_garbage() {
    const FAILURES: usize = 5;
    let (upstream, elsewhere) = (Upstream::start(), Upstream::start());
    let location = elsewhere.address;
    let collector = ScriptedBackend::start(move |mut wire, number| async move {
        wire.read_until("}\n").await;
        let large = [b'x'; 64 * 1024];
        match number {
            0 => {
                let redirect = "HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nLocation: http://";
                wire.send(format!("{redirect}{location}/\r\n\r\n")).await;
            }
            1 => wire.send([0xff, 0, b'\n'].repeat(1_000)).await,
            2 => {
                wire.send("HTTP/1.1 200 OK\r\nX: ").await;
                send_for_ever(wire, &large, Duration::ZERO).await;
            }
            3 => {
                wire.send("HTTP/1.1 200 OK\r\n").await;
                send_for_ever(wire, &b"X: 1\r\n".repeat(1_000), Duration::ZERO).await;
            }
            // Closes without a response.
            4 => {}
            // A success. Its body never ends, and the gateway does not read it.
            _ => {
                wire.send("HTTP/1.1 200 OK\r\n\r\n").await;
                send_for_ever(wire, &large, Duration::ZERO).await;
            }
        }
    });
    let gateway = start_in(folder(), &upstream, &format!("webhook = \"http://{}/\"", collector.address));
    let events = waiting(&gateway);
    let pair = gateway.issue("alice", "").await;
    eventually_within(PATIENCE, "the last failure", async || {
        let failures = failures(&gateway) as usize;
        assert!(failures == FAILURES || waiting(&gateway) > events, "events are lost");
        if failures == FAILURES { Ok(()) } else { Err(format!("{failures} failures")) }
    })
    .await;
    assert_eq!(gateway.status_of(&pair.access).await, 200, "requests are served");
    eventually_within(PATIENCE, "the events are delivered, and every connection is closed", async || {
        let (waiting, open) = (waiting(&gateway), collector.connections() - collector.ended());
        if (waiting, open) == (0, 0) { Ok(()) } else { Err(format!("{waiting} events, {open} connections")) }
    })
    .await;
    assert_eq!((failures(&gateway) as usize, collector.connections()), (FAILURES, FAILURES + 1));
    assert!(elsewhere.seen().is_empty(), "the gateway follows no redirect");
}

/// Interim responses (RFC 9110 section 15.2) are no progress.
#[tokio::test]
async fn a_response_that_never_comes_is_given_up() {
    let upstream = Upstream::start();
    let collector = ScriptedBackend::start(|mut wire, number| async move {
        wire.read_until("}\n").await;
        match number {
            0 => send_for_ever(wire, b"HTTP/1.1 100 Continue\r\n\r\n", Duration::from_millis(50)).await,
            _ => wire.send("HTTP/1.1 204 No Content\r\n\r\n").await,
        }
    });
    let gateway = start_in(folder(), &upstream, &format!("webhook = \"http://{}/\"", collector.address));
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    eventually_within(PATIENCE, "the events are delivered", async || match waiting(&gateway) {
        0 => Ok(()),
        waiting => Err(format!("{waiting} events")),
    })
    .await;
    assert_eq!((failures(&gateway), collector.ended()), (1, 2));
}
