//! What is sent behind a request whose host could be read in two ways: who took the first for another request might take this
//! for a part of it, so nobody takes it for anything.

use bearward::types::reject::Reason::BadHost;

use super::headers::HOSTS;
use super::paths::FORMS;
use crate::support::{Gateway, Upstream, Wire};

const BEHIND: &str = "GET /behind HTTP/1.1\r\nHost: gateway.test\r\n\r\n";

#[tokio::test]
async fn behind_a_host_that_is_none_the_connection_ends_and_nothing_is_answered() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::public(upstream.address, "");
    let other_hosts = FORMS.iter().filter(|(_, _, reason)| *reason == BadHost);
    let targets = other_hosts.map(|(target, host, _)| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let hosts = HOSTS.iter().map(|fields| format!("GET /public HTTP/1.1\r\n{fields}\r\n\r\n"));
    let refused: Vec<String> = targets.chain(hosts).collect();
    assert!(refused.len() >= 60, "tables that try little: {}", refused.len());
    let mut faults = Vec::new();
    for request in &refused {
        let mut client = Wire::connect(gateway.address()).await;
        client.send(format!("{request}{BEHIND}")).await;
        let heard = client.read_to_end().await;
        let is_refused = heard.starts_with("HTTP/1.1 400 ") && heard.contains("\"error\":\"invalid_request\"");
        let is_last = heard.matches("HTTP/1.1 ").count() == 1 && heard.contains("\r\nconnection: close\r\n");
        if !is_refused || !is_last {
            faults.push(format!("{request:?}: heard {heard:?}"));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    gateway.drain();
    let log = gateway.file("access.log");
    let lines = log.lines().filter(|line| line.contains("\"reason\":\"bad_host\"")).count();
    assert_eq!((lines, log.lines().count()), (refused.len(), refused.len()), "{log}");
    assert_eq!(upstream.connections(), 0, "nobody connects to the backend for any of them");
}

/// So it is the host that ended them.
#[tokio::test]
async fn behind_a_good_request_the_next_is_answered() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send(format!("GET /public HTTP/1.1\r\nHost: gateway.test\r\n\r\n{BEHIND}")).await;
    for _ in 0..2 {
        assert_eq!(client.read_response().await.body, "hello");
    }
    assert_eq!(upstream.seen().pop().expect("it arrived").uri, "/behind");
}
