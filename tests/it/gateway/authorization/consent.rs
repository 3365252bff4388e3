//! The consent page: who may send its form.

use bearward::protocols::http::parameters;
use http::Method;
use serde_json::json;

use super::{CALLBACK, Front, NOTES, OAUTH, Page, authorize};
use crate::gateway::oauth::post;
use crate::gateway::sign_in::liar::Lies;
use crate::support::TestResponse;
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

/// The page has a link to a request for the same.
fn link_of(response: &TestResponse) -> Option<String> {
    let html = response.text();
    let link = html.split_once("class=\"button\" href=\"")?.1.split('"').next()?.replace("&amp;", "&");
    Some(format!("{APP}{link}"))
}

#[tokio::test]
async fn a_browser_without_the_cookie_learns_why_and_begins_again() {
    let mut front = Front::start().await;
    let asked = [("scope", "notes:read"), ("resource", NOTES), ("prompt", "login"), ("login_hint", "a b&c")];
    let asked = authorize(&asked);
    let response = front.alice.load(&asked).await;
    let consent = response.header("location").expect("the consent page").to_owned();
    let mut other = Visitor::of(&front.gateway);
    let response = other.load(&consent).await;
    assert_eq!(response.status, 400);
    assert!(response.text().contains("did not send the cookie"), "{}", response.text());
    let link = link_of(&response).expect("a link");
    let parameters = |url: &str| parameters::read(url.split_once('?').expect("a query").1).expect("parameters");
    let mut expected = parameters(&asked);
    expected.remove("login_hint");
    assert_eq!(parameters(&link), expected, "the same, without what may name the user of another browser");
    let out = other.navigate_until(&link, &front.liar.issuer).await;
    let page = Page::of(&other.navigate(&front.liar.agree(&out)).await);
    front.alice = other;
    let answer = front.decide(&page, "allow").await;
    assert_eq!(parameter(&answer, "state").as_deref(), Some("of the client"));
    assert!(parameter(&answer, "code").is_some(), "{answer}");
}

/// Only the client can push its request again.
#[tokio::test]
async fn a_pushed_request_has_no_link_that_begins_it_again() {
    let front = Front::start().await;
    let query = authorize(&[]);
    let query: Vec<(String, String)> =
        parameters::read(query.split_once('?').expect("a query").1).expect("parameters").into_iter().collect();
    let query: Vec<(&str, &str)> = query.iter().map(|(name, value)| (&**name, &**value)).collect();
    let pushed = post(front.gateway.client().host("app.example"), "/oauth/par", &query).await;
    let pushed = pushed.json()["request_uri"].as_str().expect("a request_uri").to_owned();
    let query = parameters::write([("client_id", "spa"), ("request_uri", &*pushed)]);
    let begun = Visitor::of(&front.gateway).load(&format!("{APP}/oauth/authorize?{query}")).await;
    let consent = begun.header("location").expect("the consent page").to_owned();
    let response = Visitor::of(&front.gateway).load(&consent).await;
    assert_eq!((response.status.as_u16(), link_of(&response)), (400, None));
}

#[tokio::test]
async fn a_request_that_is_long_over_has_no_link_that_begins_it_again() {
    let mut front = Front::start().await;
    let begun = front.alice.load(&authorize(&[])).await;
    let consent = begun.header("location").expect("the consent page").to_owned();
    let minute = std::time::Duration::from_mins(1);
    for (minutes, has_link) in [(11, true), (60, false)] {
        front.gateway.clock.advance(minutes * minute);
        let response = Visitor::of(&front.gateway).load(&consent).await;
        assert_eq!((response.status.as_u16(), link_of(&response).is_some()), (400, has_link), "{minutes}");
    }
}

/// The form of the page must fit into what the gateway reads.
#[tokio::test]
async fn what_a_page_shows_can_be_allowed() {
    let names: Vec<String> = (0..200).map(|number| format!("svc{number:03}:read")).collect();
    let scopes: String = names.iter().map(|name| format!("[[oauth.scope]]\nname = {name:?}\n")).collect();
    let any = format!("any_scope = {names:?}\n");
    let text = OAUTH
        .replace("any_scope = [\"notes:write\", \"notes:read\"]\n", &any)
        .replace("scopes = [\"notes:read\"]\nany", "any");
    let mut front = Front::with(&text.replacen("[[oauth.client]]", &format!("{scopes}[[oauth.client]]"), 1)).await;
    let asked = |number: usize| authorize(&[("resource", NOTES), ("scope", &names[..number].join(" "))]);
    assert_eq!(front.alice.load(&asked(200)).await.status, 400);
    let page = front.consent_page(&asked(120)).await;
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[]).await.json()["scope"], names[..120].join(" "));
}

