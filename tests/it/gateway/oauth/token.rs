//! `POST /oauth/token`: refresh by a standard OAuth client, with the same rotation as `POST /user/refresh`.

use std::time::Duration;

use bearward::types::ids::TokenId;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::{BASIC, OAUTH, assert_error, gateway, post};
use crate::support::tokens::claims_of;
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, TestResponse, TokenPair, Upstream};

async fn exchange(client: Client, refresh: &str) -> TestResponse {
    post(client, "/oauth/token", &[("grant_type", "refresh_token"), ("refresh_token", refresh)]).await
}

#[track_caller]
fn granted(response: &TestResponse) -> (String, String) {
    assert_eq!(response.status, 200, "{response:?}");
    let text = |member: &str| response.json()[member].as_str().expect("a string").to_owned();
    (text("access_token"), text("refresh_token"))
}

#[tokio::test]
async fn a_refresh_token_is_exchanged_as_rfc_6749_says() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    for client in gateway.clients() {
        let pair = gateway.issue("alice", "orders:read b").await;
        let form = [("grant_type", "refresh_token"), ("refresh_token", &pair.refresh), ("client_id", "any")];
        let response = post(client, "/oauth/token", &form).await;
        assert_eq!(
            (response.status.as_u16(), response.header("cache-control")),
            (200, Some("no-store")),
            "{response:?}"
        );
        let body = response.json();
        let (access, refresh) = granted(&response);
        let claims = claims_of(&access);
        let lifetime = claims["exp"].as_u64().expect("a number") - gateway.now_secs();
        assert_eq!(
            body,
            json!({
                "access_token": access, "token_type": "Bearer", "expires_in": lifetime,
                "refresh_token": refresh, "scope": "orders:read b",
            })
        );
        assert_eq!(claims["sid"], pair.token_id.as_str());
        assert_eq!(gateway.status_of(&access).await, 200);
        assert_eq!(gateway.refresh(&access, &refresh).await.status, 200, "both endpoints rotate the same session");
    }
    gateway.drain_and_check_log();
}

/// Clients take an error that they do not know as the end of the login.
#[track_caller]
fn assert_temporary(response: &TestResponse, status: u16) {
    assert_error(response, status, "temporarily_unavailable");
    let wait = response.header("retry-after").and_then(|wait| wait.parse::<u64>().ok());
    assert!(wait.is_some_and(|wait| wait >= 1), "{response:?}");
}

/// The client must log in again. It must not come back with the same token.
#[track_caller]
fn assert_outdated(response: &TestResponse) {
    assert_error(response, 400, "invalid_grant");
    assert_eq!(response.header("retry-after"), None, "{response:?}");
}

/// Sends the refresh again for as long as the response says that it may succeed later, as it says.
async fn exchange_patiently(gateway: &Gateway, refresh: &str) -> TestResponse {
    loop {
        let response = exchange(gateway.client(), refresh).await;
        let wait = response.header("retry-after").and_then(|wait| wait.parse().ok());
        let Some(wait) = wait.filter(|_| response.status != 200) else { return response };
        gateway.advance(Duration::from_secs(wait));
    }
}

/// Two processes of one client have copies of its refresh token. One has refreshed twice when the other one begins.
#[tokio::test]
async fn a_client_that_is_behind_ends_no_session_of_its_other_process() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    for uses_session in [true, false] {
        let first = gateway.issue("alice", "").await;
        let (_, second) = granted(&exchange(gateway.client(), &first.refresh).await);
        let (access, third) = granted(&exchange(gateway.client(), &second).await);
        if uses_session {
            assert_eq!(gateway.status_of(&access).await, 200);
        }
        assert_outdated(&exchange_patiently(&gateway, &first.refresh).await);
        assert_eq!(gateway.status_of(&access).await, 200, "the session goes on");
        granted(&exchange(gateway.client(), &third).await);
    }
    gateway.drain_and_check_log();
}

