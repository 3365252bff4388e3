//! A UserInfo endpoint that refuses or fails: many providers restrict it, sign its responses, or have it elsewhere.

use std::time::Duration;

use serde_json::{Value, json};

use super::liar::{Liar, Lies};
use super::lies::{claims, map};
use super::{APP, everything, gateway, journal};
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_ok;
use crate::support::{Upstream, secrets};

pub(super) const REFUSALS: [&str; 6] = [
    "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Type: application/jwt\r\nContent-Length: 5\r\n\r\na.b.c",
    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
];

const FAILURES: [&str; 4] = [
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Len",
];

pub(super) fn metadata() -> Value {
    json!({ "userinfo_endpoint": "ISSUER/userinfo" })
}

/// The ID token has no `email_verified`, as that of Entra ID, and UserInfo responds so.
fn refuses(raw: &'static str) -> Lies {
    Lies { raw_userinfo: Some(raw), ..claims(json!({ "email_verified": null })) }
}

#[tokio::test]
async fn a_refused_userinfo_ends_no_sign_in() {
    let (liar, upstream, start) = (Liar::start(&metadata()), Upstream::start(), secrets::capture_log());
    let identity = "[[identity.claim]]\npointer = \"/email\"\nheader = \"X-Auth-Email\"\n";
    let text = format!("{}{identity}", everything(&liar.issuer, "")).replace("\"main\"", "\"refusing\"");
    let gateway = gateway(&upstream, &text).await;
    for raw in REFUSALS {
        liar.tell(refuses(raw));
        let mut alice = Visitor::of(&gateway);
        let back = liar.sign_in(&mut alice, |back| back).await;
        assert_eq!(back.status, 303, "{raw}: {back:?}");
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200, "{raw}");
        let seen = upstream.seen().pop().expect("a request");
        assert_eq!(seen.header("x-auth-email"), Some("alice@ours.example"), "{raw}");
    }
    let lines = journal(start, "refusing");
    assert_eq!(lines.iter().filter(|line| line.contains("UserInfo")).count(), 1, "{lines:#?}");
}

#[tokio::test]
async fn a_rule_that_needs_userinfo_rejects_without_it() {
    let (liar, upstream) = (Liar::start(&metadata()), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "email_domains = [\"ours.example\"]")).await;
    for raw in REFUSALS {
        liar.tell(refuses(raw));
        let page = liar.sign_in(&mut Visitor::of(&gateway), |back| back).await;
        assert_eq!(page.status, 400, "{raw}: {page:?}");
        gateway.advance(Duration::from_secs(1));
    }
    // It needs no claim of UserInfo.
    liar.tell(Lies { raw_userinfo: Some(REFUSALS[0]), ..Lies::default() });
    assert_eq!(liar.sign_in(&mut Visitor::of(&gateway), |back| back).await.status, 303);
}

#[tokio::test]
async fn a_userinfo_that_fails_ends_only_sign_ins_that_need_it() {
    for (keys, status, warnings) in [("", 303, 1), ("email_domains = [\"ours.example\"]", 503, 0)] {
        let (liar, upstream, start) = (Liar::start(&metadata()), Upstream::start(), secrets::capture_log());
        let name = format!("failing-{status}");
        let text = everything(&liar.issuer, keys).replace("\"main\"", &format!("\"{name}\""));
        let gateway = gateway(&upstream, &text).await;
        for raw in FAILURES {
            liar.tell(refuses(raw));
            let page = liar.sign_in(&mut Visitor::of(&gateway), |back| back).await;
            assert_eq!(page.status, status, "{keys} {raw}: {page:?}");
        }
        let of_bob = claims(json!({ "email_verified": null }));
        liar.tell(Lies { userinfo: Some(json!({ "sub": "bob", "email_verified": true })), ..of_bob });
        assert_eq!(liar.sign_in(&mut Visitor::of(&gateway), |back| back).await.status, 400, "of another user");
        let lines = journal(start, &name);
        assert_eq!(lines.iter().filter(|line| line.contains("UserInfo")).count(), warnings, "{lines:#?}");
    }
}

#[tokio::test]
async fn few_sign_ins_wait_for_a_userinfo_that_hangs() {
    let (liar, upstream) = (Liar::start(&metadata()), Upstream::start());
    let name = "[[identity.claim]]\npointer = \"/name\"\nheader = \"X-Auth-Name\"\n";
    let keys = "client_timeout = \"4s\"\nconsecutive_timeouts = 1";
    let gateway = gateway(&upstream, &format!("{}{name}", everything(&liar.issuer, keys))).await;
    let calls = async |outcome: &str| {
        let labels = format!("provider=\"main\",call=\"userinfo\",outcome=\"{outcome}\"");
        gateway.metric(&format!("bearward_provider_calls_total{{{labels}}}")).await
    };
    let without_name = || claims(json!({ "name": null }));
    liar.tell(Lies { raw_userinfo: Some(""), ..without_name() });
    for _ in 0..4 {
        assert_eq!(liar.sign_in(&mut Visitor::of(&gateway), |back| back).await.status, 303);
    }
    assert_eq!(calls("failed").await, 1.0, "three have not waited");
    eventually_ok("one call at a time tries", async || match calls("skipped").await {
        2.0 => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
    // It responds again, and the next sign-ins have its claims.
    liar.tell(Lies { userinfo: Some(json!({ "sub": "alice", "name": "Alice" })), ..without_name() });
    eventually_ok("UserInfo is asked again", async || {
        let mut alice = Visitor::of(&gateway);
        assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303);
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
        let seen = upstream.seen().pop().expect("a request");
        match seen.header("x-auth-name") {
            Some("Alice") => Ok(()),
            name => Err(format!("{name:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_refused_userinfo_ends_no_refresh() {
    let (liar, upstream) = (Liar::start(&metadata()), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    let later = gateway.now_secs() + 36_000;
    liar.tell(Lies {
        response: map(json!({ "refresh_token": "a-refresh-token" })),
        raw_userinfo: Some(REFUSALS[0]),
        ..claims(json!({ "email_verified": null, "exp": later }))
    });
    let mut alice = Visitor::of(&gateway);
    assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303);
    for round in 1..=4 {
        // After the end of the tokens. After `max_staleness`, a login without a refresh gets 503.
        gateway.advance(Duration::from_secs(700));
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200, "{round}");
        eventually_ok("the refresh", async || {
            let exchanges = liar.exchanges();
            match exchanges.iter().filter(|form| form["grant_type"] == "refresh_token").count() {
                count if count == round => Ok(()),
                count => Err(count.to_string()),
            }
        })
        .await;
    }
}
