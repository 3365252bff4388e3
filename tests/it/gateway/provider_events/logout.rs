//! OpenID Connect Back-Channel Logout, from a provider that can also lie.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::{Signer, changed};
use crate::gateway::streams::{assert_open, close_frame, open, revoked, within_a_second};
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, TestResponse, Upstream};

const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// A gateway that is the client `shop` of this provider, and accepts its access tokens.
async fn start(signer: &Signer, upstream: &Upstream, more: &str) -> Gateway {
    let issuer = signer.issuer();
    let endpoints = ["authorization_endpoint", "token_endpoint"].map(|name| (name, signer.server.url("/none")));
    let mut document = json!({ "issuer": issuer, "jwks_uri": signer.server.url("/keys") });
    for (name, url) in endpoints {
        document[name] = url.into();
    }
    signer.server.pages().documents.push(("/.well-known/openid-configuration".into(), document.to_string()));
    let provider = format!(
        "{}\n[[provider]]\nname = \"corp\"\nissuer = \"{issuer}\"\nclient_id = \"shop\"\nclient_auth = \"none\"\n\
         algorithms = [\"ES256\"]\n{more}\n",
        signer.issuer_section(),
    );
    let gateway = Gateway::with_config(upstream, &provider);
    // Its keys come by a task.
    eventually_ok("the gateway has the provider's keys", async || {
        let response = send(&gateway, &token(signer, &gateway, &json!({ "sid": "no such session" }))).await;
        if response.status == 200 { Ok(()) } else { Err(response.text()) }
    })
    .await;
    gateway
}

fn claims(signer: &Signer, gateway: &Gateway) -> Value {
    let now = gateway.now_secs();
    json!({
        "iss": signer.issuer(), "aud": "shop", "iat": now, "exp": now + 120, "events": { EVENT: {} },
        "jti": super::transmitter::new_jti(),
    })
}

/// A logout token with these claims in place of its own.
fn token(signer: &Signer, gateway: &Gateway, changes: &Value) -> String {
    signer.sign("logout+jwt", &changed(claims(signer, gateway), changes))
}

async fn send(gateway: &Gateway, token: &str) -> TestResponse {
    send_form(gateway.client(), &format!("logout_token={token}")).await
}

async fn send_form(client: Client, form: &str) -> TestResponse {
    let client = client.header("content-type", "application/x-www-form-urlencoded");
    client.send(Method::POST, "/oauth2/backchannel_logout/corp", Bytes::from(form.to_owned())).await
}

#[tokio::test]
async fn a_logout_ends_one_session_and_its_streams_at_once() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let now = gateway.now_secs();
    let ended = signer.access_token(now, "alice", Some("s1"));
    let (mut other, other_token) = {
        let token = signer.access_token(now, "alice", Some("s2"));
        (open(&gateway, &token).await, token)
    };
    let mut socket = open(&gateway, &ended).await;
    assert_open(&mut socket).await;
    let response = send(&gateway, &token(&signer, &gateway, &json!({ "sid": "s1", "sub": "alice" }))).await;
    assert_eq!((response.status.as_u16(), response.header("cache-control")), (200, Some("no-store")));
    assert_eq!(within_a_second(close_frame(&mut socket)).await, revoked());
    gateway.client().bearer(&ended).get("/").await.assert_rejected(401, "invalid_token");
    assert_open(&mut other).await;
    assert_eq!(gateway.status_of(&other_token).await, 200);
    // A token of this session that is issued later is one of an ended session.
    let later = signer.access_token(now + 5, "alice", Some("s1"));
    gateway.advance(std::time::Duration::from_secs(10));
    assert_eq!(gateway.status_of(&later).await, 401);
    let event = gateway.audit_events(2).await.into_iter().find(|event| event["session"] == "s1").expect("an event");
    assert_eq!((&event["event"], &event["provider"]), (&json!("issuer_session.revoked"), &json!("corp")));
    let metric = "provider_reports_total{source=\"corp\",kind=\"logout\",outcome=\"revoked\"}";
    assert!(gateway.metric(&format!("bearward_{metric}")).await >= 2.0);
}

#[tokio::test]
async fn a_logout_of_a_user_ends_earlier_tokens_only() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let now = gateway.now_secs();
    let (one, other) = (signer.access_token(now - 1, "alice", None), signer.access_token(now - 2, "alice", Some("s")));
    let bob = signer.access_token(now - 1, "bob", None);
    for token in [&one, &other, &bob] {
        assert_eq!(gateway.status_of(token).await, 200);
    }
    assert_eq!(send(&gateway, &token(&signer, &gateway, &json!({ "sub": "alice" }))).await.status, 200);
    for (token, status) in [(&one, 401), (&other, 401), (&bob, 200)] {
        assert_eq!(gateway.status_of(token).await, status);
    }
    let again = signer.access_token(now + 1, "alice", None);
    assert_eq!(gateway.status_of(&again).await, 200, "a login after the logout");
}