/// Rotation and reuse detection protect public clients (RFC 9700 section 4.14.2).
#[tokio::test]
async fn a_retry_repeats_the_response_and_reuse_ends_the_session() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let first = gateway.issue("alice", "").await;
    let (_, second) = granted(&exchange(gateway.client(), &first.refresh).await);
    gateway.advance(Duration::from_secs(5));
    let (access, again) = granted(&exchange(gateway.client(), &first.refresh).await);
    assert_eq!(second, again, "the same new token");
    let (_, third) = granted(&exchange(gateway.client(), &second).await);
    assert_outdated(&exchange(gateway.client(), &first.refresh).await);

    gateway.advance(Duration::from_secs(11));
    assert_error(&exchange(gateway.client(), &first.refresh).await, 400, "invalid_grant");
    assert_eq!(gateway.status_of(&access).await, 401, "the session has ended for all its tokens");
    assert_error(&exchange(gateway.client(), &third).await, 400, "invalid_grant");
    let lines = gateway.log_lines(7).await;
    assert!(lines.iter().any(|line| line["reason"] == "grant_reused" && line["token_id"] == first.token_id.as_str()));
    assert!(lines.iter().any(|line| line["reason"] == "grant_outdated" && line["status"] == 400));
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn every_rejection_that_passes_by_itself_is_temporary_for_oauth_clients() {
    let upstream = Upstream::start();
    for (throttle, reason) in
        [("refreshes = 1", "family_limited"), ("calls = 1", "address_limited"), ("failures = 1", "failures_limited")]
    {
        let gateway = Gateway::with_throttle(upstream.address, throttle, OAUTH);
        let pair = gateway.issue("alice", "").await;
        match reason {
            "failures_limited" => assert_error(&exchange(gateway.client(), "x").await, 400, "invalid_grant"),
            _ => drop(granted(&exchange(gateway.client(), &pair.refresh).await)),
        }
        assert_temporary(&exchange(gateway.client(), &pair.refresh).await, 429);
        let lines = gateway.log_lines(2).await;
        assert!(lines.iter().any(|line| line["reason"] == reason && line["status"] == 429), "{lines:?}");
        if reason != "family_limited" {
            let revoked = post(gateway.client(), "/oauth/revoke", &[("token", "x")]).await;
            assert_error(&revoked, 429, "rate_limited");
        }
    }
    // The own calls keep the codes of their interface.
    let gateway = Gateway::with_throttle(upstream.address, "refreshes = 1", OAUTH);
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200);
    gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(429, "rate_limited");
    assert_temporary(&exchange(gateway.client(), &pair.refresh).await, 429);
}

#[tokio::test]
async fn a_refresh_that_takes_too_long_is_temporary_for_oauth_clients() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &format!("{OAUTH}[timeouts]\nrequest = \"300ms\"\n"));
    let pair = gateway.issue("alice", "").await;
    let database = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    database.execute_batch("begin immediate").expect("locked");
    assert_temporary(&exchange(gateway.client(), &pair.refresh).await, 504);
    database.execute_batch("rollback").expect("unlocked");
}

/// The responses to two refreshes of one client: the second begins while the first one waits for the store.
async fn refreshed_at_once(gateway: &Gateway, refresh: [&str; 2]) -> [TestResponse; 2] {
    let database = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    database.execute_batch("begin immediate").expect("locked");
    let mut running = Vec::new();
    for refresh in refresh {
        let client = gateway.client();
        let refresh = refresh.to_owned();
        running.push(tokio::spawn(async move { exchange(client, &refresh).await }));
        // The store rejects a call that waits for half a second.
        while gateway.metric("bearward_requests_in_flight ").await < running.len() as f64 {
            if running.iter().any(|call| call.is_finished()) {
                break;
            }
        }
    }
    database.execute_batch("rollback").expect("unlocked");
    let second = running.pop().expect("two").await.expect("no panic");
    [running.pop().expect("two").await.expect("no panic"), second]
}

