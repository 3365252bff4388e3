//! Logins: found, ended, and shown as they are named.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Page, admin_token, gateway};
use crate::gateway::streams;
use crate::support::Upstream;

/// Much longer than the second that is promised, because the browser runs beside other tests.
const GENEROUS: Duration = Duration::from_secs(10);

#[tokio::test]
async fn ending_a_login_closes_its_websocket() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let [alice, bob] = [gateway.issue("alice", "").await, gateway.issue("bob", "").await];
    let mut socket = streams::open(&gateway, &alice.access).await;
    let mut other = streams::open(&gateway, &bob.access).await;
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    let streams_shown = "const tile = [...document.querySelectorAll('.tile')].find(tile => \
                         tile.innerText.includes('Open streams')); return tile?.innerText.includes(`\\n${input}\\n`)";
    page.until("two open streams", streams_shown, &json!(2)).await;

    page.go("logins?subject=alice").await;
    page.shows("#logins", &alice.token_id).await;
    page.click("#logins button[aria-label^='End the login']").await;
    page.shows("#confirm", "End the login of alice").await;
    let disabled = "return document.querySelector('#confirm-yes').disabled";
    assert_eq!(page.browser.run(disabled, &Value::Null).await, true, "the subject is not typed yet");
    page.enter("#confirm-typed", "alice").await;
    let started = Instant::now();
    page.click("#confirm-yes").await;
    assert_eq!(streams::close_frame(&mut socket).await, streams::revoked());
    let closed = started.elapsed();
    page.shows("#logins tbody", "ended").await;
    eprintln!("the WebSocket was closed after {closed:?}, and shown as ended after {:?}", started.elapsed());
    assert!(closed < GENEROUS, "{closed:?}");
    page.shows("#logins-done", "The login of alice has ended.").await;
    page.shows("#ended", &alice.token_id).await;
    streams::assert_open(&mut other).await;
    page.go("now").await;
    page.until("one open stream", streams_shown, &json!(1)).await;
    assert_eq!(gateway.status_of(&alice.access).await, 401);
    assert_eq!(gateway.status_of(&bob.access).await, 200);
}

/// Otherwise, two logins of two subjects look like two logins of one.
#[tokio::test]
async fn characters_without_a_shape_are_shown() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let hidden = gateway.issue("al\u{200b}ice\u{202e}\u{13430}  ", "").await;
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    page.go("logins?prefix=al").await;
    page.shows("#logins", &hidden.token_id).await;
    page.shows("#logins tbody", "al\\u{200b}ice\\u{202e}\\u{13430}\\u{20}\\u{20}").await;
    page.click("#logins button[aria-label^='End the login']").await;
    page.shows("#confirm", "End the login of al\\u{200b}ice\\u{202e}\\u{13430}").await;
    page.enter("#confirm-typed", "al\\u{200b}ice\\u{202e}\\u{13430}\\u{20}\\u{20}").await;
    page.click("#confirm-yes").await;
    page.shows("#logins tbody", "ended").await;
}

#[tokio::test]
async fn all_logins_of_a_subject_end_if_it_is_typed() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let [first, second, other] =
        [gateway.issue("alice", "").await, gateway.issue("alice", "").await, gateway.issue("alicia", "").await];
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    page.go("logins?prefix=ali").await;
    page.shows("#logins", &other.token_id).await;
    page.enter("#subject", "alice").await;
    page.browser.run("document.querySelector('#match').value = 'subject'", &Value::Null).await;
    page.click("#search .main").await;
    page.shows("#logins", "End all logins of this subject").await;
    assert!(!page.text("#logins").await.contains(&other.token_id));
    page.click("#logins .row .danger").await;
    let disabled = "return document.querySelector('#confirm-yes').disabled";
    for (typed, expected) in [("", true), ("alic", true), ("Alice", true), ("alice", false)] {
        page.enter("#confirm-typed", typed).await;
        assert_eq!(page.browser.run(disabled, &Value::Null).await, expected, "{typed:?}");
    }
    page.click("#confirm-no").await;
    assert_eq!(gateway.status_of(&first.access).await, 200, "nothing has changed yet");
    page.click("#logins .row .danger").await;
    // A slow browser tells only now that the dialog before was closed.
    page.browser.run("document.querySelector('#confirm').dispatchEvent(new Event('close'))", &Value::Null).await;
    page.enter("#confirm-typed", "alice").await;
    page.click("#confirm-yes").await;
    page.shows("#logins-done", "All logins of alice have ended.").await;
    page.shows("#logins", "alice has no live login").await;
    for (pair, status) in [(&first, 401), (&second, 401), (&other, 200)] {
        assert_eq!(gateway.status_of(&pair.access).await, status);
    }
}

