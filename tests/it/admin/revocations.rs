//! `POST /admin/v1/revocations` and `DELETE /admin/v1/subjects/{sub}/tokens`: whom an operator can revoke with one word.

use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::UnixTime;
use serde_json::{Value, json};

use crate::support::gateway::ISSUER;
use crate::support::tokens::{FOREIGN, Mint, claims_of};
use crate::support::{Gateway, Pair, Upstream};

const SECOND: Duration = Duration::from_secs(1);

/// A gateway that accepts tokens of another issuer, too.
fn gateway(upstream: &Upstream) -> (Gateway, Mint) {
    let mint = Mint::new(Algorithm::ES256);
    (Gateway::trusting(upstream, &mint, ""), mint)
}

async fn revoke(gateway: &Gateway, what: Value) {
    let answer = gateway.admin_client().post("/admin/v1/revocations", &what).await;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, r#"{"success":true}"#), "{what}");
}

/// What requests with these tokens are answered, now and after a restart.
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

#[tokio::test]
async fn everything_of_a_subject_dies_and_the_next_login_lives() {
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
    let (gateway, left) = statuses(gateway, tokens).await;
    assert_eq!(left, [401, 401, 200, 200], "another issuer's alice is somebody else");
    for pair in [&phone, &laptop] {
        gateway.refresh(&pair.access, &pair.refresh).await.refused(400, "invalid_grant");
    }
    let listed = gateway.admin_client().get("/admin/v1/subjects/alice/tokens").await.json();
    for token in listed["tokens"].as_array().expect("a list") {
        assert_eq!((&token["state"], &token["reason"]), (&json!("revoked"), &json!("admin")));
    }
    let again = gateway.issue("alice", "").await;
    assert_eq!(gateway.status_of(&again.access).await, 200, "a login in the same second works");
    assert_eq!(gateway.refresh(&again.access, &again.refresh).await.status, 200);

    revoke(&gateway, json!({ "sub": "alice", "issuer": FOREIGN })).await;
    let (gateway, left) = statuses(gateway, [&namesake, &again.access, &bob.access]).await;
    assert_eq!(left, [401, 200, 200]);
    gateway.admin_client().delete("/admin/v1/subjects//tokens").await.refused(400, "invalid_request");
    assert_eq!(gateway.admin_client().delete("/admin/v1/subjects/nobody/tokens").await.status, 200);
}

#[tokio::test]
async fn only_what_is_as_old_as_the_time_named_dies() {
    let upstream = Upstream::start();
    let (gateway, mint) = gateway(&upstream);
    let old = (gateway.issue("alice", "").await, mint.good(gateway.now_secs()));
    let before = at(&gateway);
    gateway.advance(SECOND);
    let new = (gateway.issue("alice", "").await, mint.good(gateway.now_secs()));
    let tokens = [old.0.access.as_str(), &new.0.access, &old.1, &new.1];

    revoke(&gateway, json!({ "sub": "alice", "before": before.to_string() })).await;
    let (gateway, left) = statuses(gateway, tokens).await;
    assert_eq!(left, [401, 200, 200, 200]);
    revoke(&gateway, json!({ "all": true, "issuer": FOREIGN, "before": before.to_string() })).await;
    let (gateway, left) = statuses(gateway, tokens).await;
    assert_eq!(left, [401, 200, 401, 200]);
    revoke(&gateway, json!({ "all": true, "issuer": FOREIGN })).await;
    let (gateway, left) = statuses(gateway, tokens).await;
    assert_eq!(left, [401, 200, 401, 401]);
    revoke(&gateway, json!({ "all": true, "issuer": FOREIGN, "before": before.to_string() })).await;
    assert_eq!(gateway.status_of(&new.1).await, 401, "a watermark is never lowered");
    gateway.refresh(&old.0.access, &old.0.refresh).await.refused(400, "invalid_grant");
    assert_eq!(gateway.refresh(&new.0.access, &new.0.refresh).await.status, 200);
}

