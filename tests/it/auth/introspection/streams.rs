//! Streams of opaque tokens: the gateway goes on asking while they are open.

use super::endpoint::Endpoint;
use super::*;
use crate::gateway::streams::{Socket, assert_open, close_frame, open, open_with, within_a_second};
use crate::support::wait::eventually;

const INACTIVE: &str = "the token is not valid";

#[tokio::test]
async fn a_stream_ends_when_its_token_is_not_active_any_more() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let [mut alice, mut bob] = [open(&gateway, "alice.1").await, open(&gateway, "bob.1").await];
    assert_eq!(endpoint.count(), 2);
    // It goes on with each answer, and there is one question for each token in half the time of the cache.
    for round in 2..6 {
        gateway.advance(MINUTE / 2);
        eventually("it asks about both", || endpoint.count() == 2 * round).await;
        assert_open(&mut alice).await;
    }
    assert_eq!(status(&gateway, "alice.1").await, 200);
    endpoint.answer_json(|token| json!({ "active": !token.starts_with("alice") }));
    gateway.advance(MINUTE / 2);
    assert_eq!(within_a_second(close_frame(&mut alice)).await, (1008, INACTIVE.to_owned()));
    assert_open(&mut bob).await;
    gateway.wait_for_metric("streams_ended_total{reason=\"token_inactive\"}", 1).await;
    // Also requests, for which the answer before would still be good.
    assert_eq!((status(&gateway, "alice.1").await, status(&gateway, "bob.1").await), (401, 200));
}

/// As `/write`, for which the token needs a scope.
async fn open_to_write(gateway: &Gateway, token: &str) -> Socket {
    open_with(gateway, "gateway.test/write", &[("authorization", &format!("Bearer {token}"))]).await
}

#[tokio::test]
async fn a_stream_ends_when_its_token_has_lost_a_scope_that_the_route_needs() {
    let upstream = Upstream::start();
    let endpoint = Endpoint::start();
    let gateway = asking(&upstream, &endpoint, "");
    for learns in ["a stream", "a request"] {
        endpoint.answer_json(|_| json!({ "scope": "read write" }));
        let token = format!("alice.{}", learns.len());
        let [mut writer, mut reader] = [open_to_write(&gateway, &token).await, open(&gateway, &token).await];
        endpoint.answer_json(|_| json!({ "scope": "read" }));
        if learns == "a stream" {
            gateway.advance(MINUTE / 2);
        } else {
            gateway.advance(MINUTE);
            assert_eq!(client(&gateway, &token).get("/write").await.status, 403);
        }
        let lost = (1008, "the token lacks a required scope".to_owned());
        assert_eq!(within_a_second(close_frame(&mut writer)).await, lost, "{learns}");
        assert_open(&mut reader).await;
        // Also for requests, for which the answer before would still be good.
        assert_eq!(client(&gateway, &token).get("/write").await.status, 403, "{learns}");
        assert_eq!(status(&gateway, &token).await, 200);
    }
    gateway.wait_for_metric("streams_ended_total{reason=\"insufficient_scope\"}", 2).await;
}

/// More questions to it are due than are asked at once.
#[tokio::test]
async fn an_endpoint_that_hangs_ends_no_streams_of_another_issuer() {
    let (upstream, hanging, other) = (Upstream::start(), Endpoint::start(), Endpoint::start());
    other.answer_json(|_| json!({ "iss": "https://other.example" }));
    let more = [
        issuer(LOGIN, &hanging, "", "client_timeout = \"60s\"\nconsecutive_timeouts = 0"),
        issuer("https://other.example", &other, "", "token_prefix = [\"o-\"]"),
    ];
    let gateway = start(&upstream, &more.concat());
    let mut of_hanging = Vec::new();
    for number in 0..40 {
        of_hanging.push(open(&gateway, &format!("alice.{number}")).await);
    }
    let mut bob = open(&gateway, "o-bob.1").await;
    hanging.respond_with("");
    // Each answer holds for two minutes.
    for round in 2..8 {
        gateway.advance(MINUTE / 2);
        eventually("it asks the other issuer", || other.count() == round).await;
        assert_open(&mut bob).await;
    }
}

/// Another request learns of it first.
#[tokio::test]
async fn a_rejected_request_ends_the_streams_of_its_token() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let mut socket = open(&gateway, "alice.1").await;
    gateway.running().reload(gateway.config()).expect("it reloads");
    assert_open(&mut socket).await;
    endpoint.deny();
    assert_eq!(status(&gateway, "alice.1").await, 401);
    assert_eq!(within_a_second(close_frame(&mut socket)).await, (1008, INACTIVE.to_owned()));
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_of_another_subject() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let mut socket = open(&gateway, "alice.1").await;
    endpoint.answer_json(|_| json!({ "sub": "mallory" }));
    gateway.advance(MINUTE / 2);
    assert_eq!(within_a_second(close_frame(&mut socket)).await, (1008, INACTIVE.to_owned()));
}

#[tokio::test]
async fn a_stream_survives_a_short_failure_of_the_endpoint_only() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let mut socket = open(&gateway, "alice.1").await;
    endpoint.respond_with("HTTP/1.1 500 Down\r\nContent-Length: 0\r\n\r\n");
    for round in 1..4 {
        gateway.advance(MINUTE / 2);
        eventually("it asks", || endpoint.count() > round).await;
        assert_open(&mut socket).await;
    }
    // Two minutes after the last answer.
    gateway.advance(MINUTE / 2);
    assert_eq!(within_a_second(close_frame(&mut socket)).await, (1008, "the token expired".to_owned()));
}

#[tokio::test]
async fn a_stream_ends_with_the_exp_of_its_token() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let exp = gateway.now_secs() + 20;
    endpoint.answer_json(move |_| json!({ "exp": exp }));
    let mut socket = open(&gateway, "alice.1").await;
    gateway.advance(19 * SECOND);
    assert_open(&mut socket).await;
    gateway.advance(SECOND);
    assert_eq!(within_a_second(close_frame(&mut socket)).await, (1008, "the token expired".to_owned()));
}

/// The provider's word about a session reaches tokens that the gateway has only asked about.
#[tokio::test]
async fn a_stream_ends_when_the_session_of_its_token_is_revoked() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let now = gateway.now_secs();
    endpoint.answer_json(move |token| json!({ "sid": format!("session of {token}"), "iat": now }));
    let [mut alice, mut bob] = [open(&gateway, "alice.1").await, open(&gateway, "bob.1").await];
    let what = json!({ "session": "session of alice.1", "issuer": LOGIN });
    assert_eq!(gateway.admin_client().post("/admin/v1/revocations", &what).await.status, 200);
    assert_eq!(within_a_second(close_frame(&mut alice)).await.0, 1008);
    assert_open(&mut bob).await;
    assert_eq!((status(&gateway, "alice.1").await, status(&gateway, "bob.1").await), (401, 200));
}

#[tokio::test]
async fn removing_an_asked_issuer_ends_its_streams() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let mut socket = open(&gateway, "alice.1").await;
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let config = bearward::config::parse(&text, gateway.path(), bearward::config::Probe::None).expect("valid");
    gateway.running().reload(config).expect("it reloads");
    assert_eq!(within_a_second(close_frame(&mut socket)).await.0, 1008);
}
