//! The response to a refresh says what is new. What it leaves out is as before, and what is wrong with it ends no
//! session.

use std::time::Duration;

use serde_json::{Value, json};

use super::liar::{Liar, Lies, Signature};
use super::lies::{claims, map, response};
use super::{APP, everything, gateway, is_ready};
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream};

/// An ID token that outlives each story.
const EXPIRES: (&str, u64) = ("exp", 4_000_000_000);

/// A user has signed in. Each access token of the provider lives 600 s.
pub(super) struct Story {
    pub(super) liar: Liar,
    upstream: Upstream,
    pub(super) gateway: Gateway,
    pub(super) alice: Visitor,
}

impl Story {
    /// `metadata`: of the provider. `keys`: of `[[provider]]`. `more`: further sections. `first`: at the sign-in.
    pub(super) async fn begin(metadata: Value, keys: &str, more: &str, first: Lies) -> Story {
        let (liar, upstream) = (Liar::start(&metadata), Upstream::start());
        let gateway = gateway(&upstream, &format!("{}{more}", everything(&liar.issuer, keys))).await;
        let alice = Visitor::of(&gateway);
        let mut story = Story { liar, upstream, gateway, alice };
        story.tell(issuing("first", first));
        assert_eq!(story.liar.sign_in(&mut story.alice, |back| back).await.status, 303);
        assert_eq!(story.alice.fetch(&format!("{APP}/")).await.status, 200);
        story
    }

    pub(super) fn tell(&self, mut lies: Lies) {
        let (name, expires) = EXPIRES;
        lies.claims.entry(name).or_insert(expires.into());
        self.liar.tell(lies);
    }

    /// The status of a request after the tokens have ended. It waits for the refresh, to which the provider says this.
    pub(super) async fn refreshed(&mut self, lies: Lies) -> u16 {
        let before = self.liar.exchanges().len();
        self.tell(lies);
        self.gateway.advance(Duration::from_secs(700));
        let status = self.status("/").await;
        assert_eq!(self.liar.exchanges().len(), before + 1, "one refresh");
        status
    }

    pub(super) async fn status(&mut self, path: &str) -> u16 {
        self.alice.fetch(&format!("{APP}{path}")).await.status.as_u16()
    }

    /// The gateway starts again.
    pub(super) async fn restarted(self) -> Story {
        let Story { liar, upstream, gateway, mut alice } = self;
        let gateway = gateway.restart();
        is_ready(gateway.address()).await;
        alice.move_to(&gateway);
        Story { liar, upstream, gateway, alice }
    }

    /// The refresh token in the last refresh.
    fn last_refresh_token(&self) -> String {
        self.liar.exchanges().last().and_then(|form| form.get("refresh_token").cloned()).expect("a refresh")
    }

    /// What the backend last got.
    pub(super) fn email(&self) -> Option<String> {
        self.upstream.seen().last().expect("a request").header("x-auth-email").map(str::to_owned)
    }
}

fn issuing(refresh_token: &str, mut lies: Lies) -> Lies {
    lies.response.insert("refresh_token", refresh_token.into());
    lies
}

/// No ID token, and this at UserInfo.
pub(super) fn without_id_token(userinfo: Value) -> Lies {
    Lies { userinfo: Some(userinfo), ..response(json!({ "id_token": null })) }
}

/// RFC 6749 section 6.
#[tokio::test]
async fn a_refresh_never_widens_the_scope() {
    let keys = "scopes = [\"openid\", \"admin\"]";
    let admin = "[[route]]\npath = \"/admin/\"\nsign_in = \"main\"\nscopes = [\"admin\"]\n";
    for first in [json!("openid"), json!(["openid"])] {
        let mut story = Story::begin(json!({}), keys, admin, response(json!({ "scope": first }))).await;
        assert_eq!(story.status("/admin/").await, 403);
        for scope in [json!(null), json!(["openid"]), json!("openid other"), json!(5), json!(null), json!({})] {
            assert_eq!(story.refreshed(response(json!({ "scope": scope }))).await, 200, "{scope}");
            assert_eq!(story.status("/admin/").await, 403, "{scope}");
        }
        // What the provider says counts, in both directions.
        for (scope, status) in [("openid admin", 200), ("openid", 403)] {
            for stated in [json!(scope), json!(null)] {
                assert_eq!(story.refreshed(response(json!({ "scope": stated }))).await, 200);
                assert_eq!(story.status("/admin/").await, status, "{scope}, then {stated}");
            }
        }
    }
}

