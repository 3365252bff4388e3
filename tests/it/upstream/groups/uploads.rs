//! Uploads that fail because of their client, after the server has begun to respond. The server is not at fault.

use bytes::Bytes;
use http::{Request, Response, Version};
use hyper::body::Incoming;

use super::{addresses, in_front_of, metric};
use crate::support::connection::{self, BodySender, HttpConnection, next_chunk};
use crate::support::{Gateway, Upstream};

/// Starts an upload and reads the beginning of its response.
async fn begun(gateway: &Gateway, version: Version) -> (HttpConnection, BodySender, Response<Incoming>) {
    let mut connection = HttpConnection::of(version, gateway.address()).await;
    let (pieces, body) = connection::streamed();
    pieces.send("first").await;
    let mut response = connection.send(Request::post("/mirror").body(body).expect("a request")).await;
    assert_eq!(next_chunk(response.body_mut()).await, Some(Bytes::from("first")));
    (connection, pieces, response)
}

/// How the upload of a client fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    TooLarge,
    Disconnected,
}

#[tokio::test]
async fn a_failing_upload_does_not_eject_its_server() {
    for protocol in ["http1", "h2"] {
        let start = if protocol == "h2" { Upstream::start_http2 } else { Upstream::start };
        let backends = [start(), start()];
        let limits = "[upstream.ejection]\nconsecutive_failures = 1\n[limits]\nbody_size = \"64KiB\"";
        let gateway = in_front_of(&addresses(&backends), &format!("protocol = \"{protocol}\"\n{limits}"));
        let kinds = [Version::HTTP_11, Version::HTTP_2]
            .map(|version| [Fault::TooLarge, Fault::Disconnected].map(|fault| (version, fault)));
        let mut uploads = 0;
        for (version, fault) in kinds.into_iter().flatten().cycle().take(12) {
            let (connection, pieces, response) = begun(&gateway, version).await;
            match fault {
                Fault::TooLarge => while pieces.try_send(vec![b'x'; 16 << 10]).await {},
                Fault::Disconnected => connection.abort(),
            }
            drop(response);
            uploads += 1;
            // The line is written after the failure was recorded.
            let lines = gateway.log_lines(uploads).await;
            assert_eq!(lines[uploads - 1]["complete"], false, "{protocol} {version:?} {fault:?}");
        }
        for backend in &backends {
            assert_eq!(metric(&gateway, "ejections_total", backend.address).await, 0.0, "{protocol}");
        }
    }
}
