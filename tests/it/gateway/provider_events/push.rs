//! Security events that a transmitter pushes (RFC 8935).

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::transmitter::{AUTHORIZATION, SESSION_REVOKED, claims, event, gateway, new_jti, sections, session, user};
use super::{Signer, changed};
use crate::gateway::streams::{assert_open, close_frame, open, revoked, within_a_second};
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, TestResponse, Upstream};

const PATH: &str = "path = \"/events/corp\"";

async fn start(signer: &Signer, upstream: &Upstream, more: &str) -> Gateway {
    let gateway = gateway(upstream, &sections(signer, &format!("{PATH}\n{more}")));
    eventually_ok("the gateway has the transmitter's keys", async || {
        let response = push(&gateway, &event(signer, &gateway, &session("no such"), &json!({}))).await;
        if response.status == 202 { Ok(()) } else { Err(response.text()) }
    })
    .await;
    gateway
}

pub async fn push(gateway: &Gateway, token: &str) -> TestResponse {
    push_as(gateway.client().header("authorization", AUTHORIZATION), token).await
}

async fn push_as(client: Client, token: &str) -> TestResponse {
    let client = client.header("content-type", "application/secevent+jwt");
    client.send(Method::POST, "/events/corp", Bytes::from(token.to_owned())).await
}

pub(super) fn error(response: &TestResponse) -> (u16, String) {
    (response.status.as_u16(), response.json()["err"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_revoked_session_closes_its_streams_at_once() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let now = gateway.now_secs();
    let (one, other) = (signer.access_token(now, "alice", Some("s1")), signer.access_token(now, "alice", Some("s2")));
    let (mut ended, mut open_still) = (open(&gateway, &one).await, open(&gateway, &other).await);
    assert_open(&mut ended).await;
    let subject = json!({ "format": "complex", "user": user(&signer, "alice"), "session": session("s1") });
    let response = push(&gateway, &event(&signer, &gateway, &subject, &json!({}))).await;
    assert_eq!((response.status.as_u16(), response.body.len()), (202, 0));
    assert_eq!(within_a_second(close_frame(&mut ended)).await, revoked());
    assert_open(&mut open_still).await;
    let event = gateway.audit_events(2).await.into_iter().find(|event| event["session"] == "s1").expect("an event");
    assert_eq!(event["provider"], "corp", "{event}");
}

#[tokio::test]
async fn an_old_event_leaves_a_later_login_alone() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let now = gateway.now_secs();
    let before = signer.access_token(now - 100, "alice", None);
    let at_once = signer.access_token(now - 60, "alice", None);
    let after = signer.access_token(now - 59, "alice", None);
    let events = json!({ SESSION_REVOKED: { "event_timestamp": now - 60 } });
    let token = event(&signer, &gateway, &user(&signer, "alice"), &json!({ "events": events }));
    assert_eq!(push(&gateway, &token).await.status, 202);
    for (token, status) in [(&before, 401), (&at_once, 401), (&after, 200)] {
        assert_eq!(gateway.status_of(token).await, status);
    }
}

#[tokio::test]
async fn each_wrong_event_gets_its_error() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let alice = signer.access_token(gateway.now_secs(), "alice", Some("s1"));
    let good = claims(&signer, &gateway, &session("s1"));
    let with = |changes: Value| signer.sign("secevent+jwt", &changed(good.clone(), &changes));
    let stranger = Signer::start();
    let other_key = {
        let mut header = signer.mint.header();
        header["typ"] = "secevent+jwt".into();
        stranger.mint.sign(&header, &good)
    };
    let two = json!({ SESSION_REVOKED: {}, "https://other.example": {} });
    let verification = json!({ "https://schemas.openid.net/secevent/ssf/event-type/verification": { "state": "x" } });
    for (what, token, err) in [
        ("exp", with(json!({ "exp": gateway.now_secs() + 60 })), "invalid_request"),
        ("sub", with(json!({ "sub": "alice" })), "invalid_request"),
        ("two events", with(json!({ "events": two })), "invalid_request"),
        ("no jti", with(json!({ "jti": null })), "invalid_request"),
        ("no iat", with(json!({ "iat": null })), "invalid_request"),
        ("too old", with(json!({ "iat": gateway.now_secs() - 8 * 86_400 })), "invalid_request"),
        ("another issuer", with(json!({ "iss": "https://other.example" })), "invalid_issuer"),
        ("the stream of another receiver", with(json!({ "aud": "https://other.example" })), "invalid_audience"),
        ("an unknown key", stranger.sign("secevent+jwt", &good), "invalid_key"),
        ("a bad signature", other_key, "authentication_failed"),
        ("a logout token", signer.sign("logout+jwt", &good), "invalid_request"),
        ("an access token", alice.clone(), "invalid_request"),
        ("a state that was not chosen", with(json!({ "events": verification })), "invalid_state"),
        ("garbage", "garbage".to_owned(), "invalid_request"),
    ] {
        assert_eq!(error(&push(&gateway, &token).await), (400, err.to_owned()), "{what}");
    }
    assert_eq!(gateway.status_of(&alice).await, 200);
    let line = gateway.log_line(|line| line["reason"] == "bad_security_event").await;
    assert_eq!(line["status"], 400);
    let none = gateway.client().header("authorization", AUTHORIZATION).header("content-type", "application/jwt");
    let response = none.send(Method::POST, "/events/corp", Bytes::from(with(json!({})))).await;
    assert_eq!(error(&response), (400, "invalid_request".to_owned()), "another media type");
}

