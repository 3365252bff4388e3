//! Why a request of a client failed, and what would come of one that no client has sent.

use bearward::app::explain::Explainer;
use bearward::gateway::explanation::{Explanation, Outcome};
use http::Request;
use serde_json::{Value, json};

use super::{CALLBACK, Front, NOTES, OAUTH, authorize, fetched};
use crate::support::program::bearward;
use crate::support::visitor::{APP, Visitor};
use crate::support::wait::eventually_ok;

/// What the gateway remembers of this request.
async fn remembered(front: &Front, id: &str) -> Value {
    eventually_ok("the rejection is remembered", async || {
        let found = front.gateway.admin_client().get(&format!("/admin/v1/rejections/{id}")).await;
        if found.status == 200 { Ok(found.json()) } else { Err(found.text()) }
    })
    .await
}

/// The number that an error page shows.
fn number(page: &str) -> &str {
    let rest = page.split_once("The number of this request is ").unwrap_or_else(|| panic!("no number in {page}")).1;
    rest.split('.').next().expect("a number")
}

#[tokio::test]
async fn the_number_on_a_page_tells_what_is_wrong_and_what_to_change() {
    let front = Front::start().await;
    let sent = "https://client.example/oauth/callback";
    for (changed, reason, parts) in [
        (("redirect_uri", sent), "redirect_mismatch", [sent, CALLBACK]),
        (("client_id", "unknown"), "unknown_client", ["unknown", "[[oauth.client]]"]),
        (("client_id", ""), "bad_authorization", ["client_id is missing", ""]),
    ] {
        let page = fetched(&front, &authorize(&[changed, ("resource", NOTES)])).await.text();
        let why = remembered(&front, number(&page)).await;
        assert_eq!((&why["reason"], &why["resource"]), (&json!(reason), &json!(NOTES)), "{why}");
        let detail = why["detail"].as_str().expect("a detail");
        assert!(parts.iter().all(|part| detail.contains(part)), "{why}");
        assert!(why["change"].as_str().is_some_and(|change| change.len() > 20), "{why}");
        let own = |name: &str, usual: &str| if changed.0 == name { changed.1.to_owned() } else { usual.to_owned() };
        assert_eq!(why["redirectUri"], own("redirect_uri", CALLBACK), "{why}");
        assert_eq!(why["clientId"].as_str().unwrap_or_default(), own("client_id", "spa"), "{why}");
    }
}

#[tokio::test]
async fn a_rejected_page_and_a_rejected_code_tell_the_client_too() {
    let mut front = Front::start().await;
    let request = front.alice.load(&authorize(&[])).await;
    let consent = request.header("location").expect("the consent page").to_owned();
    let page = Visitor::of(&front.gateway).load(&consent).await.text();
    let why = remembered(&front, number(&page)).await;
    assert_eq!((&why["reason"], &why["clientId"]), (&json!("consent_cookie"), &json!("spa")), "{why}");
    assert_eq!((&why["redirectUri"], &why["resource"]), (&json!(CALLBACK), &json!(super::MCP)), "{why}");
    assert!(why["change"].as_str().is_some_and(|change| change.contains("cookies")), "{why}");

    let code = front.code(&authorize(&[])).await;
    for (changed, reason) in [
        (("code_verifier", "a".repeat(43)), "code_verifier"),
        (("redirect_uri", "https://client.example/other".to_owned()), "code_redirect"),
        (("client_id", "cli".to_owned()), "code_client"),
    ] {
        let rejected = front.redeem(&code, &[(changed.0, &changed.1)]).await;
        let id = rejected.json()["requestId"].as_str().expect("an id").to_owned();
        let why = remembered(&front, &id).await;
        assert_eq!(why["reason"], reason, "{why}");
        assert!(why["change"].is_string() && why["tokenId"].is_string(), "{why}");
        let all = why.to_string();
        assert!(!all.contains("bwc1_") && !all.contains(&"a".repeat(43)), "{why}");
    }
    let code = front.redeem("bwc1_AAAA", &[("client_id", "bwc1_AAAA")]).await;
    let why = remembered(&front, code.json()["requestId"].as_str().expect("an id")).await;
    assert_eq!(why["clientId"], "[token]", "{why}");
}

