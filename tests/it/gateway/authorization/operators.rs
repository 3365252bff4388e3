//! What operators see of clients that ask users: audit events, metrics, and the access log.

use serde_json::{Value, json};

use super::{CALLBACK, Front, MCP, NOTES, OAUTH, Page, VERIFIER, authorize, counted, counts, fetched};
use crate::gateway::oauth::post;
use crate::gateway::sign_in::liar::Lies;
use crate::support::visitor::{APP, Visitor, parameter};
use crate::support::wait::eventually_ok;

const PROGRAM: &str = "http://127.0.0.1:7777/callback";

/// The events about clients, in order, when there are this many.
async fn events(front: &Front, count: usize) -> Vec<Value> {
    eventually_ok(&format!("{count} events"), async || {
        let all = front.gateway.audit_events(0).await;
        let about_clients: Vec<_> = all.into_iter().filter(|event| event["client_id"].is_string()).collect();
        if about_clients.len() == count { Ok(about_clients) } else { Err(format!("{about_clients:?}")) }
    })
    .await
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn a_grant_and_the_first_one_of_a_client_are_recorded_with_its_session() {
    let mut front = Front::start().await;
    let request = [("resource", NOTES), ("scope", "notes:read")];
    let code = front.code(&authorize(&request)).await;
    assert!(events(&front, 0).await.is_empty(), "nothing is stored before the client redeems its code");
    let tokens = front.redeem(&code, &[]).await.json();
    let recorded = events(&front, 2).await;
    assert_eq!(names(&recorded), ["authorization.granted", "client.seen"]);
    for event in &recorded {
        for (member, expected) in [
            ("subject", json!("main|alice")),
            ("client_id", json!("spa")),
            ("redirect_host", json!("client.example")),
            ("resource", json!([NOTES])),
            ("scope", json!("notes:read")),
            ("client", json!("127.0.0.1")),
        ] {
            assert_eq!(event[member], expected, "{event}");
        }
        let claims = crate::support::tokens::claims_of(tokens["access_token"].as_str().expect("a token"));
        assert_eq!(event["token_id"], claims["sid"], "{event}");
        assert!(event["request_id"].is_string(), "{event}");
    }
    // The same client again, and another one, and the same one with another user.
    let page = Page::of(&front.alice.navigate(&authorize(&[])).await);
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
    assert_eq!(names(&events(&front, 3).await)[2..], ["authorization.granted"]);
    let page = Page::of(&front.alice.navigate(&authorize(&[("client_id", "cli"), ("redirect_uri", PROGRAM)])).await);
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[("client_id", "cli"), ("redirect_uri", PROGRAM)]).await.status, 200);
    assert_eq!(names(&events(&front, 5).await)[3..], ["authorization.granted", "client.seen"]);
    front.liar.tell(Lies { claims: [("sub", json!("bob"))].into(), ..Lies::default() });
    front.alice = Visitor::of(&front.gateway);
    let code = front.code(&authorize(&[])).await;
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
    let recorded = events(&front, 7).await;
    assert_eq!(names(&recorded)[5..], ["authorization.granted", "client.seen"]);
    assert_eq!(recorded[5]["subject"], "main|bob");
    let issued = front.gateway.audit_events(0).await.into_iter().filter(|event| event["event"] == "token.issued");
    assert!(issued.into_iter().all(|event| event["client_id"].is_null()), "one event for one session");
}

#[tokio::test]
async fn a_user_who_declines_is_recorded_and_a_stranger_never() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    let stranger = Visitor::of(&front.gateway);
    for changed in [("client_id", "none"), ("redirect_uri", "https://evil.example/"), ("scope", "none"), ("state", "")]
    {
        assert!([400, 303].contains(&fetched(&front, &authorize(&[changed])).await.status.as_u16()));
    }
    let mut strangers = [stranger, Visitor::of(&front.gateway)];
    for stranger in &mut strangers {
        let response = stranger.submit(&format!("{APP}/oauth/consent"), &page.form("deny")).await;
        assert_eq!(response.status, 400, "without the cookie of the browser");
    }
    front.redeem("bwc1_AAAA", &[]).await.assert_rejected(400, "invalid_grant");
    assert!(events(&front, 0).await.is_empty());
    front.decide(&page, "deny").await;
    let recorded = events(&front, 1).await;
    let event = &recorded[0];
    for (member, expected) in [
        ("event", json!("authorization.denied")),
        ("subject", json!("main|alice")),
        ("client_id", json!("spa")),
        ("redirect_host", json!("client.example")),
        ("resource", json!([MCP])),
        ("client", json!("127.0.0.1")),
        ("token_id", Value::Null),
    ] {
        assert_eq!(event[member], expected, "{event}");
    }
    let log = front.gateway.log_line(|line| line["reason"] == "consent_denied").await;
    assert_eq!((&log["request_id"], &log["oauth_client"]), (&event["request_id"], &json!("spa")));
}

