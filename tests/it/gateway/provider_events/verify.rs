//! Verifications that the gateway requests (SSF section 8.1.4.2).

use std::time::Duration;

use serde_json::{Value, json};

use super::Signer;
use super::push::{error, push};
use super::transmitter::{Poll, event, gateway, sections, session};
use crate::support::wait::{eventually, eventually_ok};
use crate::support::{Gateway, Upstream};

const VERIFICATION: &str = "https://schemas.openid.net/secevent/ssf/event-type/verification";

fn start(signer: &Signer, upstream: &Upstream, poll: &Poll) -> Gateway {
    let keys = format!(
        "path = \"/events/corp\"\nstream_id = \"stream-1\"\nverification_url = \"http://{}/verify\"\n\
         verify_interval = \"2h\"\n{}",
        poll.address,
        poll.client_section()
    );
    gateway(upstream, &sections(signer, &keys))
}

fn verification(signer: &Signer, gateway: &Gateway, state: &Value) -> String {
    let events = json!({ VERIFICATION: { "state": state } });
    event(signer, gateway, &session("stream-1"), &json!({ "events": events }))
}

#[tokio::test]
async fn the_state_of_a_requested_verification_comes_back() {
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    let gateway = start(&signer, &upstream, &poll);
    eventually("a verification is requested at the start", || !poll.state().verifications.is_empty()).await;
    let asked = poll.state().verifications[0].clone();
    assert_eq!((&asked["stream_id"], poll.state().tokens.len()), (&json!("stream-1"), 1));
    let silence = "bearward_event_stream_silence_seconds{stream=\"corp\"}";
    let overdue = "bearward_event_stream_overdue{stream=\"corp\"}";
    gateway.advance(Duration::from_secs(3 * 3_600));
    assert_eq!(gateway.metric(overdue).await, 0.0);
    gateway.advance(Duration::from_secs(2 * 3_600));
    assert_eq!((gateway.metric(silence).await, gateway.metric(overdue).await), (18_000.0, 1.0));
    // It comes late, and counts nevertheless: nothing is remembered but the key of the state.
    eventually_ok("the verification is accepted", async || {
        let response = push(&gateway, &verification(&signer, &gateway, &asked["state"])).await;
        if response.status == 202 { Ok(()) } else { Err(response.text()) }
    })
    .await;
    assert_eq!((gateway.metric(silence).await, gateway.metric(overdue).await), (0.0, 0.0));
    let verified = "bearward_provider_reports_total{source=\"corp\",kind=\"verification\",outcome=\"verified\"}";
    assert!(gateway.metric(verified).await >= 1.0);
    eventually("another one is requested after verify_interval", || poll.state().verifications.len() == 2).await;
    let state = asked["state"].as_str().expect("text");
    assert_ne!(poll.state().verifications[1]["state"], *state);
    for wrong in [json!("x"), json!(""), json!(7), json!(format!("{state}AAAA")), json!(state.to_lowercase())] {
        let response = push(&gateway, &verification(&signer, &gateway, &wrong)).await;
        assert_eq!(error(&response), (400, "invalid_state".to_owned()), "{wrong}");
    }
    // Without a state, the transmitter began it.
    let own = event(&signer, &gateway, &session("stream-1"), &json!({ "events": { VERIFICATION: {} } }));
    assert_eq!(push(&gateway, &own).await.status, 202);
}

#[tokio::test]
async fn a_stopped_stream_is_counted() {
    const UPDATED: &str = "https://schemas.openid.net/secevent/ssf/event-type/stream-updated";
    let (signer, upstream, poll) = (Signer::start(), Upstream::start(), Poll::start());
    let gateway = start(&signer, &upstream, &poll);
    let updated = |stream: &str, status: &str| {
        let events = json!({ UPDATED: { "status": status } });
        event(&signer, &gateway, &session(stream), &json!({ "events": events }))
    };
    let stopped = "bearward_provider_reports_total{source=\"corp\",kind=\"stream-updated\",outcome=\"stopped\"}";
    eventually_ok("the gateway has the keys", async || {
        let response = push(&gateway, &updated("stream-2", "paused")).await;
        if response.status == 202 { Ok(()) } else { Err(response.text()) }
    })
    .await;
    assert_eq!(push(&gateway, &updated("stream-1", "enabled")).await.status, 202);
    assert_eq!(gateway.metric(stopped).await, 0.0, "another stream, and a good status");
    assert_eq!(push(&gateway, &updated("stream-1", "disabled")).await.status, 202);
    assert_eq!(gateway.metric(stopped).await, 1.0);
}
