//! The consent page: who may send its form.

use http::Method;

use super::{CALLBACK, Front, OAUTH, Page, authorize};
use crate::support::visitor::{APP, Visitor, parameter};

const CONSENT: &str = "https://app.example/oauth/consent";

#[tokio::test]
async fn a_user_who_declines_sends_the_client_an_error() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    let answer = front.decide(&page, "deny").await;
    assert!(answer.starts_with(&format!("{CALLBACK}?")), "{answer}");
    assert_eq!(parameter(&answer, "error").as_deref(), Some("access_denied"));
    assert_eq!(parameter(&answer, "iss").as_deref(), Some(APP));
}

/// Hostile cases 23 to 26.
#[tokio::test]
async fn no_other_site_can_agree_for_the_user() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    let form = page.form("allow");
    let kind = ("content-type", "application/x-www-form-urlencoded");
    for fields in [
        &[kind][..],
        &[kind, ("origin", "null")],
        &[kind, ("origin", "https://evil.example")],
        &[kind, ("origin", "http://app.example")],
        &[kind, ("origin", APP), ("sec-fetch-site", "cross-site")],
        &[kind, ("origin", APP), ("sec-fetch-site", "same-site")],
    ] {
        let response = front.alice.send(Method::POST, CONSENT, fields, &form).await;
        assert_eq!((response.status.as_u16(), response.header("location")), (403, None), "{fields:?}");
    }
    // The page of another browser: the attacker's own request.
    let mut mallory = Visitor::of(&front.gateway);
    let out = mallory.navigate_until(&authorize(&[]), &front.liar.issuer).await;
    let theirs = Page::of(&mallory.navigate(&front.liar.agree(&out)).await);
    let forged = Page { session: page.session.clone(), ..theirs };
    let response = front.submit(&forged, "allow").await;
    assert_eq!((response.status.as_u16(), response.header("location")), (400, None));
    assert!(response.text().contains("cookie"), "{}", response.text());
    // The user's own form is still good.
    front.decide(&page, "allow").await;
}

#[tokio::test]
async fn a_browser_without_the_cookie_learns_why() {
    let mut front = Front::start().await;
    let response = front.alice.load(&authorize(&[])).await;
    let consent = response.header("location").expect("the consent page").to_owned();
    let mut other = Visitor::of(&front.gateway);
    let response = other.load(&consent).await;
    assert_eq!(response.status, 400);
    assert!(response.text().contains("did not send the cookie"), "{}", response.text());
}

/// Hostile case 30.
#[tokio::test]
async fn another_user_is_asked_again() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    // Another tab ends the session, and signs in again.
    front.alice.submit(&format!("{APP}/oauth2/sign_out"), "").await;
    assert_eq!(front.submit(&page, "allow").await.status, 400, "no session");
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let again = front.submit(&page, "allow").await;
    assert_eq!((again.status.as_u16(), again.header("location")), (200, None));
    let page = Page::of(&again);
    front.decide(&page, "allow").await;
}

#[tokio::test]
async fn a_request_ends_after_ten_minutes() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    front.gateway.clock.advance(std::time::Duration::from_secs(601));
    assert_eq!(front.submit(&page, "allow").await.status, 400);
    for request in ["", "x", &page.request[1..], &format!("{}A", page.request)] {
        let response = front.alice.load(&format!("{CONSENT}?request={request}")).await;
        assert_eq!((response.status.as_u16(), response.header("location")), (400, None), "{request}");
    }
}

/// Hostile case 27.
#[tokio::test]
async fn the_page_is_shown_in_no_frame_and_runs_no_script() {
    let mut front = Front::start().await;
    let out = front.alice.navigate_until(&authorize(&[]), &front.liar.issuer).await;
    let back = front.liar.agree(&out);
    let response = front.alice.navigate(&back).await;
    let policy = response.header("content-security-policy").expect("a policy");
    for part in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "style-src 'sha256-"] {
        assert!(policy.contains(part), "{part} in {policy}");
    }
    assert!(!policy.contains("form-action"), "browsers apply it to the redirect to the client");
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(response.header(name), Some(value), "{name}");
    }
    assert!(!response.text().contains("<script"));
}