/// Each one is an event.
#[tokio::test]
async fn a_user_who_declines_all_the_time_is_limited() {
    let mut front = Front::with_calls(OAUTH, 40).await;
    let page = front.consent_page(&authorize(&[])).await;
    let mut declined = 0;
    let limited = loop {
        match front.submit(&page, "deny").await.status.as_u16() {
            303 if declined < 60 => declined += 1,
            status => break status,
        }
    };
    assert_eq!(limited, 429, "after {declined}");
    assert_eq!(events(&front, declined).await.len(), declined);
}

#[tokio::test]
async fn the_second_use_of_a_code_is_one_event() {
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
    for _ in 0..3 {
        front.redeem(&code, &[]).await.assert_rejected(400, "invalid_grant");
    }
    let recorded = events(&front, 3).await;
    assert_eq!(names(&recorded), ["authorization.granted", "client.seen", "code.reused"]);
    assert_eq!(recorded[2]["token_id"], recorded[0]["token_id"]);
    assert_eq!(recorded[2]["resource"], json!([MCP]));
    assert_eq!(counted(&front, "codes").await, counts([("redeemed", 1), ("reused", 3)]));
}

#[tokio::test]
async fn the_end_of_a_grant_says_who_ended_it() {
    let mut front = Front::start().await;
    let first = front.code(&authorize(&[])).await;
    let mut grants = vec![front.redeem(&first, &[]).await.json()];
    for _ in 0..2 {
        let page = Page::of(&front.alice.navigate(&authorize(&[])).await);
        let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
        grants.push(front.redeem(&code, &[]).await.json());
    }
    let id = |tokens: &Value| {
        let claims = crate::support::tokens::claims_of(tokens["access_token"].as_str().expect("a token"));
        claims["sid"].as_str().expect("an id").to_owned()
    };
    let ids: Vec<String> = grants.iter().map(id).collect();
    let ended = front.alice.submit(&format!("{APP}/oauth/grants"), &format!("grant={}", ids[0])).await;
    assert_eq!(ended.status, 303, "{}", ended.text());
    let token = grants[1]["refresh_token"].as_str().expect("a token");
    let form = [("token", token), ("client_id", "spa")];
    let revoked = post(front.gateway.client().host("app.example"), "/oauth/revoke", &form).await;
    assert_eq!(revoked.status, 200);
    let path = format!("/admin/v1/tokens/{}", ids[2]);
    assert_eq!(front.gateway.admin_client().delete(&path).await.status, 200);
    let recorded = events(&front, 7).await;
    let ends = recorded.iter().filter(|event| event["event"] == "token.revoked").collect::<Vec<_>>();
    for ((event, by), id) in ends.iter().zip(["user", "client", "operator"]).zip(&ids) {
        assert_eq!((&event["by"], &event["token_id"]), (&json!(by), &json!(id)), "{event}");
        assert_eq!((&event["client_id"], &event["resource"]), (&json!("spa"), &json!([MCP])), "{event}");
    }
    assert_eq!(ends.len(), 3);
    // The session of the browser is no client's.
    front.alice.submit(&format!("{APP}/oauth2/sign_out"), "").await;
    let own = eventually_ok("the sign-out is recorded", async || {
        let all = front.gateway.audit_events(0).await;
        let own = all.iter().find(|event| event["event"] == "token.revoked" && event["client_id"].is_null());
        own.cloned().ok_or(format!("{all:?}"))
    })
    .await;
    assert_eq!((&own["reason"], &own["by"]), (&json!("logout"), &Value::Null));
}

