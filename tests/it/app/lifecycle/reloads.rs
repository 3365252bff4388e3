//! Reloads under load.

use std::sync::Arc;

use bearward::config::{self, Probe};
use http::{Request, Version};

use super::load::Load;
use crate::support::connection::{self, HttpConnection};
use crate::support::repetitions::repetitions;
use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn a_hundred_reloads_under_load_lose_no_request_and_no_stream() {
    let (one, other) = (Upstream::start(), Upstream::start());
    let open = |upstream: &Upstream, more| {
        format!("{}\n[[route]]\npath = \"/private\"\n", Gateway::public_config(upstream.address, more))
    };
    let gateway = Gateway::from_text(open(&one, ""));
    let address = gateway.address();
    let alice = gateway.issue("alice", "").await;
    let load = Load::begin().new_connections(address, 2).kept_connections(address, Version::HTTP_11, 2);
    let load = load.kept_connections(address, Version::HTTP_2, 2).websocket(address).await;
    let mut load = load.bearers_websocket(address, &alice.access).await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        load = load.stream(address, version).await.bearers_events(address, version, &alice.access).await;
    }
    load.goes_on_for(20).await;
    let kept = open(&one, "");
    let texts = [
        open(&other, "idle_timeout = \"1s\""),
        kept.clone(),
        format!("{kept}\n[[route]]\npath = \"/more/\"\n[identity]\nsubject = \"X-Who\"\n"),
        kept,
    ];
    let configs = texts.map(|text| config::parse(&text, gateway.path(), Probe::None).expect("a good configuration"));
    // On another thread, because the clients run on this one.
    let gateway = Arc::new(gateway);
    let reloading = gateway.clone();
    let reloads = tokio::task::spawn_blocking(move || {
        for round in 0..repetitions(100) {
            reloading.running().reload(configs[round % configs.len()].clone()).expect("it reloads");
        }
    });
    reloads.await.expect("no panic");
    load.goes_on_for(20).await;
    load.end().await;
    assert!(other.connections() > 0, "both configurations were active");
}

#[tokio::test]
async fn a_reload_keeps_the_connections_of_an_unchanged_upstream() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut kept = HttpConnection::http1(gateway.address()).await;
    let mut ask = async || {
        let request = Request::get("/").body(connection::empty()).expect("a request");
        connection::text(kept.send(request).await.into_body()).await;
    };
    ask().await;
    let reload = |text: &str| {
        let config = config::parse(text, gateway.path(), Probe::None).expect("good");
        gateway.running().reload(config).expect("it reloads").active
    };
    let routed = Gateway::public_config(upstream.address, "[[route]]\npath = \"/more/\"");
    assert_eq!(reload(&routed), ["route"]);
    ask().await;
    assert_eq!(upstream.connections(), 1, "the pool is the same");
    assert_eq!(reload(&Gateway::public_config(upstream.address, "connect_timeout = \"1s\"")), ["upstream", "route"]);
    ask().await;
    assert_eq!(upstream.connections(), 2, "other settings need another pool");
}
