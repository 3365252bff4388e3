//! The page of grants.

use http::Method;

use super::{Front, OAUTH, Page, authorize};
use crate::support::tokens::claims_of;
use crate::support::visitor::{APP, Visitor, parameter};

const GRANTS: &str = "https://app.example/oauth/grants";

/// The value of the hidden field of the first grant.
fn first_grant(html: &str) -> String {
    let rest = html.split_once("name=\"grant\" value=\"").unwrap_or_else(|| panic!("no grant in {html}")).1;
    rest.split('"').next().expect("a value").to_owned()
}

#[tokio::test]
async fn a_user_sees_and_ends_what_clients_may_do() {
    let mut front = Front::start().await;
    assert_eq!(front.alice.load(GRANTS).await.status, 302, "the user signs in first");
    let code = front.code(&authorize(&[])).await;
    let tokens = front.redeem(&code, &[]).await.json();
    let page = front.alice.load(GRANTS).await;
    assert_eq!(page.status, 200);
    let html = page.text();
    for shown in [
        "spa",
        "Known to the operator",
        "client.example",
        "https://app.example/mcp",
        "127.0.0.1",
        "End the access of spa",
    ] {
        assert!(html.contains(shown), "{shown} in {html}");
    }
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 200);
    let form = format!("grant={}", first_grant(&html));
    let ended = front.alice.submit(GRANTS, &form).await;
    assert_eq!((ended.status.as_u16(), ended.header("location")), (303, Some(GRANTS)));
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 401);
    assert!(front.alice.load(GRANTS).await.text().contains("No application may act for you"));
}

/// Hostile case 85.
#[tokio::test]
async fn no_other_site_and_no_other_user_ends_a_grant() {
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    let tokens = front.redeem(&code, &[]).await.json();
    let html = front.alice.load(GRANTS).await.text();
    let form = format!("grant={}", first_grant(&html));
    let kind = ("content-type", "application/x-www-form-urlencoded");
    for fields in [&[kind][..], &[kind, ("origin", "https://evil.example")], &[kind, ("origin", "null")]] {
        assert_eq!(front.alice.send(Method::POST, GRANTS, fields, &form).await.status, 403, "{fields:?}");
    }
    let mut stranger = Visitor::of(&front.gateway);
    assert_eq!(stranger.submit(GRANTS, &form).await.status, 400, "without a session");
    // The session of the browser is no grant.
    let own = front.alice.load(&authorize(&[])).await;
    let consent = own.header("location").expect("the consent page").to_owned();
    let session = Page::of(&front.alice.load(&consent).await).session;
    let other = front.alice.submit(GRANTS, &format!("grant={session}")).await;
    assert_eq!(other.status, 404);
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 200);
}

/// With `oauth.resource`, the tokens of clients reach the calls of the gateway.
#[tokio::test]
async fn a_client_ends_its_own_session_and_no_other_one() {
    let text = OAUTH.replacen("[oauth]", &format!("[oauth]\nresource = \"{APP}\""), 1);
    let mut front = Front::with(&text).await;
    let login = front.gateway.issue("main|alice", "").await;
    let code = front.code(&authorize(&[("resource", APP)])).await;
    let tokens = front.redeem(&code, &[]).await.json();
    let access = tokens["access_token"].as_str().expect("a token").to_owned();
    let client = || front.gateway.client().host("app.example").bearer(&access);
    let other = client().send(Method::DELETE, &format!("/token/{}", login.token_id), "".into()).await;
    other.assert_rejected(404, "token_not_found");
    assert_eq!(front.status("/orders", &login.access.into()).await, 200);
    let own = claims_of(&access)["sid"].as_str().expect("an id").to_owned();
    // The user ends it from any device, and the client itself.
    assert_eq!(client().send(Method::DELETE, &format!("/token/{own}"), "".into()).await.status, 200);
    assert_eq!(client().get("/orders").await.status, 401);
}