#[tokio::test]
async fn the_command_prints_what_the_gateway_remembers() {
    let front = Front::start().await;
    let sent = "https://client.example/oauth/callback";
    let page = fetched(&front, &authorize(&[("redirect_uri", sent)])).await.text();
    remembered(&front, number(&page)).await;
    std::fs::write(front.gateway.path().join("gateway.toml"), front.gateway.configuration()).expect("written");
    let folder = front.gateway.path().to_owned();
    let id = number(&page).to_owned();
    let explain = move || bearward(&folder, &["explain", "--request-id", &id]);
    let output = tokio::task::spawn_blocking(explain).await.expect("no panic");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "client id   spa".to_owned(),
        format!("redirect    {sent}"),
        "reason      redirect_mismatch".to_owned(),
        format!("registered is {CALLBACK}"),
        "change      register what the client sends".to_owned(),
    ] {
        assert!(printed.contains(&line), "{line}\n{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

async fn explained(front: &Front, url: &str) -> Explanation {
    let explainer = Explainer::prepare(&front.gateway.config(), front.gateway.clock.clone()).await.expect("all exist");
    let path = url.strip_prefix(APP).expect("a URL of the gateway");
    let request = Request::get(path).header("host", "app.example").body(()).expect("a request");
    explainer.explain(&request, true).await
}

fn text(explanation: &Explanation) -> String {
    explanation.to_json().to_string()
}

#[tokio::test]
async fn a_request_that_no_client_has_sent_is_explained_without_effects() {
    let front = Front::with(&OAUTH.replace("[oauth]\n", "[oauth]\nregistration = [\"loopback\"]\n")).await;
    let good = explained(&front, &authorize(&[("resource", NOTES)])).await;
    let Outcome::Local(does) = &good.outcome else { panic!("{}", text(&good)) };
    for part in ["asks the user, after a sign-in at main", "spa", NOTES, "notes:read", "goes to client.example"] {
        assert!(does.contains(part), "{part}: {does}");
    }
    let steps = text(&good);
    for part in ["spa: an [[oauth.client]]", "https://client.example/callback, as registered"] {
        assert!(steps.contains(part), "{part}: {steps}");
    }
    let skipped = text(&explained(&front, &authorize(&[("client_id", "trusted")])).await);
    assert!(skipped.contains("without a question"), "{skipped}");
    let silent = text(&explained(&front, &authorize(&[("prompt", "none")])).await);
    assert!(silent.contains("login_required"), "{silent}");
    for (changed, reason, part) in [
        (
            ("redirect_uri", "https://evil.example/"),
            "redirect_mismatch",
            "registered is https://client.example/callback",
        ),
        (("client_id", "none"), "unknown_client", "is no [[oauth.client]]"),
        (("client_id", "bwd1_none"), "unknown_client", "no client that registered itself"),
        (("code_challenge", ""), "authorization_refused", "the client gets this at its redirect URI"),
        (("resource", "https://elsewhere.example/"), "authorization_refused", "invalid_target"),
    ] {
        let explanation = explained(&front, &authorize(&[changed])).await;
        let Outcome::Rejected(reject) = &explanation.outcome else { panic!("{}", text(&explanation)) };
        assert_eq!(reject.reason.code(), reason, "{changed:?}");
        assert!(reject.detail.contains(part), "{changed:?}: {}", reject.detail);
        assert!(explanation.to_json()["change"].as_str().is_some_and(|change| change.len() > 20), "{changed:?}");
    }
    let page = front.gateway.admin_client().get("/metrics").await.text();
    assert!(
        page.lines()
            .filter(|line| line.starts_with("bearward_authorizations_total{"))
            .all(|line| { line.ends_with(" 0") || line.ends_with(" 0.0") })
    );
}

/// `explain` decides as the gateway does.
#[tokio::test]
async fn the_gateway_does_what_the_explanation_says() {
    let front = Front::start().await;
    for changed in [
        ("redirect_uri", "https://client.example/callback/"),
        ("redirect_uri", ""),
        ("client_id", "cli"),
        ("client_id", "none"),
        ("response_type", "token"),
        ("scope", "none"),
        ("request_uri", "https://evil.example/"),
        ("state", "a"),
    ] {
        let url = authorize(&[changed]);
        let explanation = explained(&front, &url).await;
        let expected = match &explanation.outcome {
            Outcome::Rejected(reject) => reject.reason.code(),
            Outcome::Local(_) => "",
            _ => panic!("{changed:?}: {}", text(&explanation)),
        };
        let before = front.gateway.log_lines(1).await.len();
        fetched(&front, &url).await;
        let lines = front.gateway.log_lines(before + 1).await;
        let line = lines.iter().rev().find(|line| line["path"] == "/oauth/authorize").expect("its line");
        assert_eq!(line["reason"].as_str().unwrap_or_default(), expected, "{changed:?}");
    }
}