/// The transmitter is asked for its keys once in 30 seconds. Until then, it has to send the event again.
#[tokio::test]
async fn an_event_with_a_new_key_is_not_lost() {
    let (mut signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let alice = signer.access_token(gateway.now_secs(), "alice", Some("s1"));
    assert_eq!(gateway.status_of(&alice).await, 200);
    let good = claims(&signer, &gateway, &session("s1"));
    assert_eq!(error(&push(&gateway, &Signer::start().sign("secevent+jwt", &good)).await).1, "invalid_key");
    signer.mint = super::Mint::new(super::Algorithm::ES256);
    signer.server.publish(&[&signer.mint]);
    let token = signer.sign("secevent+jwt", &good);
    let response = push(&gateway, &token).await;
    assert_eq!((response.status.as_u16(), response.header("retry-after").is_some()), (503, true), "{response:?}");
    gateway.advance(std::time::Duration::from_secs(31));
    assert_eq!(push(&gateway, &token).await.status, 202);
}

#[tokio::test]
async fn only_the_transmitter_may_push() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let alice = signer.access_token(gateway.now_secs(), "alice", Some("s1"));
    let token = event(&signer, &gateway, &session("s1"), &json!({}));
    let wrong = AUTHORIZATION.replace("Bearer ", "");
    for client in [
        gateway.client(),
        gateway.client().header("authorization", "Bearer wrong"),
        gateway.client().header("authorization", &wrong),
        gateway.client().header("authorization", AUTHORIZATION).header("authorization", AUTHORIZATION),
    ] {
        assert_eq!(push_as(client, &token).await.status, 401);
    }
    assert_eq!(gateway.status_of(&alice).await, 200);
    assert_eq!(push(&gateway, &token).await.status, 202);
    assert_eq!(gateway.status_of(&alice).await, 401);
}

#[tokio::test]
async fn an_event_is_carried_out_once() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let of = |sid: &str| event(&signer, &gateway, &session(sid), &json!({ "jti": "the same" }));
    let (first, other) = (of("s1"), of("s2"));
    let access = signer.access_token(gateway.now_secs(), "alice", Some("s2"));
    assert_eq!(push(&gateway, &first).await.status, 202);
    assert_eq!(push(&gateway, &first).await.status, 202, "the transmitter repeats it");
    assert_eq!(error(&push(&gateway, &other).await), (400, "invalid_request".to_owned()));
    assert_eq!(gateway.status_of(&access).await, 200);
    let repeated = "bearward_provider_reports_total{source=\"corp\",kind=\"session-revoked\",outcome=\"repeated\"}";
    assert_eq!(gateway.metric(repeated).await, 1.0);
}

#[tokio::test]
async fn what_cannot_be_mapped_is_counted_and_does_nothing() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let alice = signer.access_token(gateway.now_secs(), "alice", Some("s1"));
    let other_issuer = json!({ "format": "iss_sub", "iss": "https://other.example", "sub": "alice" });
    let device = json!({ "format": "complex", "user": user(&signer, "alice"), "device": session("d") });
    let email = json!({ "format": "email", "email": "alice@corp.example" });
    for subject in [other_issuer, device, email] {
        assert_eq!(push(&gateway, &event(&signer, &gateway, &subject, &json!({}))).await.status, 202, "{subject}");
    }
    let unknown = json!({ "events": { "https://other.example/event": {} } });
    assert_eq!(push(&gateway, &event(&signer, &gateway, &user(&signer, "alice"), &unknown)).await.status, 202);
    assert_eq!(gateway.status_of(&alice).await, 200);
    let count = async |kind: &str, outcome: &str| {
        let labels = format!("source=\"corp\",kind=\"{kind}\",outcome=\"{outcome}\"");
        gateway.metric(&format!("bearward_provider_reports_total{{{labels}}}")).await
    };
    assert_eq!(count("session-revoked", "unmapped").await, 3.0);
    assert_eq!(count("other", "ignored").await, 1.0);
}

