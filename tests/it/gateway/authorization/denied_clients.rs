//! `oauth.denied_clients`: clients that get nothing.

use super::{Front, OAUTH, Page, authorize, fetched};
use crate::support::visitor::parameter;

fn denying(list: &str) -> String {
    OAUTH.replace("[oauth]\n", &format!("[oauth]\ndenied_clients = {list}\n"))
}

#[tokio::test]
async fn a_denied_client_gets_nothing_from_the_reload_on() {
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    let tokens = front.redeem(&code, &[]).await.json();
    let page = Page::of(&front.alice.navigate(&authorize(&[])).await);
    let answer = front.decide(&page, "allow").await;
    let unused = parameter(&answer, "code").expect("a code");
    let open = Page::of(&front.alice.navigate(&authorize(&[])).await);
    let denied = front.gateway.configuration().replace("[oauth]\n", "[oauth]\ndenied_clients = [\"spa\"]\n");
    front.gateway.running().reload(front.gateway.parse(&denied)).expect("it reloads");

    let asked = fetched(&front, &authorize(&[])).await;
    assert_eq!((asked.status.as_u16(), asked.header("location")), (400, None));
    assert!(asked.text().contains("may not act for users here"), "{}", asked.text());
    let line = front.gateway.log_line(|line| line["path"] == "/oauth/authorize" && line["status"] == 400).await;
    assert_eq!(line["reason"], "client_denied", "{line}");
    let agreed = front.submit(&open, "allow").await;
    assert_eq!((agreed.status.as_u16(), agreed.header("location")), (400, None), "the user was asked before");
    front.redeem(&unused, &[]).await.assert_rejected(400, "invalid_client");
    front.refresh(&tokens, "spa").await.assert_rejected(400, "invalid_client");
    // The id is part of the refresh token's session, so that another one or none is no way around.
    front.refresh(&tokens, "cli").await.assert_rejected(400, "invalid_grant");
    front.redeem(&unused, &[("client_id", "")]).await.assert_rejected(400, "invalid_grant");
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 200, "until it expires");
    let other = authorize(&[("client_id", "cli"), ("redirect_uri", "http://127.0.0.1/callback")]);
    assert_eq!(fetched(&front, &other).await.status, 303, "another client");

    let before = front.gateway.config();
    front.gateway.running().reload(before).expect("it reloads");
    assert_eq!(front.refresh(&tokens, "spa").await.status, 200, "nothing has ended");
}

/// No document of a denied host is fetched: the gateway would answer 503 if it tried.
#[tokio::test]
async fn a_host_of_documents_is_denied() {
    let text = denying("[\"evil.invalid\"]").replace("[oauth]\n", "[oauth]\nclient_documents = \"any\"\n");
    let front = Front::with(&text).await;
    for (client_id, status, says) in [
        ("https://evil.invalid/client", 400, "may not act for users here"),
        ("https://evil.invalid:8443/other?x=1", 400, "may not act for users here"),
        ("https://www.evil.invalid/client", 503, "cannot be fetched right now"),
    ] {
        let response = fetched(&front, &authorize(&[("client_id", client_id)])).await;
        assert_eq!(response.status, status, "{client_id}: {}", response.text());
        assert!(response.text().contains(says), "{client_id}: {}", response.text());
    }
}

/// Everyone can register a client, so that its id says nothing. An operator knows the host that its codes go to.
#[tokio::test]
async fn a_client_that_registered_itself_is_denied_by_the_host_of_its_redirect_uri() {
    let registered = OAUTH.replace("[oauth]\n", "[oauth]\nregistration = [\"https\"]\n");
    let mut front = Front::with(&registered).await;
    let body = serde_json::json!({ "redirect_uris": ["https://client.example/callback"] });
    let client = front.gateway.client().host("app.example").post("/oauth/register", &body).await.json();
    let id = client["client_id"].as_str().expect("an id").to_owned();
    let asked = authorize(&[("client_id", &id)]);
    let code = front.code(&asked).await;
    let tokens = front.redeem(&code, &[("client_id", &id)]).await.json();
    let denied = registered.replace("[oauth]\n", "[oauth]\ndenied_clients = [\"Client.example\"]\n");
    let text = front.gateway.configuration().replace(&registered, &denied);
    front.gateway.running().reload(front.gateway.parse(&text)).expect("it reloads");
    let response = fetched(&front, &asked).await;
    assert_eq!((response.status.as_u16(), response.header("location")), (400, None));
    assert!(response.text().contains("may not act for users here"), "{}", response.text());
    front.refresh(&tokens, &id).await.assert_rejected(400, "invalid_client");
    assert_eq!(fetched(&front, &authorize(&[])).await.status, 303, "the operator has named this client");
}
