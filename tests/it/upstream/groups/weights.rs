//! `upstream.weights`: how many requests each server gets, and what a drained one still gets.

use bearward::config::{self, Probe};
use http::Request;

use super::{addresses, counts, in_front_of};
use crate::support::connection::{self, HttpConnection};
use crate::support::{Gateway, Upstream};

async fn send(gateway: &Gateway, requests: usize) {
    // One connection: each worker has its own turn.
    let mut connection = HttpConnection::http1(gateway.address()).await;
    for tenant in 0..requests {
        let request = Request::get("/").header("x-tenant", tenant.to_string()).body(connection::empty());
        let response = connection.send(request.expect("a request")).await;
        assert_eq!(response.status(), 200);
        connection::text(response.into_body()).await;
    }
}

fn reload(gateway: &Gateway, from: &str, to: &str) {
    let text = gateway.configuration();
    assert!(text.contains(from), "{text}");
    let config = config::parse(&text.replace(from, to), gateway.path(), Probe::None).expect("a good configuration");
    gateway.running().reload(config).expect("it reloads");
}

#[tokio::test]
async fn requests_are_spread_by_weight() {
    let keys = ["round_robin\"", "least_requests\"", "hash\"\nhash = \"header:x-tenant\""];
    for (key, is_exact) in keys.into_iter().zip([true, false, false]) {
        let backends = [Upstream::start(), Upstream::start(), Upstream::start()];
        let gateway = in_front_of(&addresses(&backends), &format!("weights = [3, 1, 0]\nbalance = \"{key}"));
        send(&gateway, 200).await;
        let [first, second, drained] = counts(&backends)[..] else { panic!("three servers") };
        assert_eq!((first + second, drained), (200, 0), "{key}");
        // Of 10^7 runs, the random ones miss this less than once.
        assert!(if is_exact { first == 150 } else { (110..190).contains(&first) }, "{key}: {first}");
    }
}

#[tokio::test]
async fn a_reload_drains_a_server_and_brings_it_back() {
    let backends = [Upstream::start(), Upstream::start()];
    let gateway = in_front_of(&addresses(&backends), "weights = [1, 1]");
    send(&gateway, 10).await;
    assert_eq!(counts(&backends), [5, 5]);
    reload(&gateway, "weights = [1, 1]", "weights = [1, 0]");
    send(&gateway, 10).await;
    assert_eq!(counts(&backends), [15, 5]);
    let report = gateway.admin_client().get("/admin/v1/upstreams").await;
    assert_eq!(report.status, 200);
    let states: Vec<_> = report.json()["upstreams"][0]["servers"].as_array().expect("servers").clone();
    assert_eq!((&states[0]["state"], &states[1]["state"]), (&"in".into(), &"drained".into()));
    reload(&gateway, "weights = [1, 1]", "weights = [0, 7]");
    send(&gateway, 10).await;
    assert_eq!(counts(&backends), [15, 15]);
}

/// It may be stopped already, or have an old version.
#[tokio::test]
async fn a_drained_server_gets_nothing_when_all_others_fail() {
    let mut backends = vec![Upstream::start(), Upstream::start(), Upstream::start()];
    let gateway = in_front_of(&addresses(&backends), "weights = [1, 1, 0]");
    send(&gateway, 4).await;
    backends.drain(..2);
    for _ in 0..20 {
        let status = gateway.client().get("/").await.status;
        assert!(matches!(status.as_u16(), 502 | 504), "{status}");
    }
    assert_eq!(counts(&backends), [0]);
}