/// The names of clients that registered themselves are texts of strangers.
#[tokio::test]
async fn the_name_of_a_client_is_text() {
    let mut front = Front::with(&OAUTH.replace("[oauth]\n", "[oauth]\nregistration = [\"loopback\"]\n")).await;
    let body = serde_json::json!({
        "client_name": "<b>Bank</b>\u{202e}", "redirect_uris": ["http://127.0.0.1/callback"],
    });
    let registered = front.gateway.client().host("app.example").post("/oauth/register", &body).await;
    let id = registered.json()["client_id"].as_str().expect("an id").to_owned();
    let callback = "http://127.0.0.1:1/callback";
    let page = front.consent_page(&authorize(&[("client_id", &id), ("redirect_uri", callback)])).await;
    assert!(page.html.contains("“\u{2068}bBank/b\u{2069}”") && !page.html.contains('\u{202e}'), "{}", page.html);
    let answer = front.decide(&page, "allow").await;
    let code = parameter(&answer, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[("client_id", &id), ("redirect_uri", callback)]).await.status, 200);
    let html = front.alice.load(&format!("{APP}/oauth/grants")).await.text();
    assert!(html.contains("bBank/b") && !html.contains("<b>Bank"), "{html}");
    for shown in ["its name was not checked", "a program on this device"] {
        assert!(html.contains(shown), "as on the consent page: {shown} in {html}");
    }
}

/// As of an application that signs in on each load. Ended sessions stay in the store until they would have expired.
#[tokio::test]
async fn many_ended_sessions_hide_no_grant() {
    const ENDED: i64 = 2_500;
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    let tokens = front.redeem(&code, &[]).await.json();
    let database = rusqlite::Connection::open(front.gateway.folder.path().join("bearward.db")).expect("opens");
    let columns: String = database
        .query_row(
            "select group_concat(name) from pragma_table_info('families')
                where name not in ('id', 'created_at', 'revoked_at', 'revoked_reason')",
            [],
            |row| row.get(0),
        )
        .expect("columns");
    let ended = format!(
        "with recursive number (n) as (select 1 union all select n + 1 from number where n < ?1)
         insert into families (id, created_at, revoked_at, revoked_reason, {columns})
            select substr(id, 1, 17) || printf('%05d', n), created_at + 1, created_at + 2, 'logout', {columns}
            from families, number where client_id = 'spa'"
    );
    assert_eq!(database.execute(&ended, [ENDED]).expect("writes"), ENDED as usize);
    let html = front.alice.load(GRANTS).await.text();
    assert!(html.contains("End the access of spa"), "{html}");
    let ended = front.alice.submit(GRANTS, &format!("grant={}", first_grant(&html))).await;
    assert_eq!(ended.status, 303);
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 401);
}

#[tokio::test]
async fn the_newest_sessions_of_a_client_stay_and_the_oldest_ends() {
    let mut front = Front::with(&OAUTH.replace("[oauth]\n", "[oauth]\nsessions_per_client = 2\n")).await;
    let callback = "http://127.0.0.1:1/callback";
    let of_cli = [("client_id", "cli"), ("redirect_uri", callback)];
    let code = front.code(&authorize(&of_cli)).await;
    let other = front.redeem(&code, &of_cli).await.json();
    let mut all = Vec::new();
    for _ in 0..3 {
        front.gateway.clock.advance(std::time::Duration::from_secs(1));
        let page = Page::of(&front.alice.navigate(&authorize(&[])).await);
        let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
        all.push(front.redeem(&code, &[]).await.json());
    }
    let mut statuses = Vec::new();
    for tokens in &all {
        statuses.push(front.status("/mcp", &tokens["access_token"]).await);
    }
    assert_eq!(statuses, [401, 200, 200]);
    front.refresh(&all[0], "spa").await.assert_rejected(400, "invalid_grant");
    assert_eq!(front.status("/mcp", &other["access_token"]).await, 200, "another client");
}
