//! `POST /admin/v1/revocations` and `DELETE /admin/v1/subjects/{sub}/tokens`: revocations of many tokens at once.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bearward::store::MAX_REVOCATIONS;
use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::UnixTime;
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::gateway::ISSUER;
use crate::support::program::GatewayProcess;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint, claims_of};
use crate::support::{Gateway, TokenPair, Upstream};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A gateway that also accepts tokens of another issuer.
fn gateway(upstream: &Upstream) -> (Gateway, Mint) {
    let mint = Mint::new(Algorithm::ES256);
    (Gateway::with_issuer(upstream, &mint, ""), mint)
}

async fn revoke(gateway: &Gateway, what: Value) {
    let answer = gateway.admin_client().post("/admin/v1/revocations", &what).await;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, r#"{"success":true}"#), "{what}");
}

/// Returns the status of a request with each token. Asserts that it is the same after a restart.
async fn statuses<const N: usize>(gateway: Gateway, tokens: [&str; N]) -> (Gateway, [u16; N]) {
    let mut now = [0; N];
    for (status, token) in now.iter_mut().zip(tokens) {
        *status = gateway.status_of(token).await;
    }
    let gateway = gateway.restart();
    for (status, token) in now.iter().zip(tokens) {
        assert_eq!(*status, gateway.status_of(token).await, "after a restart: {token}");
    }
    (gateway, now)
}

fn at(gateway: &Gateway) -> UnixTime {
    UnixTime::from_secs(gateway.now_secs())
}

/// The log has more entries than the store returns at once.
#[tokio::test]
async fn a_start_loads_all_of_a_long_log() {
    const COUNT: usize = MAX_REVOCATIONS + 1_000;
    let upstream = Upstream::start();
    let (gateway, mint) = gateway(&upstream);
    let with_id = |id: usize| mint.with_claims(gateway.now_secs(), json!({ "sub": "alice", "jti": id.to_string() }));
    let [first, last, other] = [1, COUNT, COUNT + 1].map(with_id);
    assert_eq!(gateway.status_of(&first).await, 200);
    let mut database = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    let written = database.transaction().expect("begun");
    written
        .execute(
            "insert into revocations (sequence, kind, issuer, name, at, until)
             with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ?1)
             select n, 'token', ?2, cast(n as text), 1, 9000000000000 from numbers",
            params![COUNT as i64, EXTERNAL_ISSUER],
        )
        .expect("written");
    written.execute("update meta set value = ?1 where name = 'revocation_sequence'", [COUNT as i64]).expect("written");
    written.commit().expect("committed");
    let gateway = gateway.restart();
    for (token, status) in [(&first, 401), (&last, 401), (&other, 200)] {
        assert_eq!(gateway.status_of(token).await, status);
    }
}

