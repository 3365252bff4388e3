//! The TLS records of large bodies.

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::support::{Backend, Gateway, tls_records};

/// Records of 16 KiB would all begin at the same offset in a page, where a copy may take 30 times as long. Four
/// are written at once.
#[tokio::test]
async fn the_records_of_a_large_body_begin_at_different_offsets_in_a_page() {
    const SIZE: usize = 1024 * 1024;
    /// The kind of the content and the tag of AES-GCM, in TLS 1.3.
    const OVERHEAD: usize = 1 + 16;
    let backend =
        Backend::start(Version::HTTP_11, async |_| Response::new(Full::from(vec![b'b'; SIZE]).boxed_unsync()));
    let backend = backend.await;
    let gateway = Gateway::public(backend.address, "");
    let (stream, records) = tls_records::connect(&gateway, "http/1.1").await;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a connection");
    tokio::spawn(connection);
    let request = Request::get("/").header("host", "gateway.test").body(Empty::<Bytes>::new()).expect("a request");
    let response = sender.send_request(request).await.expect("a response");
    let body = response.into_body().collect().await.expect("a complete response").to_bytes();
    assert_eq!(body.len(), SIZE);
    let records = records.lock().expect("no panic");
    let longest = records.iter().max().expect("records") - OVERHEAD;
    assert_eq!(longest, 16 * 1024 - 128, "{records:?}");
    // What would be left of 64 KiB after four records.
    let rests = records.iter().filter(|record| **record == 512 + OVERHEAD).count();
    assert!(rests < 4, "{records:?}");
}