#[tokio::test]
async fn each_outcome_is_counted_where_it_is_decided() {
    let keys = "registration = [\"loopback\"]\nclient_documents = [\"localhost\"]\n";
    let mut front = Front::with(&OAUTH.replace("[oauth]\n", &format!("[oauth]\n{keys}"))).await;
    for changed in [
        [("client_id", "none"), ("", "")],
        [("client_id", "bwd1_none"), ("", "")],
        [("client_id", "https://elsewhere.example/a.json"), ("", "")],
        [("client_id", "https://localhost:1/a.json"), ("", "")],
        [("redirect_uri", "https://evil.example/"), ("", "")],
        [("redirect_uri", ""), ("", "")],
        [("response_type", "token"), ("", "")],
        [("client_id", "cli"), ("redirect_uri", PROGRAM)],
    ] {
        fetched(&front, &authorize(&changed)).await;
    }
    let expected = counts([
        ("unknown_client unknown", 1),
        ("unknown_client itself", 1),
        ("unknown_client document", 1),
        ("client_document document", 1),
        ("redirect_mismatch operator", 1),
        ("invalid operator", 1),
        ("refused operator", 1),
        ("asked operator", 1),
    ]);
    assert_eq!(counted(&front, "authorizations").await, expected);
    assert_eq!(counted(&front, "client_documents").await, counts([("denied", 1), ("unreachable", 1)]));
    for (uris, status) in [(json!([PROGRAM]), 201), (json!([CALLBACK]), 400), (json!([]), 400)] {
        let body = json!({ "redirect_uris": uris });
        let response = front.gateway.client().host("app.example").post("/oauth/register", &body).await;
        assert_eq!(response.status.as_u16(), status, "{body}");
    }
    assert_eq!(counted(&front, "registrations").await, counts([("registered", 1), ("rejected", 2)]));

    let page = front.consent_page(&authorize(&[])).await;
    let other = front.alice.submit(&format!("{APP}/oauth/consent"), "request=bwq1_none&decision=allow").await;
    assert_eq!(other.status, 400);
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    front.decide(&page, "deny").await;
    front.alice.navigate_until(&authorize(&[("client_id", "trusted")]), CALLBACK).await;
    let expected = counts([("allowed", 1), ("denied", 1), ("rejected", 1), ("skipped", 1)]);
    assert_eq!(counted(&front, "consents").await, expected);

    let again = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    for changed in [("code", "bwc1_none"), ("client_id", "cli"), ("code_verifier", &VERIFIER[1..])] {
        front.redeem(&code, &[changed]).await.assert_rejected(400, "invalid_grant");
    }
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
    front.redeem(&again, &[]).await.assert_rejected(400, "invalid_grant");
    front.gateway.clock.advance(std::time::Duration::from_secs(61));
    front.redeem(&code, &[]).await.assert_rejected(400, "invalid_grant");
    let expected = counts([("expired", 1), ("redeemed", 1), ("superseded", 1), ("wrong", 3)]);
    assert_eq!(counted(&front, "codes").await, expected);
}

/// By a name that the operator has given it, or by a host: never by one that the client has given itself.
#[tokio::test]
async fn the_access_log_names_the_client() {
    let mut front = Front::with(&OAUTH.replace("[oauth]\n", "[oauth]\nregistration = [\"loopback\"]\n")).await;
    let body = json!({ "redirect_uris": [PROGRAM], "client_name": "Your bank" });
    let registered = front.gateway.client().host("app.example").post("/oauth/register", &body).await;
    let id = registered.json()["client_id"].as_str().expect("an id").to_owned();
    for (client, redirect, name) in [("spa", CALLBACK, "spa"), (&id, PROGRAM, "127.0.0.1")] {
        front.alice = Visitor::of(&front.gateway);
        let code = front.code(&authorize(&[("client_id", client), ("redirect_uri", redirect)])).await;
        assert_eq!(front.redeem(&code, &[("client_id", client), ("redirect_uri", redirect)]).await.status, 200);
        for path in ["/oauth/authorize", "/oauth/consent", "/oauth/token"] {
            front.gateway.log_line(|line| line["path"] == path && line["oauth_client"] == name).await;
        }
    }
    let mismatch = authorize(&[("client_id", &id), ("redirect_uri", CALLBACK)]);
    assert_eq!(fetched(&front, &mismatch).await.status, 400);
    let line = front.gateway.log_line(|line| line["reason"] == "redirect_mismatch").await;
    assert_eq!(line["oauth_client"], Value::Null, "it is not known where its code goes");
    assert!(!front.gateway.log_text(1).await.contains("Your bank"));
}
