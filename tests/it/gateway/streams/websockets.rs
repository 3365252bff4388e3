//! A close frame 1008, between two frames of the backend, to both sides.

use std::sync::Arc;

use bearward::config::{self, Probe};
use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::support::tokens::{FOREIGN, Mint, claims_of, header_of};

#[tokio::test]
async fn who_is_revoked_is_told_so_and_others_go_on() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let (mut ours, mut theirs) = (open(&gateway, &alice.access).await, open(&gateway, &bob.access).await);
    echoes(&mut ours).await;
    assert_eq!(gateway.revoke(&alice.access, &alice.token_id).await.status, 200);
    assert_eq!(within_a_second(closed(&mut ours)).await, revoked());
    logged(&gateway, "revoked").await;
    gateway.counts("streams_ended_total{reason=\"revoked\"}", 1).await;
    gateway.counts("streams_opened_total", 2).await;
    gateway.counts("streams_closed_total", 1).await;
    echoes(&mut theirs).await;
}

#[tokio::test]
async fn who_expires_is_told_so() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let alice = gateway.issue("alice", "").await;
    let mut socket = open(&gateway, &alice.access).await;
    gateway.advance(Duration::from_mins(14));
    echoes(&mut socket).await;
    gateway.advance(LIFE);
    assert_eq!(within_a_second(closed(&mut socket)).await, expired());
    logged(&gateway, "expired").await;
}

#[tokio::test]
async fn whatever_revokes_a_token_ends_its_streams() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::trusting(&upstream, &mint, "");
    let admin = gateway.admin_client();
    let revocation = async |what: Value| {
        let answer = admin.post("/admin/v1/revocations", &what).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let alice = gateway.issue("alice", "").await.access;
    let mut socket = open(&gateway, &alice).await;
    revocation(json!({ "jti": claims_of(&alice)["jti"] })).await;
    assert_eq!(within_a_second(closed(&mut socket)).await, revoked(), "by its jti");

    let foreign = mint.with_claims(gateway.now_secs(), json!({ "sub": "alice" }));
    let mut bob = open(&gateway, &gateway.issue("bob", "").await.access).await;
    let mut socket = open(&gateway, &foreign).await;
    revocation(json!({ "sub": "alice", "issuer": FOREIGN })).await;
    assert_eq!(within_a_second(closed(&mut socket)).await, revoked(), "by its subject, of another issuer");
    echoes(&mut bob).await;

    let carol = gateway.issue("carol", "").await.access;
    let mut socket = open(&gateway, &carol).await;
    let path = format!("/admin/v1/keys/{}/revoke", header_of(&carol)["kid"].as_str().expect("a kid"));
    assert_eq!(admin.post(&path, &json!({})).await.status, 200);
    for socket in [&mut socket, &mut bob] {
        let told = (1008, "the key that signed the token was revoked".to_owned());
        assert_eq!(within_a_second(closed(socket)).await, told, "by its key");
    }
    logged(&gateway, "key_revoked").await;

    let mut socket = open(&gateway, &gateway.issue("dora", "").await.access).await;
    gateway.advance(SECOND);
    revocation(json!({ "all": true })).await;
    assert_eq!(within_a_second(closed(&mut socket)).await, revoked(), "with everything");
}

/// Its keys are gone with it; our own are looked at again, and hold.
#[tokio::test]
async fn an_issuer_that_is_trusted_no_longer_has_no_streams() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::trusting(&upstream, &mint, "");
    let mut ours = open(&gateway, &gateway.issue("alice", "").await.access).await;
    let mut theirs = open(&gateway, &mint.good(gateway.now_secs())).await;
    let text = Gateway::text(&upstream.address.to_string(), "");
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    gateway.running().reload(config).expect("it reloads");
    let told = (1008, "the token's issuer is not accepted".to_owned());
    assert_eq!(within_a_second(closed(&mut theirs)).await, told);
    echoes(&mut ours).await;
}

