//! What a code is good for.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Front, MCP, NOTES, Page, VERIFIER, authorize};
use crate::gateway::oauth::post;
use crate::support::tokens::{claims_of, with_another_character};
use crate::support::visitor::{APP, parameter};

/// Hostile cases 34 to 38 and 19: nothing of this uses the code up.
#[tokio::test]
async fn a_wrong_request_does_not_spoil_the_code() {
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    let changed_code = with_another_character(&code, code.len() - 1);
    for (changed, error) in [
        (("code", &*changed_code), "invalid_grant"),
        (("code", &code[..code.len() - 2]), "invalid_grant"),
        (("code", "bwc1_"), "invalid_grant"),
        (("code_verifier", &VERIFIER[1..]), "invalid_grant"),
        (("code_verifier", "a".repeat(43).as_str()), "invalid_grant"),
        (("code_verifier", ""), "invalid_grant"),
        (("client_id", "cli"), "invalid_grant"),
        (("client_id", ""), "invalid_grant"),
        (("redirect_uri", "https://client.example/other"), "invalid_grant"),
        (("resource", NOTES), "invalid_target"),
    ] {
        front.redeem(&code, &[changed]).await.assert_rejected(400, error);
    }
    assert_eq!(front.redeem(&code, &[("redirect_uri", "")]).await.status, 200, "OAuth 2.1 leaves it out");
}

/// RFC 6749 section 4.1.2; hostile case 39.
#[tokio::test]
async fn the_second_use_of_a_code_ends_the_session() {
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    let tokens = front.redeem(&code, &[]).await.json();
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 200);
    front.redeem(&code, &[]).await.assert_rejected(400, "invalid_grant");
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 401);
    let refresh = tokens["refresh_token"].as_str().expect("a token");
    let form = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("client_id", "spa")];
    let refreshed = post(front.gateway.client().host("app.example"), "/oauth/token", &form).await;
    refreshed.assert_rejected(400, "invalid_grant");
    front.redeem(&code, &[]).await.assert_rejected(400, "invalid_grant");
}

#[tokio::test]
async fn of_two_uses_at_once_one_gets_tokens_and_the_session_ends() {
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    let (one, other) = tokio::join!(front.redeem(&code, &[]), front.redeem(&code, &[]));
    let mut statuses = [one.status.as_u16(), other.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400]);
    let tokens = if one.status == 200 { one } else { other };
    assert_eq!(front.status("/mcp", &tokens.json()["access_token"]).await, 401);
}

/// Hostile case 41.
#[tokio::test]
async fn a_code_ends_after_a_minute() {
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    front.gateway.clock.advance(Duration::from_secs(61));
    front.redeem(&code, &[]).await.assert_rejected(400, "invalid_grant");
}

/// Hostile case 42.
#[tokio::test]
async fn a_code_of_a_user_who_has_signed_out_is_good_for_nothing() {
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    front.alice.submit(&format!("{APP}/oauth2/sign_out"), "").await;
    front.redeem(&code, &[]).await.assert_rejected(400, "invalid_grant");
}

#[tokio::test]
async fn a_sign_out_of_the_browser_does_not_end_a_grant_and_that_of_the_user_does() {
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    let tokens = front.redeem(&code, &[]).await.json();
    front.alice.submit(&format!("{APP}/oauth2/sign_out"), "").await;
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 200);
    let everywhere = json!({ "sub": "main|alice" });
    let revoked = front.gateway.admin_client().post("/admin/v1/revocations", &everywhere).await;
    assert_eq!(revoked.status, 200, "{}", revoked.text());
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 401);
}

/// RFC 8707 section 2.2.
#[tokio::test]
async fn a_client_can_take_one_of_several_resources() {
    let mut front = Front::start().await;
    let url = format!("{}&resource={MCP}&resource={NOTES}", authorize(&[]));
    let code = front.code(&url).await;
    let tokens = front.redeem(&code, &[("resource", NOTES)]).await.json();
    assert_eq!(claims_of(tokens["access_token"].as_str().expect("a token"))["aud"], NOTES);
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 401);
    let page = Page::of(&front.alice.navigate(&url).await);
    let both = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    let tokens = front.redeem(&both, &[]).await.json();
    let audience = &claims_of(tokens["access_token"].as_str().expect("a token"))["aud"];
    assert_eq!(audience, &Value::from(vec![MCP, NOTES]));
}