/// Two processes of one client refresh at once: the first with the newest refresh token, the second with its parent.
#[tokio::test]
async fn a_refresh_waits_for_one_of_the_same_session_that_runs() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let (access, parent) = eventually_ok("both wait for the store", async || {
        let parent = gateway.issue("alice", "").await.refresh;
        let (_, newest) = granted(&exchange(gateway.client(), &parent).await);
        let [first, second] = refreshed_at_once(&gateway, [&newest, &parent]).await;
        if [&first, &second].iter().any(|response| response.status == 503) {
            return Err("the store was locked for too long".to_owned());
        }
        let (_, third) = granted(&first);
        let (access, again) = granted(&second);
        assert_eq!(third, again, "both have the newest refresh token");
        Ok((access, parent))
    })
    .await;
    assert_eq!(gateway.status_of(&access).await, 200);
    // One that comes later is behind.
    assert_outdated(&exchange(gateway.client(), &parent).await);
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn every_invalid_refresh_token_is_invalid_grant() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let (ended, idle) = (gateway.issue("alice", "").await, gateway.issue("alice", "").await);
    assert_eq!(gateway.revoke(&ended.access, &ended.token_id).await.status, 200);
    let mut responses: Vec<Value> = Vec::new();
    for refresh in [&ended.refresh, &ended.access, "x", &TokenId::random().to_string(), &idle.refresh[..89]] {
        let response = exchange(gateway.client(), refresh).await;
        assert_error(&response, 400, "invalid_grant");
        let mut body = response.json();
        body["requestId"].take();
        responses.push(body);
    }
    gateway.advance(Duration::from_secs(7 * 86_400));
    assert_error(&exchange(gateway.client(), &idle.refresh).await, 400, "invalid_grant");
    responses.dedup();
    assert_eq!(responses.len(), 1, "all errors look the same to an attacker: {responses:?}");
}

#[tokio::test]
async fn only_the_refresh_token_grant_is_supported() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let pair = gateway.issue("alice", "").await;
    let token = ("refresh_token", pair.refresh.as_str());
    for grant in ["authorization_code", "password", "client_credentials", "Refresh_Token"] {
        let response = post(gateway.client(), "/oauth/token", &[("grant_type", grant), token]).await;
        assert_error(&response, 400, "unsupported_grant_type");
    }
    let grant = ("grant_type", "refresh_token");
    for form in [vec![grant], vec![token], vec![grant, ("refresh_token", "")], vec![("grant_type", ""), token]] {
        assert_error(&post(gateway.client(), "/oauth/token", &form).await, 400, "invalid_request");
    }
    for secret in ["client_secret", "client_assertion", "client_assertion_type"] {
        assert_error(
            &post(gateway.client(), "/oauth/token", &[grant, token, (secret, "x")]).await,
            401,
            "invalid_client",
        );
    }
    let basic = gateway.client().header("authorization", "Basic YTpi");
    let response = exchange(basic, &pair.refresh).await;
    assert_error(&response, 401, "invalid_client");
    assert_eq!(response.header("www-authenticate"), Some(BASIC), "RFC 6749 section 5.2");
    // A client may send its access token with each request.
    granted(&exchange(gateway.client().bearer(&pair.access), &pair.refresh).await);
}

#[tokio::test]
async fn a_session_of_one_client_cannot_be_refreshed_by_another() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "clientId": "app" })).await;
    let pair = TokenPair::from_json(&issued.json());
    let as_client = |id: &'static str| {
        let (client, refresh) = (gateway.client(), pair.refresh.clone());
        async move {
            let form = [("grant_type", "refresh_token"), ("refresh_token", refresh.as_str()), ("client_id", id)];
            post(client, "/oauth/token", &form).await
        }
    };
    assert_error(&exchange(gateway.client(), &pair.refresh).await, 400, "invalid_grant");
    assert_error(&as_client("other").await, 400, "invalid_grant");
    granted(&as_client("app").await);
    assert_eq!(gateway.status_of(&pair.access).await, 200, "a wrong client does not end the session");
    let lines = gateway.log_lines(3).await;
    assert_eq!(lines.iter().filter(|line| line["reason"] == "grant_mismatch").count(), 2);
}

#[tokio::test]
async fn a_failing_store_prevents_exchange_and_revocation() {
    let upstream = Upstream::start();
    let gateway: Gateway = gateway(&upstream);
    let pair = gateway.issue("alice", "").await;
    let database = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    database.execute_batch("begin immediate").expect("locked");
    assert_error(&exchange(gateway.client(), &pair.refresh).await, 503, "temporarily_unavailable");
    for token in [&pair.refresh, &pair.access] {
        let response = post(gateway.client(), "/oauth/revoke", &[("token", token)]).await;
        assert_error(&response, 503, "temporarily_unavailable");
    }
    database.execute_batch("rollback").expect("unlocked");
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    granted(&exchange(gateway.client(), &pair.refresh).await);
}
