//! Security events that the gateway polls (RFC 8936).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Signer;
use super::transmitter::{AUTHORIZATION, Poll, event, gateway, sections, session};
use crate::gateway::streams::{assert_open, close_frame, open, revoked};
use crate::support::Upstream;
use crate::support::wait::eventually;

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