/// A client id can be a URL, and that of a document anything behind its host.
#[tokio::test]
async fn all_logins_of_a_client_end_if_it_is_typed() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let url = "https://app.example/client?a=1&b=..";
    let granted = async |subject: &str, client_id: &str| {
        let issued = gateway.request_tokens(&json!({ "sub": subject, "clientId": client_id })).await;
        crate::support::TokenPair::from_json(&issued.json())
    };
    let [alice, bob, other] = [granted("alice", url).await, granted("bob", url).await, granted("alice", "spa").await];
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    page.go("logins").await;
    page.shows("#logins", &other.token_id).await;
    page.enter("#login-client", url).await;
    page.click("#search .main").await;
    page.shows("#logins", "End all logins of this client").await;
    let listed = page.text("#logins").await;
    assert!(listed.contains(&alice.token_id) && listed.contains(&bob.token_id) && !listed.contains(&other.token_id));
    page.click("#logins .row .danger").await;
    page.shows("#confirm", "Users can grant it again").await;
    page.enter("#confirm-typed", url).await;
    page.click("#confirm-yes").await;
    page.shows("#logins-done", &format!("All logins of {url} have ended.")).await;
    page.shows("#logins", "There is no live login with this client and resource.").await;
    page.shows("#ended", "all logins of the client").await;
    for (pair, status) in [(&alice, 401), (&bob, 401), (&other, 200)] {
        assert_eq!(gateway.status_of(&pair.access).await, status);
    }
    // Of one subject alone.
    page.go("logins?client=spa&subject=alice").await;
    page.shows("#logins", "End all logins of this client and subject").await;
    page.click("#logins .row .danger").await;
    page.enter("#confirm-typed", "spa").await;
    page.click("#confirm-yes").await;
    page.shows("#logins-done", "All logins of spa for alice have ended.").await;
    assert_eq!(gateway.status_of(&other.access).await, 401);
}

/// A browser reads `..` in a path as a step up.
#[tokio::test]
async fn logins_of_a_subject_of_dots_end() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let dots = gateway.issue("..", "").await;
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    page.go("logins?subject=..").await;
    page.shows("#logins", &dots.token_id).await;
    page.click("#logins .row .danger").await;
    page.enter("#confirm-typed", "..").await;
    page.click("#confirm-yes").await;
    page.shows("#logins-done", "All logins of .. have ended.").await;
    assert_eq!(gateway.status_of(&dots.access).await, 401);
}

#[tokio::test]
async fn markup_from_a_client_stays_text() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let markup = "<img src=x onerror=\"document.title='taken'\">&amp;'\"";
    let login = json!({ "subject": markup, "label": "<b>phone</b>", "clientId": "<script>x</script>" });
    assert_eq!(gateway.request_tokens(&login).await.status, 201);
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    page.go("logins").await;
    page.shows("#logins", markup).await;
    page.shows("#logins", "<b>phone</b>").await;
    page.click("#logins tbody a").await;
    let asked = "return document.querySelector('#subject').value === input";
    page.until("the subject is in the field", asked, &json!(markup)).await;
    page.shows("#logins", markup).await;
    page.click("#logins tbody button").await;
    page.shows("#confirm-title", markup).await;
    let made = "return document.querySelectorAll('[data-part] img, [data-part] b + script, #confirm img').length";
    assert_eq!(page.browser.run(made, &Value::Null).await, 0);
    assert_eq!(page.browser.run("return document.title", &Value::Null).await, "Logins · bearward");
    assert_eq!(page.browser.console().await, Vec::<String>::new());
}
