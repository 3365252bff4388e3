//! Security events that the gateway polls (RFC 8936).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Signer;
use super::transmitter::{
    AUDIENCE, AUTHORIZATION, Poll, SESSION_REVOKED, event, folder, gateway, sections, sections_without_authorization,
    session,
};
use crate::gateway::streams::{assert_open, close_frame, open, revoked, within_a_second};
use crate::support::program::GatewayProcess;
use crate::support::wait::{eventually, eventually_ok};
use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn a_polled_event_closes_streams_and_is_acknowledged() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    let gateway = gateway(&upstream, &sections(&signer, &poll.section()));
    let mut socket = open(&gateway, &signer.access_token(gateway.now_secs(), "alice", Some("s1"))).await;
    assert_open(&mut socket).await;
    eventually("the gateway polls", || !poll.state().requests.is_empty()).await;
    poll.offer("j1", event(&signer, &gateway, &session("s1"), &json!({ "jti": "j1" })));
    assert_eq!(close_frame(&mut socket).await, revoked());
    eventually("the event is acknowledged", || poll.state().events.is_empty()).await;
    let state = poll.state();
    assert!(state.authorizations.iter().all(|value| value == AUTHORIZATION));
    let acknowledged = state.requests.iter().filter(|request| request["ack"] == json!(["j1"])).count();
    assert_eq!(acknowledged, 1, "{:?}", state.requests);
    assert_eq!(state.requests[0], json!({ "maxEvents": 100, "returnImmediately": false, "ack": [] }));
}

/// A transmitter that holds a poll until it has an event (RFC 8936 section 2.4), as most do.
#[tokio::test]
async fn a_websocket_closes_within_a_second_of_an_event_in_a_long_poll() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    poll.state().is_long = true;
    let gateway = gateway(&upstream, &sections(&signer, &poll.section()));
    let mut socket = open(&gateway, &signer.access_token(gateway.now_secs(), "alice", Some("s1"))).await;
    assert_open(&mut socket).await;
    eventually("the poll is held", || !poll.state().requests.is_empty()).await;
    poll.offer("j1", event(&signer, &gateway, &session("s1"), &json!({ "jti": "j1" })));
    assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked());
    eventually("the event is acknowledged", || poll.state().events.is_empty()).await;
    assert_open(&mut open(&gateway, &signer.access_token(gateway.now_secs(), "alice", Some("s2"))).await).await;
}

#[tokio::test]
async fn a_bad_event_is_answered_with_its_error() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    let gateway = gateway(&upstream, &sections(&signer, &poll.section()));
    let alice = signer.access_token(gateway.now_secs(), "alice", Some("s1"));
    let of = |sid: &str, changes: Value| event(&signer, &gateway, &session(sid), &changes);
    poll.offer("j1", of("s1", json!({ "jti": "j1", "aud": "https://other.example" })));
    poll.offer("j2", of("s1", json!({ "jti": "another one" })));
    poll.offer("j3", of("s2", json!({ "jti": "j3" })));
    eventually("all events are answered", || poll.state().events.is_empty()).await;
    assert_eq!(gateway.status_of(&alice).await, 200);
    let mut errors = BTreeMap::new();
    for (jti, error) in poll.state().requests.iter().flat_map(|request| request["setErrs"].as_object()).flatten() {
        errors.insert(jti.clone(), error["err"].clone());
    }
    let expected = [("j1", "invalid_audience"), ("j2", "invalid_request")];
    assert_eq!(errors, expected.map(|(jti, error)| (jti.to_owned(), json!(error))).into());
}

/// The gateway ends before it acknowledges an event. The next one gets it again, and it does nothing twice.
#[tokio::test]
async fn an_event_that_was_not_acknowledged_comes_again() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    let gateway = gateway(&upstream, &sections(&signer, &poll.section()));
    let alice = signer.access_token(gateway.now_secs(), "alice", Some("s1"));
    let token = event(&signer, &gateway, &session("s1"), &json!({ "jti": "j1" }));
    poll.offer("j1", token.clone());
    eventually("it is acknowledged", || poll.state().events.is_empty()).await;
    assert_eq!(gateway.status_of(&alice).await, 401);
    let gateway = gateway.restart();
    poll.offer("j1", token);
    eventually("it is acknowledged again", || poll.state().events.is_empty()).await;
    assert_eq!(gateway.status_of(&alice).await, 401);
    let repeated = "bearward_provider_reports_total{source=\"corp\",kind=\"session-revoked\",outcome=\"repeated\"}";
    assert_eq!(gateway.metric(repeated).await, 1.0);
}

