//! A refresh ends no stream, and a fresh token that is used carries it on.

use serde_json::json;

use super::*;
use crate::support::Pair;
use crate::support::tokens::claims_of;

#[tokio::test]
async fn a_refresh_ends_nothing_and_alone_carries_nothing_on() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let first = gateway.issue("alice", "").await;
    let mut socket = open(&gateway, &first.access).await;
    gateway.advance(Duration::from_mins(10));
    assert_eq!(gateway.refresh(&first.access, &first.refresh).await.status, 200);
    gateway.counts("streams_opened_total", 1).await;
    echoes(&mut socket).await;
    gateway.advance(Duration::from_mins(6));
    assert_eq!(within_a_second(closed(&mut socket)).await, expired());
}

#[tokio::test]
async fn a_fresh_token_that_is_used_carries_the_streams_of_its_family_on() {
    let upstream = Upstream::start();
    let gateway = gateway_of_one_worker(&upstream.address.to_string(), "");
    let (first, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let mut socket = open(&gateway, &first.access).await;
    let mut witness = open(&gateway, &bob.access).await;
    gateway.advance(Duration::from_mins(10));
    let second = Pair::of(&gateway.refresh(&first.access, &first.refresh).await.json());
    assert_eq!(gateway.status_of(&second.access).await, 200);

    gateway.advance(Duration::from_mins(6));
    assert_eq!(closed(&mut witness).await, expired(), "no refresh, no more time");
    echoes(&mut socket).await;
    gateway.advance(Duration::from_mins(10));
    assert_eq!(within_a_second(closed(&mut socket)).await, expired(), "the second one's time is over, too");
}

#[tokio::test]
async fn what_revokes_either_token_ends_what_both_carry() {
    let upstream = Upstream::start();
    let gateway = gateway_of_one_worker(&upstream.address.to_string(), "");
    for which in ["first", "second", "both"] {
        let first = gateway.issue("alice", "").await;
        let mut socket = open(&gateway, &first.access).await;
        let mut witness = open(&gateway, &gateway.issue("bob", "").await.access).await;
        gateway.advance(Duration::from_mins(10));
        let second = Pair::of(&gateway.refresh(&first.access, &first.refresh).await.json());
        assert_eq!(gateway.status_of(&second.access).await, 200);
        gateway.advance(Duration::from_mins(6));
        assert_eq!(closed(&mut witness).await, expired(), "{which}");
        echoes(&mut socket).await;
        match which {
            "both" => assert_eq!(gateway.revoke(&second.access, &second.token_id).await.status, 200),
            _ => {
                let jti = claims_of(if which == "first" { &first.access } else { &second.access })["jti"].clone();
                let answer = gateway.admin_client().post("/admin/v1/revocations", &json!({ "jti": jti })).await;
                assert_eq!(answer.status, 200, "{answer:?}");
            }
        }
        assert_eq!(within_a_second(closed(&mut socket)).await, revoked(), "{which}");
    }
}