#[tokio::test]
async fn revoking_a_subject_ends_its_tokens_but_not_the_next_login() {
    let upstream = Upstream::start();
    let (gateway, mint) = gateway(&upstream);
    let (phone, laptop, bob) =
        (gateway.issue("alice", "").await, gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let namesake = mint.with_claims(gateway.now_secs(), json!({ "sub": "alice" }));
    let tokens = [phone.access.as_str(), &laptop.access, &bob.access, &namesake];
    let (gateway, known) = statuses(gateway, tokens).await;
    assert_eq!(known, [200; 4]);

    let answer = gateway.admin_client().delete("/admin/v1/subjects/alice/tokens").await;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, r#"{"success":true}"#));
    let (gateway, statuses_after) = statuses(gateway, tokens).await;
    assert_eq!(statuses_after, [401, 401, 200, 200], "alice of another issuer is another subject");
    for pair in [&phone, &laptop] {
        gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(400, "invalid_grant");
    }
    let listed = gateway.admin_client().get("/admin/v1/subjects/alice/tokens").await.json();
    let tokens = listed["tokens"].as_array().expect("a list");
    assert_eq!(tokens.len(), 2);
    for token in tokens {
        assert_eq!((&token["state"], &token["reason"]), (&json!("revoked"), &json!("admin")));
    }
    gateway.advance(MILLISECOND);
    let again = gateway.issue("alice", "").await;
    assert_eq!(gateway.status_of(&again.access).await, 200, "a login in the same second works");
    assert_eq!(gateway.refresh(&again.access, &again.refresh).await.status, 200);

    revoke(&gateway, json!({ "sub": "alice", "issuer": EXTERNAL_ISSUER })).await;
    let (gateway, statuses_after) = statuses(gateway, [&namesake, &again.access, &bob.access]).await;
    assert_eq!(statuses_after, [401, 200, 200]);
    gateway.admin_client().delete("/admin/v1/subjects//tokens").await.assert_rejected(400, "invalid_request");
    assert_eq!(gateway.admin_client().delete("/admin/v1/subjects/unknown/tokens").await.status, 200);
}

#[tokio::test]
async fn only_tokens_issued_before_the_given_time_are_revoked() {
    let upstream = Upstream::start();
    let (gateway, mint) = gateway(&upstream);
    let old = (gateway.issue("alice", "").await, mint.valid_token(gateway.now_secs()));
    let before = at(&gateway);
    gateway.advance(SECOND);
    let new = (gateway.issue("alice", "").await, mint.valid_token(gateway.now_secs()));
    let tokens = [old.0.access.as_str(), &new.0.access, &old.1, &new.1];

    revoke(&gateway, json!({ "sub": "alice", "before": before.to_string() })).await;
    let (gateway, statuses_after) = statuses(gateway, tokens).await;
    assert_eq!(statuses_after, [401, 200, 200, 200]);
    revoke(&gateway, json!({ "all": true, "issuer": EXTERNAL_ISSUER, "before": before.to_string() })).await;
    let (gateway, statuses_after) = statuses(gateway, tokens).await;
    assert_eq!(statuses_after, [401, 200, 401, 200]);
    revoke(&gateway, json!({ "all": true, "issuer": EXTERNAL_ISSUER })).await;
    let (gateway, statuses_after) = statuses(gateway, tokens).await;
    assert_eq!(statuses_after, [401, 200, 401, 401]);
    revoke(&gateway, json!({ "all": true, "issuer": EXTERNAL_ISSUER, "before": before.to_string() })).await;
    assert_eq!(gateway.status_of(&new.1).await, 401, "a watermark is never lowered");
    gateway.refresh(&old.0.access, &old.0.refresh).await.assert_rejected(400, "invalid_grant");
    assert_eq!(gateway.refresh(&new.0.access, &new.0.refresh).await.status, 200);
}

/// A refresh that is in flight during "log out everywhere" can complete after it. The new access token is then issued
/// after the watermark, but its session is older.
#[tokio::test]
async fn a_refresh_cannot_overtake_a_mass_revocation() {
    let upstream = Upstream::start();
    for what in [json!({ "sub": "alice" }), json!({ "all": true, "issuer": ISSUER }), json!({ "all": true })] {
        let (gateway, _) = gateway(&upstream);
        let old = gateway.issue("alice", "").await;
        let mut what = what;
        what["before"] = json!(at(&gateway).to_string());
        gateway.advance(SECOND + MILLISECOND);
        let refreshed = TokenPair::from_json(&gateway.refresh(&old.access, &old.refresh).await.json());
        let new = gateway.issue("alice", "").await;
        let (gateway, before) = statuses(gateway, [&refreshed.access, &new.access]).await;
        assert_eq!(before, [200, 200]);
        revoke(&gateway, what).await;
        let (gateway, after) = statuses(gateway, [&old.access, &refreshed.access, &new.access]).await;
        assert_eq!(after, [401, 401, 200]);
        gateway.refresh(&refreshed.access, &refreshed.refresh).await.assert_rejected(400, "invalid_grant");
        let next = TokenPair::from_json(&gateway.refresh(&new.access, &new.refresh).await.json());
        assert_eq!(gateway.status_of(&next.access).await, 200);
    }
}

/// A login that began before the clock was set back, or before the watermark, and a login that its watermark voids.
#[tokio::test]
async fn a_login_that_is_older_than_the_watermark_gets_no_tokens() {
    let upstream = Upstream::start();
    let (gateway, _) = gateway(&upstream);
    revoke(&gateway, json!({ "sub": "alice" })).await;
    let response = gateway.request_tokens(&json!({ "sub": "alice" })).await;
    response.assert_rejected(503, "temporarily_unavailable");
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(gateway.admin_client().get("/admin/v1/subjects/alice/tokens").await.json()["tokens"], json!([]));
    gateway.issue("bob", "").await;
    gateway.advance(MILLISECOND);
    gateway.issue("alice", "").await;
}

#[tokio::test]
async fn all_tokens_or_all_tokens_of_this_gateway_can_be_revoked() {
    let upstream = Upstream::start();
    for (named, of_others) in [(json!({ "all": true, "issuer": ISSUER }), 200), (json!({ "all": true }), 401)] {
        let (gateway, mint) = gateway(&upstream);
        let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
        let foreign = mint.valid_token(gateway.now_secs());
        revoke(&gateway, named).await;
        let (gateway, statuses_after) = statuses(gateway, [&alice.access, &bob.access, &foreign]).await;
        assert_eq!(statuses_after, [401, 401, of_others]);
        gateway.refresh(&bob.access, &bob.refresh).await.assert_rejected(400, "invalid_grant");
        gateway.advance(MILLISECOND);
        let again = gateway.issue("alice", "").await;
        assert_eq!(gateway.status_of(&again.access).await, 200);
    }
}

#[tokio::test]
async fn a_token_of_another_issuer_is_revoked_by_its_jti() {
    let upstream = Upstream::start();
    let (gateway, mint) = gateway(&upstream);
    let of = |jti: &str| mint.with_claims(gateway.now_secs(), json!({ "jti": jti }));
    let (first, second) = (of("é/1"), of("2"));
    revoke(&gateway, json!({ "jti": "é/1", "issuer": EXTERNAL_ISSUER })).await;
    revoke(&gateway, json!({ "jti": "2" })).await;
    let (_, statuses_after) = statuses(gateway, [&first, &second]).await;
    assert_eq!(statuses_after, [401, 200], "without an issuer, the gateway's issuer is meant");
}

/// The sign-on session of a user at the other issuer, with tokens for several clients.
#[tokio::test]
async fn the_tokens_of_a_session_elsewhere_are_revoked_by_its_sid() {
    let upstream = Upstream::start();
    let (gateway, mint) = gateway(&upstream);
    let own = gateway.issue("alice", "").await;
    let own_sid = claims_of(&own.access)["sid"].clone();
    let of = |claims: Value| mint.with_claims(gateway.now_secs(), claims);
    let tokens = [
        of(json!({ "sid": "é/1", "jti": "1" })),
        of(json!({ "sid": "é/1", "sub": "bob", "iat": gateway.now_secs() })),
        of(json!({ "sid": "2" })),
        of(json!({ "jti": "é/1" })),
        of(json!({ "sid": 1 })),
        of(json!({ "sid": own_sid })),
    ];
    let tokens = [&tokens[0], &tokens[1], &tokens[2], &tokens[3], &tokens[4], &tokens[5], &own.access];
    let tokens = tokens.map(String::as_str);
    let (gateway, before) = statuses(gateway, tokens).await;
    assert_eq!(before, [200; 7]);
    revoke(&gateway, json!({ "session": "é/1", "issuer": EXTERNAL_ISSUER })).await;
    let (gateway, after) = statuses(gateway, tokens).await;
    assert_eq!(after, [401, 401, 200, 200, 200, 200, 200]);
    revoke(&gateway, json!({ "session": own_sid, "issuer": EXTERNAL_ISSUER })).await;
    let (gateway, after) = statuses(gateway, tokens).await;
    assert_eq!(after, [401, 401, 200, 200, 200, 401, 200], "a session of the other issuer, not ours");

    let ended = gateway.admin_client().get("/admin/v1/tokens/ended").await.json();
    let entry = &ended["ended"][1];
    let expected = (&json!("issuer_session"), &json!("é/1"), &json!(EXTERNAL_ISSUER));
    assert_eq!((&entry["what"], &entry["session"], &entry["issuer"]), expected, "{ended}");
}

/// A client can refresh with an expired access token for days, so the gateway must keep its revocation as long.
#[tokio::test]
async fn a_revoked_token_is_rejected_at_refresh_until_its_family_ends() {
    let upstream = Upstream::start();
    let (mut gateway, _) = gateway(&upstream);
    let first = gateway.issue("alice", "").await;
    let second = TokenPair::from_json(&gateway.refresh(&first.access, &first.refresh).await.json());
    revoke(&gateway, json!({ "jti": claims_of(&first.access)["jti"] })).await;
    gateway.refresh(&first.access, &second.refresh).await.assert_rejected(401, "invalid_token");
    for days in [1, 5] {
        gateway.advance(Duration::from_hours(days * 24));
        // The sweep removes nothing, and the restarted gateway reads the revocation again.
        let swept = gateway.running().broker.store.sweep(at(&gateway), 100).await.expect("the store works");
        assert_eq!(swept, 0);
        gateway = gateway.restart();
        gateway.refresh(&first.access, &second.refresh).await.assert_rejected(401, "invalid_token");
    }
    assert_eq!(gateway.refresh(&second.access, &second.refresh).await.status, 200, "the login itself is not revoked");
}

#[tokio::test]
async fn invalid_revocation_requests_are_rejected_without_effect() {
    let upstream = Upstream::start();
    let (gateway, mint) = gateway(&upstream);
    let own = gateway.issue("alice", "").await;
    let foreign = mint.valid_token(gateway.now_secs());
    let ahead = (at(&gateway) + SECOND).to_string();
    for (wanted, expected) in [
        (json!({}), "expected exactly one of"),
        (json!({ "issuer": EXTERNAL_ISSUER }), "expected exactly one of"),
        (json!({ "all": false }), "expected exactly one of"),
        (json!({ "sub": "alice", "all": true }), "expected exactly one of"),
        (json!({ "sub": "alice", "jti": "1" }), "expected exactly one of"),
        (json!({ "session": "1", "jti": "1", "issuer": EXTERNAL_ISSUER }), "expected exactly one of"),
        (json!({ "session": "1", "all": true, "issuer": EXTERNAL_ISSUER }), "expected exactly one of"),
        (json!({ "session": "1" }), "session needs the issuer"),
        (json!({ "session": "1", "issuer": ISSUER }), "session needs the issuer"),
        (json!({ "session": "", "issuer": EXTERNAL_ISSUER }), "1 to 4096 bytes"),
        (json!({ "session": "1", "issuer": "https://login.example/" }), "is not configured"),
        (
            json!({ "session": "1", "issuer": EXTERNAL_ISSUER, "before": "2026-01-01T00:00:00Z" }),
            "before cannot be used with jti or session",
        ),
        (json!({ "sub": "" }), "1 to 4096 bytes"),
        (json!({ "jti": "", "issuer": EXTERNAL_ISSUER }), "1 to 4096 bytes"),
        (
            json!({ "sub": "alice", "issuer": "https://login.example/" }),
            "the issuer \"https://login.example/\" is not configured",
        ),
        (json!({ "jti": "1", "before": "2026-01-01T00:00:00Z" }), "before cannot be used with jti or session"),
        (json!({ "all": true, "before": "yesterday" }), "not a time"),
        (json!({ "all": true, "before": 1_700_000_000 }), "invalid type"),
        (json!({ "all": true, "before": ahead }), "in the future"),
        (json!({ "user": "alice" }), "unknown field `user`"),
        (json!({ "subject": "alice", "sub": "alice" }), "duplicate field `sub`"),
    ] {
        let answer = gateway.admin_client().post("/admin/v1/revocations", &wanted).await;
        eprintln!("{wanted}");
        answer.assert_rejected(400, "invalid_request");
        let description = answer.json()["error_description"].as_str().expect("text").to_owned();
        assert!(description.contains(expected), "{expected:?} is missing: {description}");
    }
    let (_, statuses_after) = statuses(gateway, [&own.access, &foreign]).await;
    assert_eq!(statuses_after, [200, 200]);
}

/// The response comes after the time of the watermark. With a disk in memory, the next login could otherwise begin in
/// the same millisecond and be void.
#[tokio::test]
async fn a_login_after_the_response_is_never_affected() {
    let upstream = Upstream::start();
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a folder");
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let gateway = GatewayProcess::start(folder.path());
    let admin = gateway.admin_client();
    for round in 0..200 {
        let revoked = match round % 2 {
            0 => admin.delete("/admin/v1/subjects/alice/tokens").await,
            _ => admin.post("/admin/v1/revocations", &json!({ "all": true })).await,
        };
        assert_eq!(revoked.status, 200);
        let login = admin.post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
        assert_eq!(login.status, 201, "round {round}: {login:?}");
        let pair = TokenPair::from_json(&login.json());
        assert_eq!(gateway.client().bearer(&pair.access).get("/").await.status, 200, "round {round}");
    }
}