#[tokio::test]
async fn logout_ends_subject_is_for_tokens_without_a_sid() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "logout_ends = \"subject\"").await;
    let access = signer.access_token(gateway.now_secs(), "alice", None);
    assert_eq!(gateway.status_of(&access).await, 200);
    assert_eq!(send(&gateway, &token(&signer, &gateway, &json!({ "sid": "s1", "sub": "alice" }))).await.status, 200);
    assert_eq!(gateway.status_of(&access).await, 401);
}

/// The provider says which session ended, and may be wrong about its user. To reject the report would leave the session
/// open; to believe both would end the sessions of a user that the provider did not name alone.
#[tokio::test]
async fn if_sid_and_sub_disagree_the_session_ends_and_nothing_else() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let now = gateway.now_secs();
    let of_alice = signer.access_token(now, "alice", Some("s1"));
    let (of_bob, same_sid) = (signer.access_token(now, "bob", Some("s2")), signer.access_token(now, "bob", Some("s1")));
    for token in [&of_alice, &of_bob, &same_sid] {
        assert_eq!(gateway.status_of(token).await, 200);
    }
    assert_eq!(send(&gateway, &token(&signer, &gateway, &json!({ "sid": "s1", "sub": "bob" }))).await.status, 200);
    for (token, status) in [(&of_alice, 401), (&of_bob, 200), (&same_sid, 401)] {
        assert_eq!(gateway.status_of(token).await, status);
    }
}

#[tokio::test]
async fn equal_sids_of_two_issuers_stay_apart() {
    let (signer, stranger, upstream) = (Signer::start(), Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, &stranger.issuer_section()).await;
    let now = gateway.now_secs();
    let [here, elsewhere] = [&signer, &stranger].map(|signer| signer.access_token(now, "alice", Some("s1")));
    eventually_ok("the other issuer's tokens are accepted", async || match gateway.status_of(&elsewhere).await {
        200 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    assert_eq!(gateway.status_of(&here).await, 200);
    // No cookie is read, and no Origin: a provider sends neither, and no page can sign.
    let client = gateway.client().header("origin", "https://other.example").header("cookie", "__Host-bearward=x");
    let logout = token(&signer, &gateway, &json!({ "sid": "s1", "sub": "alice" }));
    assert_eq!(send_form(client, &format!("logout_token={logout}")).await.status, 200);
    assert_eq!((gateway.status_of(&here).await, gateway.status_of(&elsewhere).await), (401, 200));
}

#[tokio::test]
async fn a_logout_token_is_used_once() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let token = |sid: &str| token(&signer, &gateway, &json!({ "sid": sid, "jti": "the same" }));
    let (first, other) = (token("s1"), token("s2"));
    let access = signer.access_token(gateway.now_secs(), "alice", Some("s2"));
    assert_eq!(send(&gateway, &first).await.status, 200);
    assert_eq!(send(&gateway, &first).await.status, 200, "its sender repeats it");
    send(&gateway, &other).await.assert_rejected(400, "invalid_request");
    assert_eq!(gateway.status_of(&access).await, 200, "the other token with this jti ended nothing");
}

#[tokio::test]
async fn other_tokens_are_no_logout_tokens() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    // The gateway may ask for an unknown key again.
    gateway.advance(std::time::Duration::from_secs(31));
    let now = gateway.now_secs();
    let alice = signer.access_token(now, "alice", Some("s1"));
    let good = changed(claims(&signer, &gateway), &json!({ "sid": "s1", "sub": "alice" }));
    let stranger = Signer::start();
    let foreign = stranger.sign("logout+jwt", &changed(good.clone(), &json!({ "iss": stranger.issuer() })));
    let unsigned = {
        let token = signer.sign("logout+jwt", &good);
        let (message, _) = token.rsplit_once('.').expect("a signature");
        format!("{message}.{}", crate::support::tokens::segment([0; 64]))
    };
    let id_token = changed(good.clone(), &json!({ "events": null, "nonce": "n" }));
    for (what, token) in [
        ("an access token", alice.clone()),
        ("an ID token", signer.sign("JWT", &id_token)),
        ("an ID token with events", signer.sign("logout+jwt", &changed(good.clone(), &json!({ "nonce": "n" })))),
        ("a security event", signer.sign("secevent+jwt", &good)),
        ("a token of another issuer", foreign),
        ("a token with this issuer's name and another key", stranger.sign("logout+jwt", &good)),
        ("a token for another client", signer.sign("logout+jwt", &changed(good.clone(), &json!({ "aud": "other" })))),
        ("an old token", signer.sign("logout+jwt", &changed(good.clone(), &json!({ "iat": now - 400 })))),
        ("a token without jti", signer.sign("logout+jwt", &changed(good.clone(), &json!({ "jti": null })))),
        ("a token without the event", signer.sign("logout+jwt", &changed(good.clone(), &json!({ "events": {} })))),
        ("a token with a bad signature", unsigned),
        ("garbage", "garbage".to_owned()),
    ] {
        let response = send(&gateway, &token).await;
        assert_eq!((response.status.as_u16(), response.error()), (400, "invalid_request".to_owned()), "{what}");
    }
    assert_eq!(gateway.status_of(&alice).await, 200);
    // A logout token is no Bearer token.
    let logout = signer.sign("logout+jwt", &changed(good, &json!({ "aud": ["shop", "https://api.example"] })));
    assert_eq!(gateway.status_of(&logout).await, 401);
    let line = gateway.log_line(|line| line["reason"] == "bad_logout_token").await;
    assert_eq!(line["status"], 400);
}