#[tokio::test]
async fn a_failing_transmitter_is_asked_again() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    poll.state().status = Some(503);
    let gateway = gateway(&upstream, &sections(&signer, &poll.section()));
    let mut socket = open(&gateway, &signer.access_token(gateway.now_secs(), "alice", Some("s1"))).await;
    eventually("it was asked", || !poll.state().requests.is_empty()).await;
    assert_open(&mut socket).await;
    poll.offer("j1", event(&signer, &gateway, &session("s1"), &json!({ "jti": "j1" })));
    poll.state().status = None;
    assert_eq!(close_frame(&mut socket).await, revoked());
}

/// `kill -9` after the revocation is durable, and before the transmitter knows.
#[tokio::test]
async fn an_event_is_carried_out_again_after_kill_9_and_changes_nothing() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    let folder = folder();
    let text = Gateway::config_text(&upstream.address.to_string(), &sections(&signer, &poll.section()));
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let start = async || {
        let path = folder.path().to_owned();
        tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts")
    };
    let status = async |served: &GatewayProcess, token: &str| {
        let status = served.client().bearer(token).get("/").await.status.as_u16();
        if status == 401 { Ok(()) } else { Err(status.to_string()) }
    };
    let now = bearward::types::clock::UnixTime::from_secs(std::time::UNIX_EPOCH.elapsed().expect("later").as_secs());
    let alice = signer.access_token(now.as_secs(), "alice", Some("s1"));
    let claims = json!({
        "iss": signer.issuer(), "aud": AUDIENCE, "iat": now.as_secs(), "jti": "j1", "sub_id": session("s1"),
        "events": { SESSION_REVOKED: {} },
    });
    poll.state().deaf_to_acks = true;
    let served = start().await;
    assert_eq!(status(&served, &alice).await, Err("200".to_owned()));
    poll.offer("j1", signer.sign("secevent+jwt", &claims));
    eventually_ok("the event has ended the session", async || status(&served, &alice).await).await;
    served.program.kill();
    assert_eq!(poll.state().events.len(), 1, "it is not acknowledged");
    let served = start().await;
    assert_eq!(status(&served, &alice).await, Ok(()));
    poll.state().deaf_to_acks = false;
    eventually("the event is acknowledged", || poll.state().events.is_empty()).await;
    assert_eq!(status(&served, &alice).await, Ok(()));
    let ended = served.admin_client().get("/admin/v1/tokens/ended?reason=provider").await.json();
    let ended = ended["ended"].as_array().expect("a list").clone();
    assert_eq!((ended.len(), &ended[0]["provider"]), (1, &json!("corp")), "{ended:?}");
}

/// A transmitter that always announces more, and one that ignores every answer.
#[tokio::test]
async fn a_transmitter_that_repeats_itself_is_not_polled_without_a_pause() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    poll.state().has_more = true;
    let gateway = gateway(&upstream, &sections(&signer, &poll.section()));
    let polls = async || {
        let before = poll.state().requests.len();
        tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
        poll.state().requests.len() - before
    };
    eventually("the gateway polls", || !poll.state().requests.is_empty()).await;
    assert!((1..=4).contains(&polls().await), "poll_interval is 1s");
    // It offers the same event after each answer.
    let token = event(&signer, &gateway, &session("s1"), &json!({ "jti": "j1" }));
    poll.state().keeps_events = true;
    poll.offer("j1", token);
    assert!((1..=5).contains(&polls().await), "poll_interval is 1s");
}

/// A stranger at the place of the transmitter has no key, and needs none to send events.
#[tokio::test]
async fn a_transmitter_that_sends_garbage_is_not_polled_without_a_pause() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    poll.state().garbage = 3;
    let _gateway = gateway(&upstream, &sections(&signer, &poll.section()));
    eventually("the gateway polls", || !poll.state().requests.is_empty()).await;
    let before = poll.state().requests.len();
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    let polls = poll.state().requests.len() - before;
    assert!((1..=4).contains(&polls), "{polls}: poll_interval is 1s");
}

