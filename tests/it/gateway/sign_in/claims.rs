//! Sessions with many claims, and with long subjects. No access token is made of them.

use serde_json::json;

use super::liar::Liar;
use super::lies::claims;
use super::{APP, everything, gateway, provider};
use crate::support::Upstream;
use crate::support::tokens::claims_of;
use crate::support::visitor::Visitor;

fn guids(number: usize) -> Vec<String> {
    (0..number).map(|number| format!("{number:08x}-0b1c-4d2e-8f3a-0123456789ab")).collect()
}

#[tokio::test]
async fn a_user_in_many_groups_signs_in() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let keys = "claims = [\"email\", \"groups\"]\ngroups = [\"00000001-0b1c-4d2e-8f3a-0123456789ab\"]";
    let rule = "[[route.claim]]\npointer = \"/groups\"\ncontains = \"00000095-0b1c-4d2e-8f3a-0123456789ab\"\n";
    let gateway = gateway(&upstream, &format!("{}{rule}", everything(&liar.issuer, keys))).await;
    for (number, status) in [(150, 303), (800, 303), (900, 403)] {
        liar.tell(claims(json!({ "groups": guids(number) })));
        let mut alice = Visitor::of(&gateway);
        let back = liar.sign_in(&mut alice, |back| back).await;
        assert_eq!(back.status.as_u16(), status, "{number}: {back:?}");
        let expected = if status == 303 { 200 } else { 401 };
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, expected, "{number}");
    }
    let line = gateway.log_line(|line| line["reason"] == "sign_in_denied").await;
    assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("provider.claims")), "{line}");
}

/// A replaced token is for the backend, which has limits of its own.
#[tokio::test]
async fn a_backend_gets_a_token_with_many_groups() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let route = "[[route]]\npath = \"/\"\nsign_in = \"main\"\ntoken = \"replace\"\n\
                 token_audience = [\"https://orders.internal\"]\n";
    let provider = provider("main", &liar.issuer, "claims = [\"groups\"]");
    let gateway = gateway(&upstream, &format!("{provider}[sign_in]\nexternal_urls = [\"{APP}\"]\n{route}")).await;
    liar.tell(claims(json!({ "groups": guids(250) })));
    let mut alice = Visitor::of(&gateway);
    assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303);
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    let seen = upstream.only_request();
    let token = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).expect("a token");
    assert_eq!(claims_of(token)["groups"].as_array().map(Vec::len), Some(250));
}

#[tokio::test]
async fn each_subject_that_openid_connect_allows_can_sign_in() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let prefix = "p".repeat(64);
    let gateway = gateway(&upstream, &everything(&liar.issuer, &format!("subject_prefix = \"{prefix}\""))).await;
    for (length, status) in [(250, 303), (255, 303), (256, 400)] {
        let subject = "s".repeat(length);
        liar.tell(claims(json!({ "sub": subject })));
        let mut alice = Visitor::of(&gateway);
        let back = liar.sign_in(&mut alice, |back| back).await;
        assert_eq!(back.status.as_u16(), status, "{length}: {back:?}");
        if status == 303 {
            assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
            let seen = upstream.seen().pop().expect("a request");
            assert_eq!(seen.header("x-auth-subject"), Some(&*format!("{prefix}{subject}")));
        }
    }
    // An operator finds and ends them by their whole name.
    let named = format!("{prefix}{}", "s".repeat(255));
    let admin = gateway.admin_client();
    let listed = admin.get(&format!("/admin/v1/subjects/{named}/tokens")).await.json();
    assert_eq!(listed["tokens"].as_array().map(Vec::len), Some(1), "{listed}");
    let ended = admin.post("/admin/v1/revocations", &json!({ "subject": named })).await;
    assert!(ended.status.is_success(), "{ended:?}");
}