/// Otherwise, a login would live on for an hour without the provider.
#[tokio::test]
async fn a_refresh_without_a_lifetime_has_that_of_before() {
    let mut story = Story::begin(json!({}), "", "", Lies::default()).await;
    for _ in 0..3 {
        assert_eq!(story.refreshed(response(json!({ "expires_in": null }))).await, 200);
    }
}

#[tokio::test]
async fn a_new_refresh_token_outlives_the_rest_of_its_response() {
    let mut story = Story::begin(json!({}), "", "", Lies::default()).await;
    let with_head = |head| Lies { head: Some(head), ..Lies::default() };
    for (number, (what, flawed)) in [
        ("an empty ID token", response(json!({ "id_token": "" }))),
        ("an ID token that is none", response(json!({ "id_token": "x" }))),
        ("a negative lifetime", response(json!({ "expires_in": -1 }))),
        ("a lifetime with a fraction", response(json!({ "expires_in": 3599.5 }))),
        ("no token_type", response(json!({ "token_type": null }))),
        ("another token_type", response(json!({ "token_type": "DPoP" }))),
        ("no access token", response(json!({ "access_token": null }))),
        ("a scope that is a number", response(json!({ "scope": 5 }))),
        ("status 201", with_head("201 Created\r\nContent-Type: application/json")),
        ("text", with_head("200 OK\r\nContent-Type: text/plain")),
        ("no media type", with_head("200 OK")),
        ("another audience", claims(json!({ "aud": "other" }))),
        ("another case", with_head("200 OK\r\nContent-Type: application/json\r\nContent-Encoding: Identity")),
        ("an empty coding", with_head("200 OK\r\nContent-Type: application/json\r\nContent-Encoding:")),
        ("a coding that is none", with_head("200 OK\r\nContent-Type: application/json\r\nContent-Encoding: utf-8")),
        ("gzip", Lies { is_compressed: true, ..Lies::default() }),
        ("gzip of a flawed response", Lies { is_compressed: true, ..response(json!({ "expires_in": -1 })) }),
        ("the coding none", with_head("200 OK\r\nContent-Type: application/json\r\nContent-Encoding: none")),
    ]
    .into_iter()
    .enumerate()
    {
        let [kept, next] = ["kept", "next"].map(|name| format!("{name}-{number}"));
        assert_eq!(story.refreshed(issuing(&kept, flawed)).await, 200, "{what}");
        assert_eq!(story.refreshed(issuing(&next, Lies::default())).await, 200, "{what}");
        assert_eq!(story.last_refresh_token(), kept, "{what}");
    }
}

#[tokio::test]
async fn a_new_refresh_token_outlives_broken_json() {
    let mut story = Story::begin(json!({}), "", "", Lies::default()).await;
    let bodies = [
        r#""refresh_token":"kept","refresh_token":"kept","x":1}"#,
        r#""refresh_token":"other","refresh_token":"kept"}"#,
        r#""refresh_token":"kept","x":NaN}"#,
        r#""x":1e999,"refresh_token":"kept"}"#,
        r#""name":"\ud800","refresh_token":"kept"}"#,
        r#""refresh_token":"kept""#,
    ];
    for body in bodies {
        let body = format!("{{\"access_token\":\"a\",\"token_type\":\"Bearer\",{body}");
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
        let page = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let broken = Lies { raw: Some(page.leak()), ..Lies::default() };
        assert_eq!(story.refreshed(broken).await, 200, "{body}");
        assert_eq!(story.refreshed(issuing("next", Lies::default())).await, 200, "{body}");
        assert_eq!(story.last_refresh_token(), "kept", "{body}");
    }
}