#[tokio::test]
async fn the_page_says_whether_the_client_has_access_already() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    assert!(page.html.contains("<dd>no</dd>"), "{}", page.html);
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
    let again = Page::of(&front.alice.navigate(&authorize(&[])).await);
    assert!(again.html.contains("<dd>since "), "{}", again.html);
    let callback = ("redirect_uri", "http://127.0.0.1/callback");
    let other = Page::of(&front.alice.navigate(&authorize(&[("client_id", "cli"), callback])).await);
    assert!(other.html.contains("<dd>no</dd>"), "{}", other.html);
}

#[tokio::test]
async fn a_user_can_leave_out_an_optional_scope_and_add_none() {
    let optional = OAUTH.replace("text = \"Change your notes\"\n", "text = \"Change your notes\"\noptional = true\n");
    let mut front = Front::with(&optional).await;
    front.liar.tell(Lies { claims: [("groups", json!(["staff"]))].into(), ..Lies::default() });
    let asked = authorize(&[("resource", NOTES)]);
    let mut page = front.consent_page(&asked).await;
    assert_eq!(page.html.matches("type=\"checkbox\"").count(), 1, "{}", page.html);
    assert!(page.html.contains("name=\"scope:notes:write\" value=\"yes\" checked"), "{}", page.html);
    for (fields, scope) in [
        ("", "notes:read"),
        ("&scope%3Anotes%3Awrite=yes", "notes:read notes:write"),
        ("&scope%3Anotes%3Aadmin=yes&scope%3Atoken%3Arevoke=yes", "notes:read"),
    ] {
        let form = format!("{}{fields}", page.form("allow"));
        let answer = front.alice.submit(CONSENT, &form).await;
        let code = answer.header("location").and_then(|to| parameter(to, "code")).expect("a code");
        let tokens = front.redeem(&code, &[]).await;
        assert_eq!(tokens.json()["scope"], scope, "{fields}");
        page = Page::of(&front.alice.navigate(&asked).await);
    }
}

/// The page shows what the user can grant. What becomes possible while it is open is not granted with it.
#[tokio::test]
async fn a_client_gets_no_scope_that_the_page_has_not_shown() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[("resource", NOTES), ("scope", "notes:read notes:write")])).await;
    assert!(!page.html.contains("Change your notes"), "{}", page.html);
    let claim = "claim = { pointer = \"/groups\", contains = \"staff\" }\n";
    let wider = front.gateway.configuration().replace(claim, "");
    front.gateway.running().reload(front.gateway.parse(&wider)).expect("it reloads");
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[]).await.json()["scope"], "notes:read");
    // Nor one that the operator has taken from the client since.
    let page =
        Page::of(&front.alice.navigate(&authorize(&[("resource", NOTES), ("scope", "notes:read notes:write")])).await);
    assert!(page.html.contains("Change your notes"), "{}", page.html);
    let narrower = wider.replace("client_id = \"spa\"\n", "client_id = \"spa\"\nscopes = [\"notes:read\"]\n");
    front.gateway.running().reload(front.gateway.parse(&narrower)).expect("it reloads");
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[]).await.json()["scope"], "notes:read");
}

#[tokio::test]
async fn a_request_that_has_become_a_session_asks_no_more() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
    let back = front.alice.load(&format!("{CONSENT}?request={}", page.request)).await;
    assert_eq!(back.status, 400);
    assert!(link_of(&back).is_some(), "{}", back.text());
}

#[tokio::test]
async fn a_client_that_goes_without_consent_can_ask_for_it() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[("client_id", "trusted"), ("prompt", "consent")])).await;
    front.decide(&page, "allow").await;
}

/// Also if the request reaches no page: it is too large.
#[tokio::test]
async fn no_page_of_another_origin_reads_a_rejection_of_the_pages() {
    let cors = "[cors]\norigins = [\"https://app.other.example\"]\ncredentials = true\n";
    let front = Front::with(&format!("{OAUTH}{cors}")).await;
    let client = || {
        let client = front.gateway.client().host("app.example").header("origin", "https://app.other.example");
        client.header("content-type", "application/x-www-form-urlencoded")
    };
    for path in ["/oauth/authorize", "/oauth/consent", "/oauth/grants"] {
        let large = client().send(Method::POST, path, vec![b'a'; 70_000].into()).await;
        assert_eq!((large.status.as_u16(), large.header("access-control-allow-origin")), (413, None), "{path}");
        let unusual = client().send(Method::DELETE, path, "".into()).await;
        assert_eq!((unusual.status.as_u16(), unusual.header("access-control-allow-origin")), (405, None), "{path}");
    }
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
