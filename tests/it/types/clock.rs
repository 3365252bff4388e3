//! The system clock is set back by an hour, and forward. Limits measure time that has passed, and no step changes it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::UnixTime;
use tokio::net::TcpSocket;

use crate::support::clock::ManualClock;
use crate::support::tokens::{Mint, claims_of, header_of};
use crate::support::{Gateway, TestResponse, TokenPair, Upstream, Wire};

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

/// Sets the clock. No time passes.
const STEPS: [fn(&ManualClock); 2] = [|clock| clock.set_back(HOUR), |clock| clock.set_forward(2 * HOUR)];

#[track_caller]
fn assert_limited(response: &TestResponse, seconds: &str) {
    response.assert_rejected(429, "rate_limited");
    assert_eq!(response.header("retry-after"), Some(seconds), "{response:?}");
}

#[tokio::test]
async fn a_set_clock_does_not_change_rates() {
    let upstream = Upstream::start();
    for per in ["route", "address"] {
        let rate = format!("[[rate]]\nper = \"{per}\"\nrequests = 4\nwindow = \"40s\"\nname = \"all\"\n");
        let gateway = Gateway::public(upstream.address, &rate);
        let get = async || gateway.client().get("/").await;
        assert_eq!(get().await.status, 200);
        for step in STEPS {
            step(&gateway.clock);
            for left in ["\"all\";r=2;t=20", "\"all\";r=1;t=30", "\"all\";r=0;t=40"] {
                let response = get().await;
                assert_eq!(response.status, 200, "{response:?}");
                assert_eq!(response.header("ratelimit"), Some(left));
            }
            assert_limited(&get().await, "10");
            gateway.advance(30 * SECOND);
        }
    }
}

#[tokio::test]
async fn a_set_clock_does_not_change_the_throttle() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "calls = 3\nfailures = 0\nrefreshes = 0", "");
    let caller = gateway.issue("alice", "").await;
    let call = async || gateway.revoke(&caller.access, "x").await;
    assert_ne!(call().await.status, 429);
    for step in STEPS {
        step(&gateway.clock);
        assert_ne!(call().await.status, 429);
        assert_ne!(call().await.status, 429);
        assert_limited(&call().await, "20");
        gateway.advance(40 * SECOND);
    }
}

#[tokio::test]
async fn a_set_clock_does_not_change_refresh_limits() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "calls = 0\nfailures = 0\nrefreshes = 3", "");
    let mut pair = gateway.issue("alice", "").await;
    let refresh = async |pair: &TokenPair| {
        let response = gateway.refresh(&pair.access, &pair.refresh).await;
        assert_eq!(response.status, 200, "{response:?}");
        TokenPair::from_json(&response.json())
    };
    pair = refresh(&pair).await;
    for step in STEPS {
        step(&gateway.clock);
        for _ in 0..2 {
            pair = refresh(&pair).await;
        }
        gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(429, "rate_limited");
        // Time for two.
        gateway.advance(40 * SECOND);
    }
}

#[tokio::test]
async fn a_set_clock_does_not_change_penalties() {
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
    let upstream = Upstream::start();
    for step in STEPS {
        let gateway = Gateway::public(upstream.address, "[limits]\nmalformed_requests = 1\nrequest_header_count = 10");
        for _ in 0..2 {
            let mut client = Wire::connect_from(CLIENT, gateway.address()).await;
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(10))).await;
            assert_eq!(client.read_response().await.status, 431);
        }
        step(&gateway.clock);
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(CLIENT, 0)).expect("an address of this machine");
        // The gateway closes the connection so early that `connect` itself may fail.
        if let Ok(stream) = socket.connect(gateway.address()).await {
            Wire::of(stream).assert_closed().await;
        }
        gateway.advance(10 * SECOND);
        let mut client = Wire::connect_from(CLIENT, gateway.address()).await;
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert_eq!(client.read_response().await.status, 200);
    }
}