/// Everything else may be right in the next response.
#[tokio::test]
async fn only_another_user_ends_a_session() {
    let mut story = Story::begin(json!({}), "", "", claims(json!({ "auth_time": 1_000 }))).await;
    let signed = |signature| Lies { signature, ..Lies::default() };
    type AtRefresh = fn(u64) -> Lies;
    let wrong: [(&str, AtRefresh); 7] = [
        ("a clock that is ahead", |now| claims(json!({ "iat": now + 70 }))),
        ("an end in the past", |now| claims(json!({ "exp": now - 70 }))),
        ("another audience", |_| claims(json!({ "aud": ["gateway", "other"] }))),
        ("the nonce of another sign-in", |_| claims(json!({ "nonce": "other" }))),
        ("another authentication", |_| claims(json!({ "auth_time": 2_000 }))),
        ("no sub", |_| claims(json!({ "sub": null }))),
        ("another user, for another client", |_| claims(json!({ "sub": "bob", "aud": "other" }))),
    ];
    for (what, lies) in wrong {
        let at_refresh = story.gateway.now_secs() + 700;
        assert_eq!(story.refreshed(lies(at_refresh)).await, 200, "{what}");
        assert_eq!(story.refreshed(Lies::default()).await, 200, "{what}");
    }
    for signature in [Signature::OtherKey, Signature::None] {
        assert_eq!(story.refreshed(signed(signature)).await, 200);
        assert_eq!(story.refreshed(Lies::default()).await, 200);
    }
    // Without good tokens, it lives on for `max_staleness`.
    for status in [200, 200, 503] {
        assert_eq!(story.refreshed(claims(json!({ "aud": "other" }))).await, status);
    }
    assert_eq!(story.refreshed(Lies::default()).await, 200);
    assert_eq!(story.refreshed(claims(json!({ "sub": "bob" }))).await, 401);
    story.liar.tell(Lies::default());
    assert_eq!(story.status("/").await, 401, "for good");
}

/// UserInfo belongs to the access token, which can be that of another user.
#[tokio::test]
async fn another_user_at_userinfo_ends_a_session() {
    let metadata = json!({ "userinfo_endpoint": "ISSUER/userinfo" });
    let mut story = Story::begin(metadata, "", "", Lies::default()).await;
    assert_eq!(story.refreshed(without_id_token(json!({ "email": "a@ours.example" }))).await, 200, "of no user");
    assert_eq!(story.refreshed(without_id_token(json!({ "sub": "bob" }))).await, 401);
}

/// The next ID token has a signature that the known keys cannot make, and names none or one of them.
#[tokio::test]
async fn a_provider_can_replace_a_key_under_its_name() {
    for header in [json!({}), json!({ "kid": null })] {
        let lies = || Lies { header: map(header.clone()), ..Lies::default() };
        let mut story = Story::begin(json!({}), "", "", lies()).await;
        story.liar.replace_key();
        assert_eq!(story.refreshed(lies()).await, 200, "{header}");
        // The refresh has succeeded: no other one is due.
        let refreshes = story.liar.exchanges().len();
        story.gateway.advance(Duration::from_secs(300));
        assert_eq!((story.status("/").await, story.liar.exchanges().len()), (200, refreshes), "{header}");
        // For a sign-in as well.
        story.liar.replace_key();
        let mut bob = Visitor::of(&story.gateway);
        assert_eq!(story.liar.sign_in(&mut bob, |back| back).await.status, 303, "{header}");
    }
}