/// It ignores `maxEvents`. The gateway takes as many as it asked for, and gets the others again.
#[tokio::test]
async fn a_response_with_too_many_events_is_read_in_parts() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    poll.state().is_long = true;
    let gateway = gateway(&upstream, &sections(&signer, &poll.section()));
    eventually("the gateway polls", || !poll.state().requests.is_empty()).await;
    let alice = signer.access_token(gateway.now_secs(), "alice", Some("s249"));
    let events = (0..250).map(|number| {
        let jti = format!("j{number}");
        let token = event(&signer, &gateway, &session(&format!("s{number}")), &json!({ "jti": jti }));
        (jti, token)
    });
    poll.state().events = events.collect();
    eventually("all events are acknowledged", || poll.state().events.is_empty()).await;
    assert_eq!(gateway.status_of(&alice).await, 401);
    let acknowledged: Vec<_> =
        poll.state().requests.iter().filter_map(|request| request["ack"].as_array().map(Vec::len)).collect();
    assert_eq!(acknowledged.iter().filter(|number| **number > 0).collect::<Vec<_>>(), [&100, &100, &50]);
}

/// As many as 8 MiB can have. Neither the memory nor the time of the gateway is that of the transmitter.
#[tokio::test]
async fn a_flood_of_events_is_answered_up_to_the_maximum() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    let gateway = gateway(&upstream, &sections(&signer, &poll.section()));
    eventually("the gateway polls", || !poll.state().requests.is_empty()).await;
    poll.state().garbage = 100_000;
    let answered = || poll.state().requests.iter().find_map(|request| request["setErrs"].as_object().cloned());
    eventually("a response is answered", || answered().is_some()).await;
    poll.state().garbage = 0;
    let errors = answered().expect("errors");
    assert_eq!(errors.len(), 100);
    assert!(errors.values().all(|error| error["err"] == "invalid_request"), "{errors:?}");
    // One event of that size is rejected before it is read.
    let claims = json!({ "jti": "large", "padding": "x".repeat(70_000) });
    poll.offer("large", event(&signer, &gateway, &session("s1"), &claims));
    let is_rejected = || poll.state().requests.iter().any(|request| request["setErrs"].get("large").is_some());
    eventually("the large event is answered", is_rejected).await;
}

#[tokio::test]
async fn a_poll_with_an_access_token_of_its_own() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    poll.state().accepts = Some("token-1".into());
    let keys = format!("{}\n{}", poll.section(), poll.client_section());
    let gateway = gateway(&upstream, &sections_without_authorization(&signer, &keys));
    let mut socket = open(&gateway, &signer.access_token(gateway.now_secs(), "alice", Some("s1"))).await;
    eventually("the gateway polls", || poll.state().requests.len() > 1).await;
    assert_open(&mut socket).await;
    {
        let state = poll.state();
        let (body, authorization) = &state.tokens[0];
        assert_eq!(body, "grant_type=client_credentials&scope=ssf.read");
        // Id and secret are form-encoded before base64 (RFC 6749 section 2.3.1).
        let credentials = "gate%3Away:of%20the%20client%3A%20%2B%20%25%20%26";
        let expected = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, credentials);
        assert_eq!(*authorization, format!("Basic {expected}"));
        assert_eq!(state.tokens.len(), 1, "one token for several polls");
    }
    // The server has revoked the token: the gateway gets another one.
    poll.state().accepts = Some("token-2".into());
    poll.offer("j1", event(&signer, &gateway, &session("s1"), &json!({ "jti": "j1" })));
    assert_eq!(close_frame(&mut socket).await, revoked());
    assert_eq!(poll.state().tokens.len(), 2);
    // And before its end.
    poll.state().accepts = None;
    gateway.advance(std::time::Duration::from_secs(575));
    eventually("another token", || poll.state().tokens.len() == 3).await;
}

/// As some servers write it. Without one, a token is used for a minute.
#[tokio::test]
async fn a_token_for_polls_can_have_its_lifetime_as_text_or_null() {
    for (expires_in, lifetime) in [(json!("600"), 600), (json!(null), 60)] {
        let signer = Signer::start();
        let upstream = Upstream::start();
        let poll = Poll::start();
        poll.state().accepts = Some("token-1".into());
        poll.state().expires_in = Some(expires_in.clone());
        let keys = format!("{}\n{}", poll.section(), poll.client_section());
        let gateway = gateway(&upstream, &sections_without_authorization(&signer, &keys));
        eventually("the gateway polls", || poll.state().requests.len() > 1).await;
        assert_eq!(poll.state().tokens.len(), 1, "{expires_in}: one token for several polls");
        poll.state().accepts = None;
        gateway.advance(std::time::Duration::from_secs(lifetime));
        eventually("another token", || poll.state().tokens.len() == 2).await;
    }
}