#[tokio::test]
async fn a_set_clock_does_not_change_signature_limits() {
    let upstream = Upstream::start();
    for step in STEPS {
        let gateway = Gateway::with_config(&upstream, "[limits]\nbad_signatures = 5\n");
        let stranger = Mint::new(Algorithm::ES256);
        let own = gateway.issue("alice", "").await.access;
        let (header, claims) = (header_of(&own), claims_of(&own));
        let forge = |number: u64| {
            let mut claims = claims.clone();
            (claims["jti"], claims["iat"]) = (number.to_string().into(), gateway.now_secs().into());
            claims["exp"] = (gateway.now_secs() + 600).into();
            stranger.sign(&header, &claims)
        };
        let get = async |number| gateway.client().bearer(&forge(number)).get("/").await;
        for number in 0..5 {
            get(number).await.assert_rejected(401, "invalid_token");
        }
        step(&gateway.clock);
        assert_limited(&get(5).await, "2");
        gateway.advance(2 * SECOND);
        get(6).await.assert_rejected(401, "invalid_token");
    }
}

/// The token of a session that began before the step is dated ahead now. The client refreshes, and goes on.
#[tokio::test]
async fn a_client_refreshes_after_the_clock_was_set_back() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    // The login, too, is ahead of the clock after the step.
    let second = gateway.issue("alice", "").await;
    gateway.clock.set_back(HOUR);
    assert_eq!(gateway.status_of(&second.access).await, 401, "not valid yet");
    let response = gateway.refresh(&second.access, &second.refresh).await;
    assert_eq!(response.status, 200, "{response:?}");
    let third = TokenPair::from_json(&response.json());
    assert_eq!(claims_of(&third.access)["iat"], gateway.now_secs());
    assert_eq!(gateway.status_of(&third.access).await, 200);
    gateway.clock.set_forward(2 * HOUR);
    assert_eq!(gateway.status_of(&third.access).await, 401, "expired");
    let response = gateway.refresh(&third.access, &third.refresh).await;
    let fourth = TokenPair::from_json(&response.json());
    assert_eq!(gateway.status_of(&fourth.access).await, 200);
}

/// After the step, the token lives an hour longer than the store expected when it was revoked.
#[tokio::test]
async fn a_clock_set_back_an_hour_revives_no_revoked_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    gateway.advance(30 * 60 * SECOND);
    let store = &gateway.running().broker.store;
    store.sweep(UnixTime::from_secs(gateway.now_secs()), 100).await.expect("the store works");
    gateway.clock.set_back(HOUR);
    gateway.advance(35 * 60 * SECOND);
    let gateway = gateway.restart();
    assert_eq!(gateway.status_of(&pair.access).await, 401, "valid by the clock, and still revoked");
    let lines = gateway.log_lines(2).await;
    assert!(lines.iter().any(|line| line["reason"] == "revoked"), "{lines:?}");
}

/// A token ends at a date, so the clock decides. Nothing else is kept: the token is good again at the right time.
#[tokio::test]
async fn a_known_token_is_good_whenever_the_clock_is_right() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "");
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    gateway.clock.set_forward(HOUR);
    gateway.client().bearer(&pair.access).get("/").await.assert_rejected(401, "invalid_token");
    gateway.clock.set_back(2 * HOUR);
    gateway.client().bearer(&pair.access).get("/").await.assert_rejected(401, "invalid_token");
    gateway.clock.set_forward(HOUR);
    assert_eq!(gateway.status_of(&pair.access).await, 200);
}

/// The same key signs, and what it signs is accepted.
#[tokio::test]
async fn a_set_clock_changes_no_signing_key() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::with_config(&upstream, "");
    let keys = async |gateway: &Gateway| gateway.client().get("/.well-known/jwks.json").await.json();
    let before = keys(&gateway).await;
    for step in STEPS {
        step(&gateway.clock);
        // A start looks at the keys at once.
        gateway = gateway.restart();
        let pair = gateway.issue("alice", "").await;
        assert_eq!(gateway.status_of(&pair.access).await, 200);
        assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200);
        assert_eq!(keys(&gateway).await, before);
    }
}
