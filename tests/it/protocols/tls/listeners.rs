//! Cleartext, IPv4 and IPv6 listeners, and curl as a client.

use std::process::Command;
use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::support::wait::eventually;
use crate::support::{Client, Gateway, Upstream, Wire};

#[tokio::test]
async fn a_cleartext_listener_serves_http1_and_http2() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for client in [Client::http1(gateway.address()), Client::http2(gateway.address())] {
        let answer = client.get("/").await;
        assert_eq!((answer.status.as_u16(), answer.version), (200, client.version()));
    }
    // The client may send the preface in pieces. The pauses let each one arrive alone.
    let mut client = Wire::connect(gateway.address()).await;
    for piece in ["P", "R", "I * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        client.send(piece).await;
        client.stream.flush().await.expect("flushed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(client.read_bytes(9).await[3], 4, "SETTINGS");
    // A TLS record is not a valid request.
    let mut client = Wire::connect(gateway.address()).await;
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").await;
    assert!(client.read_to_end().await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn ipv4_and_ipv6_listeners_work_side_by_side() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(
        upstream.address,
        "[[listener]]\naddress = \"[::1]:0\"\ntls = \"off\"\n[[listener]]\naddress = \"[::1]:0\"\ntls = \"self-signed\"",
    );
    let addresses = gateway.running().addresses.clone();
    assert_eq!(addresses.len(), 4);
    for (number, address) in addresses.into_iter().enumerate() {
        let client = Client::http2(address);
        let client = if number % 2 == 1 { client.over_tls(&gateway.certificate()) } else { client };
        assert_eq!(client.get("/").await.status, 200, "{address}");
    }
}

/// Runs curl, and returns its output.
fn curl(arguments: &[&str]) -> String {
    let ran = Command::new("curl").args(["-sS", "--max-time", "20"]).args(arguments).output();
    let ran = ran.expect("curl is installed: tests/run does that");
    assert!(ran.status.success(), "curl {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[tokio::test]
async fn curl_works_with_both_protocols() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let certificate = gateway.certificate();
    let certificate = certificate.to_str().expect("a path");
    let url = format!("https://localhost:{}/orders", gateway.tls_address().port());
    let resolve = format!("localhost:{}:127.0.0.1", gateway.tls_address().port());
    let bearer = format!("Authorization: Bearer {}", pair.access);
    for (protocol, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let output = curl(&[
            protocol,
            "--cacert",
            certificate,
            "--resolve",
            &resolve,
            "-H",
            &bearer,
            "-d",
            "a body",
            "-w",
            " %{http_version} %{http_code}",
            &url,
        ]);
        assert_eq!(output, format!("a body {version} 200"));
        let output = curl(&[
            protocol,
            "--cacert",
            certificate,
            "--resolve",
            &resolve,
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            &url,
        ]);
        assert_eq!(output, "401");
    }
    eventually("both requests arrived", || upstream.seen().len() == 2).await;
}
