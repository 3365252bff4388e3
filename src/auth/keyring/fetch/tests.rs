//! Fetches from servers that send one wrong thing each.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::protocols::http::client::HEADER_SIZE;
use crate::types::reject::with_causes;

/// The limit of these tests: short, because some of them wait for it.
const LIMIT: Duration = Duration::from_millis(300);

/// Sends these bytes on each connection, with a pause after each piece. Then it closes the connection or goes silent.
async fn server(pieces: Vec<Vec<u8>>, pause: Duration, closes: bool) -> SecureUrl {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let pieces = pieces.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                for piece in pieces {
                    // The client may have closed the connection.
                    if stream.write_all(&piece).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                }
                if !closes {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    SecureUrl::parse(&format!("http://{address}/keys"), false).expect("a good URL")
}

async fn response_to(text: impl AsRef<[u8]>) -> Result<FetchOutcome, String> {
    let url = server(vec![text.as_ref().to_vec()], Duration::ZERO, true).await;
    fetch(&url, None).await
}

async fn fetch(url: &SecureUrl, etag: Option<&HeaderValue>) -> Result<FetchOutcome, String> {
    get(url, None, etag, LIMIT, Reach::Loopback).await.map_err(|error| with_causes(&error))
}

fn page(outcome: Result<FetchOutcome, String>) -> FetchedPage {
    match outcome {
        Ok(FetchOutcome::FetchedPage(page)) => page,
        Ok(FetchOutcome::NotModified { .. }) => panic!("not modified"),
        Err(fault) => panic!("{fault}"),
    }
}

fn ok(head: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_good_response_is_read_in_every_framing() {
    let sized = page(response_to(ok("ETag: \"7\"\r\nCache-Control: max-age=60\r\n", "{}")).await);
    assert_eq!((sized.text.as_str(), sized.max_age), ("{}", Some(Duration::from_secs(60))));
    assert_eq!(sized.etag, Some(HeaderValue::from_static("\"7\"")));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n";
    assert_eq!(page(response_to(chunked).await).text, "{}");
    assert_eq!(page(response_to("HTTP/1.1 200 OK\r\n\r\n{}").await).text, "{}", "until the connection closes");
    assert_eq!(page(response_to("HTTP/1.0 200 OK\r\n\r\n{}").await).text, "{}");
    for coding in ["identity", "Identity", ""] {
        let head = format!("Content-Encoding: {coding}\r\n");
        assert_eq!(page(response_to(ok(&head, "{}")).await).text, "{}", "{coding}");
    }
    let full = "x".repeat(262_144);
    assert_eq!(page(response_to(ok("", &full)).await).text.len(), full.len());
}

#[tokio::test]
async fn a_bad_response_is_an_error_that_names_the_problem() {
    let huge = "x".repeat(262_145);
    let chunk = format!("{:x}\r\n{huge}\r\n0\r\n\r\n", huge.len());
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("500", b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_vec(), "the response is 500"),
        ("404", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(), "404"),
        ("204", b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), "204"),
        ("304 without an ETag in the request", b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec(), "304"),
        (
            "a redirect",
            b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "a redirect (302 Found) to http://169.254.169.254/; configure the final URL",
        ),
        (
            "a redirect without a Location",
            b"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "to no location",
        ),
        ("huge by its length", ok("", &huge).into(), "larger than 262144 bytes"),
        (
            "huge in a chunk",
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}").into(),
            "larger than 262144 bytes",
        ),
        ("huge without a length", format!("HTTP/1.1 200 OK\r\n\r\n{huge}").into(), "larger than 262144 bytes"),
        ("a huge header", format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(2 * HEADER_SIZE)).into(), "too large"),
        ("endless interim responses", "HTTP/1.1 100 Continue\r\n\r\n".repeat(9999).into(), "connection"),
        ("cut off", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}".to_vec(), "cannot read"),
        ("cut off in a chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{}".to_vec(), "cannot read"),
        (
            "an invalid chunk size",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}".to_vec(),
            "cannot read",
        ),
        ("gzip", ok("Content-Encoding: gzip\r\n", "{}").into(), "Content-Encoding"),
        ("not UTF-8", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff".to_vec(), "not UTF-8"),
        ("no HTTP", b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), "invalid HTTP"),
        ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}".to_vec(), "invalid"),
        ("an empty response", Vec::new(), "connection closed"),
    ];
    for (name, bytes, says) in rows {
        match response_to(bytes).await {
            Ok(_) => panic!("{name} was accepted"),
            Err(error) => {
                let names_url = error.starts_with("cannot fetch http://127.0.0.1:");
                assert!(names_url && error.contains(says), "{name}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_slow_response_ends_at_the_time_limit() {
    let drip = |text: &str| text.bytes().map(|byte| vec![byte]).collect::<Vec<_>>();
    let slow = Duration::from_millis(50);
    for (name, pieces) in [
        ("no response", vec![]),
        ("a header that never ends", vec![b"HTTP/1.1 200 OK\r\nX: ".to_vec()]),
        ("a dripping header", drip("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")),
        (
            "a dripping body",
            [vec![b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n".to_vec()], drip(&" ".repeat(20))].concat(),
        ),
        ("a body that never ends", vec![b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{".to_vec()]),
    ] {
        let url = server(pieces, slow, false).await;
        let began = std::time::Instant::now();
        let error = fetch(&url, None).await.err().expect(name);
        assert!(error.contains("no complete response within 300ms"), "{name}: {error}");
        assert!(began.elapsed() >= LIMIT, "{name}");
    }
}

#[tokio::test]
async fn a_closed_port_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let url = SecureUrl::parse(&format!("http://{address}/"), false).expect("a good URL");
    let error = fetch(&url, None).await.err().expect("the port is closed");
    assert!(error.contains("cannot connect: "), "{error}");
}

#[tokio::test]
async fn a_304_response_to_an_etag_is_not_modified() {
    let etag = HeaderValue::from_static("\"7\"");
    let text = "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=5\r\n\r\n";
    let url = server(vec![text.into()], Duration::ZERO, true).await;
    match fetch(&url, Some(&etag)).await {
        Ok(FetchOutcome::NotModified { max_age }) => assert_eq!(max_age, Some(Duration::from_secs(5))),
        _ => panic!("the response was 304"),
    }
}

#[test]
fn max_age_is_read_from_cache_control_and_age() {
    let rows: &[(&[&str], Option<&str>, Option<u64>)] = &[
        (&["max-age=300"], None, Some(300)),
        (&["public, Max-Age=300, must-revalidate"], None, Some(300)),
        (&["max-age=\"300\""], None, Some(300)),
        (&["public", "max-age=300"], None, Some(300)),
        (&["max-age=300"], Some("100"), Some(200)),
        (&["max-age=300"], Some("400"), Some(0)),
        (&["max-age=300"], Some("soon"), Some(300)),
        (&["no-store"], None, Some(0)),
        (&["max-age=300, no-cache"], None, Some(0)),
        (&["max-age=-1"], None, None),
        (&["max-age=99999999999999999999"], None, None),
        (&["private"], None, None),
        (&[], Some("5"), None),
    ];
    for (values, age, expected) in rows {
        let mut headers = HeaderMap::new();
        for value in *values {
            headers.append(header::CACHE_CONTROL, HeaderValue::from_static(value));
        }
        if let Some(age) = age {
            headers.insert(header::AGE, HeaderValue::from_static(age));
        }
        assert_eq!(max_age(&headers), expected.map(Duration::from_secs), "{values:?} {age:?}");
    }
}

/// A name can resolve to any address, so the address counts.
#[tokio::test]
async fn a_server_nearer_than_allowed_is_not_connected_to() {
    let url = server(vec![ok("", "{}").into_bytes()], Duration::ZERO, true).await;
    for reach in [Reach::Private, Reach::Public] {
        let error = get(&url, None, None, LIMIT, reach).await.map_err(|error| with_causes(&error));
        let error = error.err().expect("not connected");
        assert!(error.ends_with("the address 127.0.0.1 is on this machine or in a private network"), "{error}");
    }
    assert_eq!(page(fetch(&url, None).await).reach, Reach::Loopback);
}