#[tokio::test]
async fn only_a_form_with_one_logout_token_is_accepted() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let good = || token(&signer, &gateway, &json!({ "sid": "s1" }));
    for form in [
        String::new(),
        "logout_token=".to_owned(),
        format!("logout_token={}&logout_token={}", good(), good()),
        format!("token={}", good()),
    ] {
        assert_eq!(send_form(gateway.client(), &form).await.status, 400, "{form}");
    }
    let json = json!({ "logout_token": good() });
    assert_eq!(gateway.client().post("/oauth2/backchannel_logout/corp", &json).await.status, 400);
    assert_eq!(send_form(gateway.client(), &format!("logout_token={}&more=1", good())).await.status, 200);
    let large = format!("logout_token={}&more={}", good(), "a".repeat(32 << 10));
    assert_eq!(send_form(gateway.client(), &large).await.status, 413);
    let get = gateway.client().get("/oauth2/backchannel_logout/corp").await;
    assert_eq!((get.status.as_u16(), get.header("allow")), (405, Some("POST")));
    let unknown = gateway.client().post("/oauth2/backchannel_logout/other", &json).await;
    assert_ne!(unknown.status, 200, "no such provider");
}

/// A stranger has used up the fetch of the keys. The provider sends its logout once, and gets no 200 for it.
#[tokio::test]
async fn a_logout_with_a_new_key_is_not_lost() {
    let (mut signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let alice = signer.access_token(gateway.now_secs(), "alice", Some("s1"));
    let mut socket = open(&gateway, &alice).await;
    gateway.advance(std::time::Duration::from_secs(31));
    let stranger = Signer::start().sign("logout+jwt", &changed(claims(&signer, &gateway), &json!({ "sid": "s1" })));
    send(&gateway, &stranger).await.assert_rejected(400, "invalid_request");
    signer.mint = super::Mint::new(super::Algorithm::ES256);
    signer.server.publish(&[&signer.mint]);
    let logout = token(&signer, &gateway, &json!({ "sid": "s1" }));
    send(&gateway, &logout).await.assert_rejected(503, "temporarily_unavailable");
    assert_open(&mut socket).await;
    gateway.advance(std::time::Duration::from_secs(31));
    assert_eq!(close_frame(&mut socket).await, revoked());
    assert_eq!(gateway.status_of(&alice).await, 401);
    assert_eq!(send(&gateway, &logout).await.status, 200, "its sender repeats it");
}

#[tokio::test]
async fn a_logout_with_a_key_that_was_replaced_under_its_name_is_carried_out() {
    let (mut signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "").await;
    let alice = signer.access_token(gateway.now_secs(), "alice", Some("s1"));
    assert_eq!(gateway.status_of(&alice).await, 200);
    gateway.advance(std::time::Duration::from_secs(31));
    signer.mint = super::Mint::new(super::Algorithm::ES256).named(&signer.mint.kid);
    signer.server.publish(&[&signer.mint]);
    let logout = token(&signer, &gateway, &json!({ "sid": "s1" }));
    assert_eq!(send(&gateway, &logout).await.status, 200);
    assert_eq!(gateway.status_of(&alice).await, 401);
}

/// The claims of a good token with bad signatures: each costs a check, and they are limited.
#[tokio::test]
async fn forged_logout_tokens_are_limited_by_address() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let gateway = start(&signer, &upstream, "[limits]\nbad_signatures = 5").await;
    let stranger = super::Mint::new(bearward::tokens::jwt::Algorithm::ES256);
    let forged = |sid: usize| {
        let claims = changed(claims(&signer, &gateway), &json!({ "sid": sid.to_string() }));
        let mut header = signer.mint.header();
        header["typ"] = "logout+jwt".into();
        stranger.sign(&header, &claims)
    };
    let mut statuses = Vec::new();
    for number in 0..10 {
        statuses.push(send(&gateway, &forged(number)).await.status.as_u16());
    }
    assert_eq!(statuses[0], 400);
    assert_eq!(statuses[9], 429, "{statuses:?}");
}

#[tokio::test]
async fn an_old_provider_needs_logout_typ_lax() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let strict = start(&signer, &upstream, "").await;
    let old = |gateway: &Gateway| {
        let claims = changed(claims(&signer, gateway), &json!({ "sid": "s1", "exp": null }));
        signer.sign("JWT", &claims)
    };
    assert_eq!(send(&strict, &old(&strict)).await.status, 400);
    let lax = start(&signer, &upstream, "logout_typ = \"lax\"").await;
    assert_eq!(send(&lax, &old(&lax)).await.status, 200);
}