/// Two tabs, or a double click: only one of the codes becomes a session, and the other one ends nothing.
#[tokio::test]
async fn a_form_that_is_sent_twice_makes_one_session() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    let codes = [front.decide(&page, "allow").await, front.decide(&page, "allow").await];
    let codes = codes.map(|answer| parameter(&answer, "code").expect("a code"));
    let tokens = front.redeem(&codes[1], &[]).await;
    assert_eq!(tokens.status, 200);
    let other = front.redeem(&codes[0], &[]).await;
    other.assert_rejected(400, "invalid_grant");
    assert_eq!(front.status("/mcp", &tokens.json()["access_token"]).await, 200);
}

/// Hostile case 84.
#[tokio::test]
async fn no_page_of_another_origin_reads_the_pages() {
    let cors = "[cors]\norigins = [\"https://app.other.example\"]\ncredentials = true\n";
    let front = Front::with(&format!("{OAUTH}{cors}")).await;
    let client = || front.gateway.client().host("app.example").header("origin", "https://app.other.example");
    for path in [authorize(&[]).replace(APP, ""), "/oauth/consent".into(), "/oauth/grants".into()] {
        let response = client().get(&path).await;
        assert_eq!(response.header("access-control-allow-origin"), None, "{path}");
        let preflight = client().header("access-control-request-method", "POST");
        let preflight = preflight.send(Method::OPTIONS, &path, "".into()).await;
        let allowed = preflight.header("access-control-allow-methods");
        assert_eq!((preflight.status.as_u16(), allowed), (405, None), "{path}");
    }
    let token = client().header("access-control-request-method", "POST");
    let token = token.send(Method::OPTIONS, "/oauth/token", "".into()).await;
    assert_eq!(token.header("access-control-allow-origin"), Some("https://app.other.example"));
}

/// A new sign-in ends the session of the browser. A link of another site must not cause it without the user.
#[tokio::test]
async fn another_site_does_not_replace_the_session() {
    let mut front = Front::start().await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    front.gateway.clock.advance(std::time::Duration::from_secs(61));
    let request = front.alice.load(&authorize(&[("prompt", "login")])).await;
    let consent = request.header("location").expect("the consent page").to_owned();
    let page = [("accept", "text/html"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    let from = |site| [page[0], page[1], page[2], ("sec-fetch-site", site)];
    let shown = front.alice.send(Method::GET, &consent, &from("cross-site"), "").await;
    assert_eq!((shown.status.as_u16(), shown.header("location")), (200, None));
    assert!(shown.text().contains("Sign in again"), "{}", shown.text());
    let link = shown.text().split_once("href=\"").expect("a link").1.split('"').next().expect("a path").to_owned();
    let out = front.alice.send(Method::GET, &format!("{APP}{link}"), &from("same-origin"), "").await;
    assert_eq!(out.status, 302, "{}", out.text());
}

/// A script of an application at this host has the cookies of the user, too.
#[tokio::test]
async fn only_a_page_load_gets_the_pages() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    let script = [("sec-fetch-mode", "cors"), ("sec-fetch-site", "same-origin"), ("origin", APP)];
    let form = ("content-type", "application/x-www-form-urlencoded");
    let [mode, site, origin] = script;
    let sent = front.alice.send(Method::POST, CONSENT, &[mode, site, origin, form], &page.form("allow")).await;
    assert_eq!((sent.status.as_u16(), sent.header("location")), (400, None));
    let image = [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")];
    for url in [format!("{CONSENT}?request={}", page.request), format!("{APP}/oauth/grants")] {
        assert_eq!(front.alice.send(Method::GET, &url, &image, "").await.status, 400, "{url}");
    }
}
