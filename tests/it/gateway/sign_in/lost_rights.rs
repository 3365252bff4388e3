//! A user loses a group or a scope: the streams that need it end with the refresh that says so, and only these.

use std::time::Duration;

use serde_json::json;

use super::lies::response;
use super::provider;
use super::refresh::{is_refreshed, refreshes};
use super::renewed;
use super::{APP, everything, gateway};
use crate::gateway::streams::{Socket, assert_open, close_frame, open_with, within_a_second};
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, OidcProvider, Upstream};

const KEYS: &str = "scopes = [\"openid\", \"groups\", \"offline_access\"]\nclaims = [\"groups\"]\n\
                    authorization_parameters = [\"prompt=consent\"]";
const STAFF: &str = "[[route]]\npath = \"/staff/\"\nsign_in = \"main\"\n\
                     [[route.claim]]\npointer = \"/groups\"\ncontains = \"staff\"\n";

const ADMIN: &str = "[[route]]\npath = \"/admin/\"\nsign_in = \"main\"\nscopes = [\"admin\"]\n";

struct Story {
    gateway: Gateway,
    provider: OidcProvider,
    alice: Visitor,
    of_staff: Socket,
    of_all: Socket,
    _upstream: Upstream,
}

/// A WebSocket with the session of this visitor. `place`: the host, and the folder of the path.
async fn open(gateway: &Gateway, visitor: &Visitor, place: &str) -> Socket {
    let cookie = format!("__Host-bearward={}", visitor.session().expect("a session"));
    open_with(gateway, place, &[("cookie", &cookie), ("origin", APP)]).await
}

impl Story {
    /// Alice has signed in, and has a WebSocket on a route for her group and one on a route for all users. The access
    /// token of the provider lives 600 s.
    async fn begin() -> Story {
        let settings = json!({
            "claims": { "groups": ["groups"], "openid": ["sub"] }, "ttl": { "AccessToken": 600, "IdToken": 36_000 },
        });
        let provider = provider::start(settings);
        let upstream = Upstream::start();
        let gateway = gateway(&upstream, &format!("{}{STAFF}", everything(&provider.issuer, KEYS))).await;
        let mut alice = Visitor::of(&gateway);
        assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", alice.way);
        let of_staff = open(&gateway, &alice, "app.example/staff").await;
        let of_all = open(&gateway, &alice, "app.example").await;
        Story { gateway, provider, alice, of_staff, of_all, _upstream: upstream }
    }

    async fn leave(&self, groups: &[&str]) {
        let claims = json!({ "groups": groups });
        self.provider.control("/accounts", &json!({ "name": "alice", "claims": claims })).await;
    }

    async fn assert_lost(&mut self) {
        let lost = (1008, "the claims of the token do not allow this request".to_owned());
        assert_eq!(within_a_second(close_frame(&mut self.of_staff)).await, lost);
        self.gateway.wait_for_metric("streams_ended_total{reason=\"claim_rejected\"}", 1).await;
        assert_open(&mut self.of_all).await;
        assert_eq!(self.alice.fetch(&format!("{APP}/staff/x")).await.status, 403);
        assert_eq!(self.alice.fetch(&format!("{APP}/")).await.status, 200);
        assert_eq!(refreshes(&self.provider).await.len(), 1);
    }
}

#[tokio::test]
async fn a_lost_group_ends_the_streams_that_need_it_without_a_request() {
    let mut story = Story::begin().await;
    story.leave(&["guests"]).await;
    story.gateway.advance(Duration::from_secs(550));
    is_refreshed(&story.provider, 1).await;
    story.assert_lost().await;
}

#[tokio::test]
async fn a_refresh_for_a_request_ends_the_streams_that_have_lost_their_group() {
    let mut story = Story::begin().await;
    story.leave(&[]).await;
    story.gateway.advance(Duration::from_secs(700));
    assert_eq!(story.alice.fetch(&format!("{APP}/")).await.status, 200);
    is_refreshed(&story.provider, 1).await;
    story.assert_lost().await;
}

#[tokio::test]
async fn streams_outlive_a_refresh_that_takes_no_right_away() {
    let mut story = Story::begin().await;
    story.leave(&["guests", "staff"]).await;
    for round in 1..=2 {
        story.gateway.advance(Duration::from_secs(550));
        is_refreshed(&story.provider, round).await;
        // The streams have the new claims when a request has them.
        eventually_ok("the refresh is saved", async || {
            match story.alice.fetch(&format!("{APP}/staff/x")).await.status.as_u16() {
                200 => Ok(()),
                status => Err(status.to_string()),
            }
        })
        .await;
        assert_open(&mut story.of_staff).await;
        assert_open(&mut story.of_all).await;
    }
}

#[tokio::test]
async fn a_lost_scope_ends_the_streams_that_need_it() {
    let keys = "scopes = [\"openid\", \"admin\"]";
    for learns in ["a stream", "a request"] {
        let both = response(json!({ "scope": "openid admin" }));
        let mut story = renewed::Story::begin(json!({}), keys, ADMIN, both).await;
        let mut of_admins = open(&story.gateway, &story.alice, "app.example/admin").await;
        let mut of_all = open(&story.gateway, &story.alice, "app.example").await;
        let lost = response(json!({ "scope": "openid" }));
        if learns == "a stream" {
            story.tell(lost);
            story.gateway.advance(Duration::from_secs(550));
        } else {
            assert_eq!(story.refreshed(lost).await, 200);
        }
        let expected = (1008, "the token lacks a required scope".to_owned());
        assert_eq!(close_frame(&mut of_admins).await, expected, "{learns}");
        story.gateway.wait_for_metric("streams_ended_total{reason=\"insufficient_scope\"}", 1).await;
        assert_open(&mut of_all).await;
        assert_eq!((story.status("/admin/").await, story.status("/").await), (403, 200), "{learns}");
    }
}
