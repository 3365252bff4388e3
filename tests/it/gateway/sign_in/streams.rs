//! A WebSocket that was opened with the cookie of a login ends with it.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::{APP, CALLBACK, CLIENT, SECRET, everything, gateway, provider};
use crate::gateway::provider_events::transmitter::{self, Poll, SESSION_REVOKED};
use crate::gateway::provider_events::{Signer, push};
use crate::gateway::streams::{Socket, assert_open, close_frame, revoked, within_a_second};
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, OidcProvider, Upstream};

async fn open(gateway: &Gateway, visitor: &Visitor) -> Socket {
    let mut request = "ws://app.example/ws".into_client_request().expect("a request");
    let cookie = format!("__Host-bearward={}", visitor.session().expect("a session"));
    for (name, value) in [("cookie", cookie.as_str()), ("origin", APP)] {
        request.headers_mut().insert(name, value.parse().expect("a header value"));
    }
    let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
    let mut socket = client_async(request, stream).await.expect("a WebSocket").0;
    assert_open(&mut socket).await;
    socket
}

/// Alice and Bob have signed in, each with a WebSocket.
async fn opened() -> (OidcProvider, Upstream, Gateway, (Visitor, Socket), (Visitor, Socket)) {
    let (provider, upstream) = (provider::start(json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&provider.issuer, "")).await;
    let uri = format!("http://{}/oauth2/backchannel_logout/main", gateway.address());
    let client = json!({
        "client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [CALLBACK],
        "grant_types": ["authorization_code"], "scope": "openid profile email",
        "backchannel_logout_uri": uri, "backchannel_logout_session_required": true,
    });
    provider.control("/clients", &client).await;
    let mut sockets = Vec::new();
    for name in ["alice", "bob"] {
        provider.control("/account", &json!({ "account": name })).await;
        let mut visitor = Visitor::of(&gateway);
        assert_eq!(visitor.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", visitor.way);
        let socket = open(&gateway, &visitor).await;
        sockets.push((visitor, socket));
    }
    let bob = sockets.pop().expect("two");
    let alice = sockets.pop().expect("two");
    (provider, upstream, gateway, alice, bob)
}

#[tokio::test]
async fn a_websocket_ends_within_a_second_of_the_sign_out() {
    let (_provider, _upstream, _gateway, (mut alice, mut socket), (_, mut of_bob)) = opened().await;
    assert_eq!(alice.submit(&format!("{APP}/oauth2/sign_out"), "").await.status, 303);
    assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked());
    assert_open(&mut of_bob).await;
}

#[tokio::test]
async fn a_websocket_ends_within_a_second_of_the_end_of_the_session_at_the_provider() {
    let (provider, _upstream, _gateway, (mut alice, mut socket), (mut bob, mut of_bob)) = opened().await;
    // Returns when the gateway has responded to the provider.
    provider.control("/end", &json!({ "account": "alice" })).await;
    let told = provider.log("backchannel").await;
    assert_eq!((told.len(), &told[0]["result"]), (1, &json!("ok")), "{told:?}");
    assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked());
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    assert_open(&mut of_bob).await;
    assert_eq!(bob.fetch(&format!("{APP}/")).await.status, 200);
}

/// The provider signs with a key that the gateway does not know yet, and leaves before the gateway has fetched it. It
/// sends a logout once.
#[tokio::test]
async fn a_logout_is_carried_out_also_if_the_provider_leaves_first() {
    let (provider, _upstream, _gateway, (mut alice, mut socket), (_, mut of_bob)) = opened().await;
    provider.control("/rotate", &json!({ "keep": true })).await;
    provider.control("/faults", &json!([{ "path": "/jwks", "delay_ms": 4_000 }])).await;
    provider.control("/end", &json!({ "account": "alice" })).await;
    let told = provider.log("backchannel").await;
    assert!(told.len() == 1 && told[0]["result"] != "ok", "the provider has left: {told:?}");
    assert_eq!(close_frame(&mut socket).await, revoked());
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    assert_open(&mut of_bob).await;
}

/// The cookie of a browser has no token of the provider, and a security event names its user.
#[tokio::test]
async fn a_websocket_ends_within_a_second_of_a_security_event() {
    let (signer, poll) = (Signer::start(), Poll::start());
    for is_polled in [false, true] {
        let (provider, upstream) = (provider::start(json!({})), Upstream::start());
        let delivery = if is_polled { poll.section() } else { "path = \"/events/corp\"".to_owned() };
        let keys = format!("{delivery}\nsubject_issuers = [\"{}\"]", provider.issuer);
        let more = format!("{}{}", everything(&provider.issuer, ""), transmitter::sections(&signer, &keys));
        let gateway = gateway(&upstream, &more).await;
        let mut alice = Visitor::of(&gateway);
        assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", alice.way);
        let mut socket = open(&gateway, &alice).await;
        gateway.advance(Duration::from_secs(60));
        let event = |jti: &str, subject: &str| {
            let subject = json!({ "format": "iss_sub", "iss": provider.issuer, "sub": subject });
            let changes = json!({ "jti": jti, "events": { SESSION_REVOKED: {} } });
            transmitter::event(&signer, &gateway, &subject, &changes)
        };
        if is_polled {
            eventually_ok("the gateway polls", async || match poll.state().requests.len() {
                0 => Err(String::new()),
                _ => Ok(()),
            })
            .await;
            poll.offer("j1", event("j1", "alice"));
            // It polls once in a second here.
            assert_eq!(close_frame(&mut socket).await, revoked());
        } else {
            eventually_ok("the gateway has the transmitter's keys", async || {
                let response = push(&gateway, &event(&transmitter::new_jti(), "another user")).await;
                if response.status == 202 { Ok(()) } else { Err(response.text()) }
            })
            .await;
            assert_open(&mut socket).await;
            assert_eq!(push(&gateway, &event("j0", "alice")).await.status, 202);
            assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked());
        }
        alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    }
}
