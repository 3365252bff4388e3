//! A WebSocket with a token that ends: both sides receive a close frame 1008, between two frames of the backend.

use std::sync::Arc;

use bearward::config::{self, Probe};
use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint, claims_of, header_of};

#[tokio::test]
async fn a_revocation_closes_only_the_streams_of_its_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let (mut of_alice, mut of_bob) = (open(&gateway, &alice.access).await, open(&gateway, &bob.access).await);
    assert_open(&mut of_alice).await;
    assert_eq!(gateway.revoke(&alice.access, &alice.token_id).await.status, 200);
    assert_eq!(within_a_second(close_frame(&mut of_alice)).await, revoked());
    assert_ended(&gateway, "revoked").await;
    gateway.wait_for_metric("streams_ended_total{reason=\"revoked\"}", 1).await;
    gateway.wait_for_metric("streams_opened_total", 2).await;
    gateway.wait_for_metric("streams_closed_total", 1).await;
    assert_open(&mut of_bob).await;
}

#[tokio::test]
async fn an_expired_token_closes_its_stream() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let alice = gateway.issue("alice", "").await;
    let mut socket = open(&gateway, &alice.access).await;
    gateway.advance(Duration::from_mins(14));
    assert_open(&mut socket).await;
    gateway.advance(LIFETIME);
    assert_eq!(within_a_second(close_frame(&mut socket)).await, expired());
    assert_ended(&gateway, "expired").await;
}

#[tokio::test]
async fn every_kind_of_revocation_closes_streams() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, "");
    let admin = gateway.admin_client();
    let revocation = async |what: Value| {
        let response = admin.post("/admin/v1/revocations", &what).await;
        assert_eq!(response.status, 200, "{response:?}");
    };
    let alice = gateway.issue("alice", "").await.access;
    let mut socket = open(&gateway, &alice).await;
    revocation(json!({ "jti": claims_of(&alice)["jti"] })).await;
    assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked(), "by its jti");

    let external = mint.with_claims(gateway.now_secs(), json!({ "sub": "alice" }));
    let mut bob = open(&gateway, &gateway.issue("bob", "").await.access).await;
    let mut socket = open(&gateway, &external).await;
    revocation(json!({ "sub": "alice", "issuer": EXTERNAL_ISSUER })).await;
    assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked(), "by its subject, of another issuer");
    assert_open(&mut bob).await;

    let of = |sid: &str| mint.with_claims(gateway.now_secs(), json!({ "sub": "dan", "sid": sid }));
    let (mut socket, mut other) = (open(&gateway, &of("1")).await, open(&gateway, &of("2")).await);
    revocation(json!({ "session": "1", "issuer": EXTERNAL_ISSUER })).await;
    assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked(), "by its session, of another issuer");
    assert_open(&mut other).await;

    let carol = gateway.issue("carol", "").await.access;
    let mut socket = open(&gateway, &carol).await;
    let path = format!("/admin/v1/keys/{}/revoke", header_of(&carol)["kid"].as_str().expect("a kid"));
    assert_eq!(admin.post(&path, &json!({})).await.status, 200);
    for socket in [&mut socket, &mut bob] {
        let key_revoked = (1008, "the key that signed the token was revoked".to_owned());
        assert_eq!(within_a_second(close_frame(socket)).await, key_revoked, "by its key");
    }
    assert_ended(&gateway, "key_revoked").await;

    let mut socket = open(&gateway, &gateway.issue("dora", "").await.access).await;
    gateway.advance(SECOND);
    revocation(json!({ "all": true })).await;
    assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked(), "with everything");
}

/// The gateway checks all streams again. Those with its own tokens stay open.
#[tokio::test]
async fn removing_an_issuer_closes_its_streams() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, "");
    let mut own = open(&gateway, &gateway.issue("alice", "").await.access).await;
    let mut external = open(&gateway, &mint.valid_token(gateway.now_secs())).await;
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a valid configuration");
    gateway.running().reload(config).expect("it reloads");
    let not_accepted = (1008, "the token's issuer is not accepted".to_owned());
    assert_eq!(within_a_second(close_frame(&mut external)).await, not_accepted);
    assert_open(&mut own).await;
}