/// The backend sends a frame in pieces, and the end comes in the middle of it.
#[tokio::test]
async fn a_frame_under_way_is_passed_on_whole() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (began, goes_on) = (begun.clone(), go_on.clone());
    let backend = Scripted::start(move |mut wire, number| {
        let (began, goes_on) = (began.clone(), goes_on.clone());
        async move {
            wire.hear_until("\r\n\r\n").await;
            wire.say(SWITCHED).await;
            if number == 0 {
                // A witness: when it is ended, so is the other.
                wire.hear_to_the_end().await;
                return;
            }
            // Binary, 70,000 bytes; then the beginning of another that nobody shall see.
            wire.say([&[0x82, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70][..], &[7; 30_000]].concat()).await;
            began.notify_one();
            goes_on.notified().await;
            wire.say(&[7; 20_000]).await;
            wire.say([&[7; 20_000][..], &[0x81, 3, b'n', b'o']].concat()).await;
            wire.hear_to_the_end().await;
        }
    });
    let gateway = gateway_of_one_worker(&backend.address.to_string(), "");
    let pair = gateway.issue("alice", "").await;
    let mut witness = open_wire(&gateway, &pair.access).await;
    let mut client = open_wire(&gateway, &pair.access).await;
    begun.notified().await;
    let first = client.hear_bytes(10 + 30_000).await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    let close = [&[0x88, 23][..], &1008_u16.to_be_bytes(), b"the token was revoked"].concat();
    assert_eq!(witness.hear_bytes(close.len()).await, close);
    go_on.notify_one();
    let rest = client.hear_bytes(40_000).await;
    assert!(first[10..].iter().chain(&rest).all(|byte| *byte == 7));
    assert_eq!(client.hear_bytes(close.len()).await, close, "right behind the frame");
    client.is_closed().await;
}

#[tokio::test]
async fn a_frame_that_never_ends_does_not_keep_it_open() {
    let backend = Scripted::start(|mut wire, _| async move {
        wire.hear_until("\r\n\r\n").await;
        wire.say(SWITCHED).await;
        wire.say([0x82, 100, 1, 2, 3]).await;
        wire.hear_to_the_end().await;
    });
    let gateway = Gateway::from_text(Gateway::text(&backend.address.to_string(), ""));
    let pair = gateway.issue("alice", "").await;
    let mut client = open_wire(&gateway, &pair.access).await;
    assert_eq!(client.hear_bytes(5).await, [0x82, 100, 1, 2, 3]);
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    within_a_second(client.is_closed()).await;
    logged(&gateway, "revoked").await;
}

#[tokio::test]
async fn the_backend_is_told_as_well() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = Arc::new(std::sync::Mutex::new(Some(tell)));
    let backend = Scripted::start(move |mut wire, _| {
        let tell = tell.clone();
        async move {
            wire.hear_until("\r\n\r\n").await;
            wire.say(SWITCHED).await;
            let head = wire.hear_bytes(6).await;
            let masked = wire.hear_bytes(usize::from(head[1] & 0x7f)).await;
            let payload: Vec<u8> =
                masked.iter().zip(head[2..].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            wire.is_closed().await;
            let tell = tell.lock().expect("unpoisoned").take().expect("one connection");
            tell.send((head[0], head[1] & 0x80, payload)).expect("somebody listens");
        }
    });
    let gateway = Gateway::from_text(Gateway::text(&backend.address.to_string(), ""));
    let pair = gateway.issue("alice", "").await;
    let _client = open_wire(&gateway, &pair.access).await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    let (opcode, masked, payload) = within_a_second(told).await.expect("it was told");
    assert_eq!((opcode, masked), (0x88, 0x80));
    assert_eq!(payload, [&1008_u16.to_be_bytes()[..], b"the token was revoked"].concat());
}

const UNENFORCED: &str = r#"
[[route]]
path = "/"
[[route]]
path = "/open/"
public = true
[[route]]
path = "/watched/"
enforce = false
"#;

#[tokio::test]
async fn where_no_token_is_asked_for_or_only_observed_nothing_ends() {
    let upstream = Upstream::start();
    let gateway = gateway_of_one_worker(&upstream.address.to_string(), UNENFORCED);
    let pair = gateway.issue("alice", "").await;
    let at = async |path: &str| {
        let mut request = format!("ws://gateway.test{path}").into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {}", pair.access).parse().expect("a value"));
        let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
        client_async(request, stream).await.expect("a WebSocket").0
    };
    let (mut enforced, mut public, mut observed) = (at("/ws").await, at("/open/ws").await, at("/watched/ws").await);
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(closed(&mut enforced).await, revoked());
    echoes(&mut public).await;
    echoes(&mut observed).await;
}
