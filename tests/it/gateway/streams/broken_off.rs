//! A WebSocket that its backend ends without a close frame (RFC 6455 section 7.1.5, code 1006): its line in the access
//! log is not that of a complete one, and the server is counted.

use super::*;

/// A text frame and a close frame of a server.
const HELLO: &[u8] = b"\x81\x05hello";
const CLOSE: &[u8] = b"\x88\x00";

/// Switches protocols, sends `frames`, and closes the connection.
fn backend(frames: Vec<u8>) -> ScriptedBackend {
    ScriptedBackend::start(move |mut wire, _| {
        let frames = frames.clone();
        async move {
            wire.read_until("\r\n\r\n").await;
            wire.send(SWITCHED).await;
            wire.send(frames).await;
        }
    })
}

#[tokio::test]
async fn a_websocket_that_its_backend_ends_without_a_close_frame_is_broken() {
    let half_a_frame = HELLO[..4].to_vec();
    for (frames, is_broken) in
        [(HELLO.to_vec(), true), (half_a_frame, true), (Vec::new(), true), ([HELLO, CLOSE].concat(), false)]
    {
        let backend = backend(frames.clone());
        let gateway = Gateway::public(backend.address, "");
        let mut client = open_wire(&gateway, "none").await;
        assert_eq!(client.read_to_end().await, String::from_utf8_lossy(&frames));
        drop(client);
        let line = gateway.log_lines(1).await.remove(0);
        let reason = if is_broken { "upstream_broken" } else { "" };
        assert_eq!(line["reason"].as_str().unwrap_or_default(), reason, "{line}");
        assert_eq!((line["status"].as_u64(), &line["complete"]), (Some(101), &(!is_broken).into()), "{line}");
        let counted = gateway.metric("bearward_upstream_server_broken_responses_total{").await;
        assert_eq!(counted, f64::from(u8::from(is_broken)), "{frames:?}");
    }
}

/// Its browser was closed, or it has lost its network.
#[tokio::test]
async fn a_client_that_leaves_a_websocket_is_no_fault_of_the_server() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let client = open_wire(&gateway, "none").await;
    drop(client);
    let line = gateway.log_lines(1).await.remove(0);
    assert!(line["reason"].is_null(), "{line}");
    assert_eq!(gateway.metric("bearward_upstream_server_broken_responses_total{").await, 0.0);
}