/// The backend sends a frame in parts. The token is revoked between two of them.
#[tokio::test]
async fn a_frame_in_flight_is_forwarded_completely() {
    let (half_sent, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (sent, resumed) = (half_sent.clone(), go_on.clone());
    let backend = ScriptedBackend::start(move |mut wire, number| {
        let (sent, resumed) = (sent.clone(), resumed.clone());
        async move {
            wire.read_until("\r\n\r\n").await;
            wire.send(SWITCHED).await;
            if number == 0 {
                // The first connection: when the gateway has ended it, it has handled the revocation.
                wire.read_to_end().await;
                return;
            }
            // A binary frame of 70,000 bytes, and then the start of a frame that the client must not receive.
            wire.send([&[0x82, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70][..], &[7; 30_000]].concat()).await;
            sent.notify_one();
            resumed.notified().await;
            wire.send(&[7; 20_000]).await;
            wire.send([&[7; 20_000][..], &[0x81, 3, b'n', b'o']].concat()).await;
            wire.read_to_end().await;
        }
    });
    let gateway = gateway_of_one_worker(&backend.address.to_string(), "");
    let pair = gateway.issue("alice", "").await;
    let mut witness = open_wire(&gateway, &pair.access).await;
    let mut client = open_wire(&gateway, &pair.access).await;
    half_sent.notified().await;
    let first = client.read_bytes(10 + 30_000).await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    let close = [&[0x88, 23][..], &1008_u16.to_be_bytes(), b"the token was revoked"].concat();
    assert_eq!(witness.read_bytes(close.len()).await, close);
    go_on.notify_one();
    let rest = client.read_bytes(40_000).await;
    assert!(first[10..].iter().chain(&rest).all(|byte| *byte == 7));
    assert_eq!(client.read_bytes(close.len()).await, close, "right after the complete frame");
    client.assert_closed().await;
}

#[tokio::test]
async fn an_incomplete_frame_does_not_keep_the_stream_open() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send(SWITCHED).await;
        wire.send([0x82, 100, 1, 2, 3]).await;
        wire.read_to_end().await;
    });
    let gateway = Gateway::from_text(Gateway::config_text(&backend.address.to_string(), ""));
    let pair = gateway.issue("alice", "").await;
    let mut client = open_wire(&gateway, &pair.access).await;
    assert_eq!(client.read_bytes(5).await, [0x82, 100, 1, 2, 3]);
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    within_a_second(client.assert_closed()).await;
    assert_ended(&gateway, "revoked").await;
}

#[tokio::test]
async fn the_backend_receives_a_close_frame_too() {
    let (sender, received) = tokio::sync::oneshot::channel();
    let sender = Arc::new(std::sync::Mutex::new(Some(sender)));
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let sender = sender.clone();
        async move {
            wire.read_until("\r\n\r\n").await;
            wire.send(SWITCHED).await;
            let head = wire.read_bytes(6).await;
            let masked = wire.read_bytes(usize::from(head[1] & 0x7f)).await;
            let payload: Vec<u8> =
                masked.iter().zip(head[2..].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            wire.assert_closed().await;
            let sender = sender.lock().expect("unpoisoned").take().expect("one connection");
            sender.send((head[0], head[1] & 0x80, payload)).expect("the test waits for it");
        }
    });
    let gateway = Gateway::from_text(Gateway::config_text(&backend.address.to_string(), ""));
    let pair = gateway.issue("alice", "").await;
    let _client = open_wire(&gateway, &pair.access).await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    let (opcode, masked, payload) = within_a_second(received).await.expect("a close frame");
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
async fn streams_of_public_and_unenforced_routes_stay_open() {
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
    assert_eq!(close_frame(&mut enforced).await, revoked());
    assert_open(&mut public).await;
    assert_open(&mut observed).await;
}

#[tokio::test]
async fn the_stream_of_an_api_key_lasts_until_the_key_ends() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "[[route]]\npath = \"/\"\napi_keys = true\n");
    let admin = gateway.admin_client();
    let request = json!({ "sub": "robot", "expiresIn": 3600 });
    let issued = async || admin.post("/admin/v1/api-keys", &request).await.json();
    let (revoked_key, key) = (issued().await, issued().await);
    let text = |key: &Value, member: &str| key[member].as_str().expect("text").to_owned();
    let mut of_revoked = open(&gateway, &text(&revoked_key, "apiKey")).await;
    let mut socket = open(&gateway, &text(&key, "apiKey")).await;
    gateway.wait_for_metric("streams_opened_total", 2).await;
    let path = format!("/admin/v1/api-keys/{}", text(&revoked_key, "keyId"));
    assert_eq!(admin.delete(&path).await.status, 200);
    assert_eq!(within_a_second(close_frame(&mut of_revoked)).await, revoked());

    // The gateway reads the key again before it would have to end the stream.
    for _ in 0..5 {
        let reads = async || gateway.metric("bearward_api_key_reads_total{result=\"ok\"").await;
        let before = reads().await;
        gateway.advance(Duration::from_mins(10));
        crate::support::wait::eventually_ok("the gateway has read the key again", async || {
            if reads().await > before { Ok(()) } else { Err(before.to_string()) }
        })
        .await;
        assert_open(&mut socket).await;
    }
    // The gateway has read it, and no program has used it.
    let listed = admin.get("/admin/v1/api-keys").await.json();
    let of_key = listed["apiKeys"].as_array().expect("a list").iter().find(|entry| entry["keyId"] == key["keyId"]);
    assert_eq!(of_key.expect("listed").get("lastUsedAt"), None, "{listed}");
    gateway.advance(Duration::from_mins(10));
    assert_eq!(within_a_second(close_frame(&mut socket)).await, expired());
}
