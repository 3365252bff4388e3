//! A provider that hangs delays nothing of other sessions: neither their streams nor their sign-outs.

use std::time::Duration;

use serde_json::{Value, json};

use super::provider;
use super::refresh::{KEYS, is_refreshed};
use super::{APP, CLIENT, SECRET, gateway};
use crate::gateway::streams::{Socket, assert_open, open_with};
use crate::support::visitor::Visitor;
use crate::support::wait::{eventually_ok, eventually_within};
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, OidcProvider, Upstream};

/// A gateway with two providers, and a route for each of them.
struct Story {
    gateway: Gateway,
    /// It is to hang.
    main: OidcProvider,
    other: OidcProvider,
    _upstream: Upstream,
}

impl Story {
    /// The access tokens of both providers live 600 s, and a call to them may take a minute.
    async fn begin() -> Story {
        let [main, other] = ["main", "other"].map(|name| provider::start(settings_of(name)));
        let upstream = Upstream::start();
        let providers: String = [("main", &main), ("other", &other)]
            .map(|(name, at)| super::provider(name, &at.issuer, &format!("{KEYS}\nclient_timeout = \"60s\"")))
            .concat();
        let routes = "[[route]]\npath = \"/other/\"\nsign_in = \"other\"\n\
                      [[route]]\npath = \"/keys/\"\napi_keys = true\n\
                      [[route]]\npath = \"/\"\nsign_in = \"main\"\n";
        let more = format!("{providers}[sign_in]\nexternal_urls = [\"{APP}\"]\n{routes}");
        let gateway = gateway(&upstream, &more).await;
        Story { gateway, main, other, _upstream: upstream }
    }

    async fn signed_in(&self, path: &str) -> Visitor {
        eventually_within(TIMEOUT, "the metadata is known", async || {
            let mut visitor = Visitor::of(&self.gateway);
            match visitor.navigate(&format!("{APP}{path}")).await.status.as_u16() {
                200 => Ok(visitor),
                status => Err(status.to_string()),
            }
        })
        .await
    }

    async fn socket(&self, visitor: &Visitor, folder: &str) -> Socket {
        let cookie = format!("__Host-bearward={}", visitor.session().expect("a session"));
        open_with(&self.gateway, &format!("app.example{folder}"), &[("cookie", &cookie), ("origin", APP)]).await
    }
}

fn settings_of(name: &str) -> Value {
    let client = json!({
        "client_id": CLIENT, "client_secret": SECRET,
        "redirect_uris": [format!("{APP}/oauth2/callback/{name}")],
        "post_logout_redirect_uris": [super::SIGNED_OUT],
        "grant_types": ["authorization_code", "refresh_token"], "scope": "openid email offline_access",
    });
    json!({ "clients": [client], "ttl": { "AccessToken": 600, "IdToken": 36_000 } })
}

#[tokio::test]
async fn a_provider_that_hangs_ends_no_streams_of_other_providers_and_of_api_keys() {
    let story = Story::begin().await;
    let gateway = &story.gateway;
    let mut of_main = Vec::new();
    for _ in 0..3 {
        let alice = story.signed_in("/").await;
        of_main.push(story.socket(&alice, "").await);
    }
    let mut bob = story.socket(&story.signed_in("/other/").await, "/other").await;
    let (key, _) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let bearer = format!("Bearer {key}");
    let mut robot = open_with(gateway, "gateway.test/keys", &[("authorization", &bearer)]).await;
    story.main.control("/faults", &json!([{ "path": "/token", "delay_ms": 60_000 }])).await;
    // Each round is shorter than the time that a stream outlives its last read, and both together are longer.
    for round in 1..=3 {
        let reads = gateway.metric("bearward_api_key_reads_total{result=\"ok\"").await;
        gateway.advance(Duration::from_secs(560));
        is_refreshed(&story.other, round).await;
        eventually_ok("the API key is read", async || {
            match gateway.metric("bearward_api_key_reads_total{result=\"ok\"").await {
                now if now > reads => Ok(()),
                now => Err(now.to_string()),
            }
        })
        .await;
        assert_open(&mut bob).await;
        assert_open(&mut robot).await;
    }
    // The refreshes that hang fail, and the gateway can stop.
    drop(story.main);
}

#[tokio::test]
async fn a_provider_that_hangs_delays_no_sign_out_of_another_one() {
    let story = Story::begin().await;
    let mut alice = story.signed_in("/").await;
    let mut bob = story.signed_in("/other/").await;
    story.main.control("/faults", &json!([{ "path": "/token/revocation", "delay_ms": 60_000 }])).await;
    for visitor in [&mut alice, &mut bob] {
        assert_eq!(visitor.submit(&format!("{APP}/oauth2/sign_out"), "").await.status, 303);
    }
    eventually_within(2 * TIMEOUT, "the refresh token is revoked", async || {
        match story.other.log("revocation").await.len() {
            1 => Ok(()),
            number => Err(number.to_string()),
        }
    })
    .await;
    drop(story.main);
}