#[tokio::test]
async fn a_disabled_account_and_a_new_password_end_sessions() {
    const RISC: &str = "https://schemas.openid.net/secevent/risc/event-type/account-disabled";
    const CHANGE: &str = "https://schemas.openid.net/secevent/caep/event-type/credential-change";
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let new_password = json!({ CHANGE: { "change_type": "update", "credential_type": "password" } });
    let new_device = json!({ CHANGE: { "change_type": "create", "credential_type": "fido2-platform" } });
    for (name, events, status) in
        [("alice", json!({ RISC: {} }), 401), ("bob", new_password, 401), ("carol", new_device, 200)]
    {
        let access = signer.access_token(gateway.now_secs(), name, None);
        assert_eq!(gateway.status_of(&access).await, 200);
        let token = event(&signer, &gateway, &user(&signer, name), &json!({ "events": events, "jti": new_jti() }));
        assert_eq!(push(&gateway, &token).await.status, 202);
        assert_eq!(gateway.status_of(&access).await, status, "{name}");
    }
}

/// Garbage, and good claims with bad signatures, cost the store nothing and are limited. Another address is not.
#[tokio::test]
async fn a_flood_of_garbage_writes_nothing_and_is_limited() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "[forwarding]\ntrusted = [\"127.0.0.0/8\"]").await;
    let alice = signer.access_token(gateway.now_secs(), "alice", Some("s1"));
    assert_eq!(gateway.status_of(&alice).await, 200);
    let database =
        || std::fs::metadata(gateway.path().join("bearward.db-wal")).expect("a file").modified().expect("a time");
    let from =
        |address: &str| gateway.client().header("authorization", AUTHORIZATION).header("x-forwarded-for", address);
    let stranger = Signer::start();
    let forged = {
        let mut header = signer.mint.header();
        header["typ"] = "secevent+jwt".into();
        stranger.mint.sign(&header, &claims(&signer, &gateway, &session("s1")))
    };
    let unsigned = format!("{}.{}", forged.rsplit_once('.').expect("a signature").0, "A".repeat(86));
    // What the events before have left to write.
    let before = eventually_ok("the store is quiet", async || {
        let before = database();
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        if database() == before { Ok(before) } else { Err("it is written".to_owned()) }
    })
    .await;
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    for number in 0..1_000 {
        let token = match number % 4 {
            0 => "garbage".to_owned(),
            1 => format!("a.b.{number}"),
            2 => forged.clone(),
            _ => unsigned.clone(),
        };
        *statuses.entry(push_as(from("192.0.2.1"), &token).await.status.as_u16()).or_default() += 1;
    }
    assert_eq!(database(), before, "the store was written");
    let limited = statuses.get(&429).copied().unwrap_or_default();
    // `throttle.failures`
    assert!(limited > 300 && statuses.keys().all(|status| matches!(status, 400 | 429)), "{statuses:?}");
    assert_eq!(gateway.status_of(&alice).await, 200);
    let good = event(&signer, &gateway, &session("s1"), &json!({}));
    assert_eq!(push_as(from("198.51.100.7"), &good).await.status, 202, "the transmitter is not limited");
    assert_eq!(gateway.status_of(&alice).await, 401);
}

/// A change that ends no session: claims, assurance, a device. Without a login at a provider, nothing is refreshed.
#[tokio::test]
async fn each_type_of_event_is_counted_by_its_name() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let alice = signer.access_token(gateway.now_secs(), "alice", None);
    assert_eq!(gateway.status_of(&alice).await, 200);
    for (profile, kind, outcome) in [
        ("caep", "token-claims-change", "refreshed"),
        ("caep", "assurance-level-change", "refreshed"),
        ("caep", "device-compliance-change", "refreshed"),
        ("caep", "risk-level-change", "refreshed"),
        ("caep", "session-established", "ignored"),
        ("caep", "session-presented", "ignored"),
        ("risc", "account-enabled", "ignored"),
        ("risc", "identifier-changed", "ignored"),
        ("risc", "identifier-recycled", "ignored"),
        ("risc", "opt-in", "ignored"),
        ("risc", "recovery-activated", "ignored"),
    ] {
        let uri = format!("https://schemas.openid.net/secevent/{profile}/event-type/{kind}");
        let token = event(&signer, &gateway, &user(&signer, "alice"), &json!({ "events": { uri: {} } }));
        assert_eq!(push(&gateway, &token).await.status, 202, "{kind}");
        let labels = format!("source=\"corp\",kind=\"{kind}\",outcome=\"{outcome}\"");
        assert_eq!(gateway.metric(&format!("bearward_provider_reports_total{{{labels}}}")).await, 1.0, "{kind}");
    }
    assert_eq!(gateway.status_of(&alice).await, 200);
}