/// A provider that signs wrongly is asked for its keys once in a while, however many refreshes it responds to.
#[tokio::test]
async fn wrong_signatures_of_refreshes_cause_one_fetch_of_the_keys() {
    let mut story = Story::begin(json!({}), "", "", Lies::default()).await;
    let mut bob = Visitor::of(&story.gateway);
    assert_eq!(story.liar.sign_in(&mut bob, |back| back).await.status, 303);
    let fetches = story.liar.key_requests();
    let other_key = || Lies { signature: Signature::OtherKey, ..Lies::default() };
    assert_eq!(story.refreshed(other_key()).await, 200);
    let refreshes = story.liar.exchanges().len();
    assert_eq!(bob.fetch(&format!("{APP}/")).await.status, 200);
    assert_eq!(story.liar.exchanges().len(), refreshes + 1, "another refresh");
    assert_eq!(story.liar.key_requests(), fetches + 1, "and no other fetch");
    assert_eq!(story.refreshed(other_key()).await, 200);
    assert_eq!(story.liar.key_requests(), fetches + 2, "later");
}

pub(super) const GROUPS: &str = "groups = [\"staff\"]\nclaims = [\"email\"]";
pub(super) const EMAIL: &str = "[[identity.claim]]\npointer = \"/email\"\nheader = \"X-Auth-Email\"\n";

fn in_group(group: &str) -> Lies {
    claims(json!({ "groups": [group] }))
}

#[tokio::test]
async fn claims_of_the_id_token_outlive_a_refresh_without_one() {
    let metadata = json!({ "userinfo_endpoint": "ISSUER/userinfo" });
    let mut story = Story::begin(metadata, GROUPS, EMAIL, in_group("staff")).await;
    for (userinfo, email) in [
        (json!({ "sub": "alice", "name": "Alice" }), "alice@ours.example"),
        (json!({ "sub": "alice", "email": "new@ours.example" }), "new@ours.example"),
    ] {
        assert_eq!(story.refreshed(without_id_token(userinfo.clone())).await, 200, "{userinfo}");
        assert_eq!(story.email().as_deref(), Some(email), "{userinfo}");
    }
    // What UserInfo has stated, and leaves out now, is gone.
    assert_eq!(story.refreshed(without_id_token(json!({ "sub": "alice" }))).await, 200);
    assert_eq!(story.email(), None);
    assert_eq!(story.refreshed(without_id_token(json!({ "sub": "alice", "groups": ["other"] }))).await, 401);
}

#[tokio::test]
async fn claims_outlive_a_refresh_that_says_nothing_of_them() {
    let mut story = Story::begin(json!({}), GROUPS, EMAIL, in_group("staff")).await;
    assert_eq!(story.refreshed(response(json!({ "id_token": null }))).await, 200);
    assert_eq!(story.email().as_deref(), Some("alice@ours.example"));
}

/// Some providers leave a claim out that has become empty.
#[tokio::test]
async fn a_group_that_a_new_id_token_leaves_out_is_lost() {
    for lies in [in_group("other"), Lies::default()] {
        let mut story = Story::begin(json!({}), GROUPS, EMAIL, in_group("staff")).await;
        assert_eq!(story.refreshed(in_group("staff")).await, 200);
        assert_eq!(story.refreshed(lies).await, 401);
    }
}

/// The session ends during the refresh, and its refresh token of before is revoked before the new one arrives.
#[tokio::test]
async fn a_refresh_token_that_comes_too_late_is_revoked() {
    let metadata = json!({ "revocation_endpoint": "ISSUER/revoke" });
    let mut story = Story::begin(metadata, "client_timeout = \"1m\"", "", Lies::default()).await;
    story.liar.hold(true);
    story.tell(issuing("late", Lies::default()));
    story.gateway.advance(Duration::from_secs(550));
    assert_eq!(story.status("/").await, 200, "it does not wait");
    eventually_ok("the refresh has begun", async || match story.liar.exchanges().len() {
        2 => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
    let ended = story.alice.submit(&format!("{APP}/oauth2/sign_out"), "").await;
    assert_eq!(ended.status, 303);
    // The lease of the refresh ends.
    story.gateway.advance(Duration::from_secs(20));
    let revoked = async |tokens: &[&str]| {
        eventually_ok("the tokens are revoked", async || match story.liar.revoked() {
            revoked if revoked == tokens => Ok(()),
            revoked => Err(format!("{revoked:?}")),
        })
        .await;
    };
    revoked(&["first"]).await;
    story.liar.hold(false);
    revoked(&["first", "late"]).await;
}