#[tokio::test]
async fn everything_can_be_ended_or_all_that_this_gateway_issued() {
    let upstream = Upstream::start();
    for (named, of_others) in [(json!({ "all": true, "issuer": ISSUER }), 200), (json!({ "all": true }), 401)] {
        let (gateway, mint) = gateway(&upstream);
        let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
        let foreign = mint.good(gateway.now_secs());
        revoke(&gateway, named).await;
        let (gateway, left) = statuses(gateway, [&alice.access, &bob.access, &foreign]).await;
        assert_eq!(left, [401, 401, of_others]);
        gateway.refresh(&bob.access, &bob.refresh).await.refused(400, "invalid_grant");
        let again = gateway.issue("alice", "").await;
        assert_eq!(gateway.status_of(&again.access).await, 200);
    }
}

#[tokio::test]
async fn one_token_of_another_issuer_dies_by_its_jti() {
    let upstream = Upstream::start();
    let (gateway, mint) = gateway(&upstream);
    let of = |jti: &str| mint.with_claims(gateway.now_secs(), json!({ "jti": jti }));
    let (first, second) = (of("é/1"), of("2"));
    revoke(&gateway, json!({ "jti": "é/1", "issuer": FOREIGN })).await;
    revoke(&gateway, json!({ "jti": "2" })).await;
    let (_, left) = statuses(gateway, [&first, &second]).await;
    assert_eq!(left, [401, 200], "without an issuer, our own is meant");
}

/// Such a token is good for a refresh for days after it expired. As long must its revocation be remembered.
#[tokio::test]
async fn one_token_of_ours_is_refused_for_a_refresh_as_long_as_anybody_could_try() {
    let upstream = Upstream::start();
    let (mut gateway, _) = gateway(&upstream);
    let first = gateway.issue("alice", "").await;
    let second = Pair::of(&gateway.refresh(&first.access, &first.refresh).await.json());
    revoke(&gateway, json!({ "jti": claims_of(&first.access)["jti"] })).await;
    gateway.refresh(&first.access, &second.refresh).await.refused(401, "invalid_token");
    for days in [1, 5] {
        gateway.advance(Duration::from_hours(days * 24));
        // Swept by what no longer matters, and read again.
        let swept = gateway.running().broker.store.sweep(at(&gateway), 100).await.expect("the store works");
        assert_eq!(swept, 0);
        gateway = gateway.restart();
        gateway.refresh(&first.access, &second.refresh).await.refused(401, "invalid_token");
    }
    assert_eq!(gateway.refresh(&second.access, &second.refresh).await.status, 200, "the login itself lives");
}

#[tokio::test]
async fn what_names_nobody_or_too_much_is_refused_and_nothing_dies() {
    let upstream = Upstream::start();
    let (gateway, mint) = gateway(&upstream);
    let own = gateway.issue("alice", "").await;
    let foreign = mint.good(gateway.now_secs());
    let ahead = (at(&gateway) + SECOND).to_string();
    for (wanted, says) in [
        (json!({}), "expected exactly one of"),
        (json!({ "issuer": FOREIGN }), "expected exactly one of"),
        (json!({ "all": false }), "expected exactly one of"),
        (json!({ "sub": "alice", "all": true }), "expected exactly one of"),
        (json!({ "sub": "alice", "jti": "1" }), "expected exactly one of"),
        (json!({ "sub": "" }), "1 to 4096 bytes"),
        (json!({ "jti": "", "issuer": FOREIGN }), "1 to 4096 bytes"),
        (
            json!({ "sub": "alice", "issuer": "https://login.example/" }),
            "the issuer \"https://login.example/\" is not configured",
        ),
        (json!({ "jti": "1", "before": "2026-01-01T00:00:00Z" }), "before cannot be used with jti"),
        (json!({ "all": true, "before": "yesterday" }), "not a time"),
        (json!({ "all": true, "before": 1_700_000_000 }), "invalid type"),
        (json!({ "all": true, "before": ahead }), "in the future"),
        (json!({ "subject": "alice" }), "unknown field `subject`"),
    ] {
        let answer = gateway.admin_client().post("/admin/v1/revocations", &wanted).await;
        eprintln!("{wanted}");
        answer.refused(400, "invalid_request");
        let description = answer.json()["error_description"].as_str().expect("text").to_owned();
        assert!(description.contains(says), "{says:?} is not said: {description}");
    }
    let (_, left) = statuses(gateway, [&own.access, &foreign]).await;
    assert_eq!(left, [200, 200]);
}
