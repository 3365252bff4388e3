//! Requests with an ambiguous host: another program might read the next bytes as a part of the request, so the gateway
//! does not read them at all.

use bearward::types::reject::Reason::BadHost;

use super::headers::HOSTS;
use super::paths::FORMS;
use crate::support::{Gateway, Upstream, Wire};

const NEXT: &str = "GET /next HTTP/1.1\r\nHost: gateway.test\r\n\r\n";

#[tokio::test]
async fn an_invalid_host_closes_the_connection() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::public(upstream.address, "");
    let other_hosts = FORMS.iter().filter(|(_, _, reason)| *reason == BadHost);
    let targets = other_hosts.map(|(target, host, _)| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let hosts = HOSTS.iter().map(|fields| format!("GET /public HTTP/1.1\r\n{fields}\r\n\r\n"));
    let rejected: Vec<String> = targets.chain(hosts).collect();
    assert!(rejected.len() >= 60, "too few hosts: {}", rejected.len());
    let mut faults = Vec::new();
    for request in &rejected {
        let mut client = Wire::connect(gateway.address()).await;
        client.send(format!("{request}{NEXT}")).await;
        let received = client.read_to_end().await;
        let is_rejected = received.starts_with("HTTP/1.1 400 ") && received.contains("\"error\":\"invalid_request\"");
        let is_last = received.matches("HTTP/1.1 ").count() == 1 && received.contains("\r\nconnection: close\r\n");
        if !is_rejected || !is_last {
            faults.push(format!("{request:?}: received {received:?}"));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    gateway.drain();
    let log = gateway.file("access.log");
    let lines = log.lines().filter(|line| line.contains("\"reason\":\"bad_host\"")).count();
    assert_eq!((lines, log.lines().count()), (rejected.len(), rejected.len()), "{log}");
    assert_eq!(upstream.connections(), 0, "a rejected request opens no connection to the backend");
}

/// So in the test above, the host is what closes the connection.
#[tokio::test]
async fn a_valid_request_lets_the_next_one_follow() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send(format!("GET /public HTTP/1.1\r\nHost: gateway.test\r\n\r\n{NEXT}")).await;
    for _ in 0..2 {
        assert_eq!(client.read_response().await.body, "hello");
    }
    assert_eq!(upstream.seen().pop().expect("it arrived").uri, "/next");
}
