//! The parts of the page: traffic, why a request was rejected, what is red.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{PARTS, Page, VIEWER, gateway, gateway_in};
use crate::support::certificates::Authority;
use crate::support::ports::ClosedPort;
use crate::support::program::GatewayProcess;
use crate::support::sqlite_shell::Shell;
use crate::support::{Gateway, TokenPair, Upstream};

const REPORTS: &str = "[[route]]\npath = \"/reports\"\nscopes = [\"reports:read\"]\n";

#[tokio::test]
async fn traffic_is_shown_as_it_comes() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "[limits]\nuri_size = \"1KiB\"\n");
    let page = Page::signed_in(&gateway, VIEWER).await;
    page.shows("#live", "live").await;
    let TokenPair { access, .. } = gateway.issue("alice", "").await;
    for _ in 0..5 {
        assert_eq!(gateway.status_of(&access).await, 200);
        assert_eq!(gateway.client().get("/").await.status, 401);
    }
    assert_eq!(gateway.client().get(&format!("/{}", "x".repeat(2_000))).await.status, 414);
    page.shows("#reasons", "no_token").await;
    page.shows("#hit", "limits.uri_size").await;
    let drawn = "const lines = [...document.querySelectorAll('.line')]; \
                 return lines.filter(line => line.getAttribute('d').length > 20).length >= 4";
    page.until("lines with points", drawn, &Value::Null).await;
    page.shows(".legend", "2xx").await;
    page.click("#reasons a").await;
    page.shows("#rejections", "no_token").await;
    let fields = "return document.querySelector('#filter-reason').value";
    assert_eq!(page.browser.run(fields, &Value::Null).await, "no_token");
}

#[tokio::test]
async fn the_next_operator_does_not_find_a_pause() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let page = Page::signed_in(&gateway, VIEWER).await;
    page.shows("#tiles", "Requests/s").await;
    page.click("#pause").await;
    page.shows("#pause", "Continue").await;
    page.click("#sign-out").await;
    page.sign_in(VIEWER).await;
    page.shows("#pause", "Pause").await;
    page.shows("#tiles", "Requests/s").await;
}

#[tokio::test]
async fn a_request_id_tells_why() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, REPORTS);
    let TokenPair { access, token_id, .. } = gateway.issue("alice", "orders:read").await;
    let rejected = gateway.client().bearer(&access).get("/reports/q3?secret=1").await;
    let id = rejected.json()["requestId"].as_str().expect("an id").to_owned();
    let page = Page::signed_in(&gateway, VIEWER).await;
    page.go("why").await;
    page.enter("#request-id", &id).await;
    page.click("#find button").await;
    for text in ["403", "insufficient_scope", "missing scope reports:read", "/reports/q3", "alice", &token_id, &id] {
        page.shows("#found", text).await;
    }
    assert!(!page.text("#found").await.contains("secret"));
    page.shows("h3:focus", "insufficient_scope").await;
    // A browser reads `..` as a step up in the path.
    for (id, shown) in [("no/such id", "A request id"), ("..", "A request id has only letters"), ("no-such-id", "404")]
    {
        page.enter("#request-id", id).await;
        page.click("#find button").await;
        page.shows("#found", shown).await;
    }
    page.shows("#found", "access log").await;
}

#[tokio::test]
async fn a_token_is_explained_and_not_kept() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, &format!("[[route]]\npath = \"/\"\n{REPORTS}"));
    let TokenPair { access, .. } = gateway.issue("alice", "orders:read").await;
    let page = Page::signed_in(&gateway, VIEWER).await;
    page.go("why").await;
    for (path, decision) in [("/orders", "allowed"), ("/reports", "rejected")] {
        page.enter("#explain-token", &format!("Bearer {access}")).await;
        page.enter("#explain-path", path).await;
        page.click("#explain .main").await;
        page.shows("#explained h3", decision).await;
    }
    page.shows("#explained .steps .red", "insufficient_scope").await;
    page.enter("#explain-method", "GE T").await;
    page.click("#explain .main").await;
    page.shows("#explained [role=alert]", "POST /admin/v1/explain 400 invalid_request").await;
    page.go("keys").await;
    let field = "return document.querySelector('#explain-token').value";
    assert_eq!(page.browser.run(field, &Value::Null).await, "");
    let all = "return document.documentElement.outerHTML + JSON.stringify(sessionStorage) + location.href";
    let all = page.browser.run(all, &Value::Null).await;
    assert!(!all.as_str().expect("a text").contains(&access));
}

/// An expired certificate, an issuer without keys and a server that is out.
#[tokio::test]
async fn what_is_red_is_red_on_every_part() {
    let (folder, authority) = (TempDir::new().expect("a folder"), Authority::new());
    authority.sign_until("old.example", -2).write(folder.path(), "old");
    authority.sign_until("soon.example", 14).write(folder.path(), "soon");
    let closed = ClosedPort::new();
    let down = closed.address;
    let more = format!(
        "[upstream.health_check]\npath = \"/\"\ninterval = \"20ms\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\ntls = [{{ certificate = \"old.pem\", key = \"old.key\" }}, \
         {{ certificate = \"soon.pem\", key = \"soon.key\" }}]\n\
         [[issuer]]\nissuer = \"https://login.example\"\naudience = [\"a\"]\nalgorithms = [\"ES256\"]\n\
         jwks_url = \"http://{down}/keys\"\nstartup = \"continue\"\n"
    );
    // The operator's table comes before `more`, which begins in the table of the upstream.
    let gateway = gateway_in(folder, &down.to_string(), "");
    let text = gateway.configuration().replace("[[admin.operator]]", &format!("{more}[[admin.operator]]"));
    let gateway = gateway.restart_with(|_| text);
    let page = Page::signed_in(&gateway, VIEWER).await;
    for (part, tone, text) in [
        ("certificates", "red", "Certificate old.example"),
        ("certificates", "amber", "Certificate soon.example"),
        ("keys", "red", "Issuer https://login.example: no keys"),
        ("upstreams", "red", &format!("Server {down} of backend")),
    ] {
        let alert = format!("#alerts li.{tone} a[href='#{part}']");
        page.until(text, "return document.querySelector(input) !== null", &json!(alert)).await;
        page.shows("#alerts", text).await;
    }
    for part in PARTS {
        page.go(part).await;
        page.shows("#state.red #summary", "problems").await;
        page.shows("#alerts", "expired 2 days ago").await;
    }
    page.click("#alerts a[href='#certificates']").await;
    page.shows("h1:focus", "Certificates and listeners").await;
    page.shows("#listeners .badge.red", "expired 2 days ago").await;
    page.shows("#listeners .badge.amber", "13 days left").await;
    page.go("keys").await;
    page.shows("#issuers .badge.red", "missing").await;
    page.go("upstreams").await;
    page.shows("#servers .badge.red", "out").await;
}

/// A full disk looks the same: a write fails.
#[tokio::test]
async fn a_store_that_cannot_be_written_is_red() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "[timeouts]\nstore = \"300ms\"\n");
    let page = Page::signed_in(&gateway, VIEWER).await;
    page.go("keys").await;
    page.shows("#state.green", "All is well").await;
    let shell = Shell::lock(&gateway);
    page.shows_now("#state.red #alerts", "Not ready: store").await;
    page.shows("nav a[href='#now'] .flag.red", "1").await;
    shell.release();
    page.shows_now("#state.green", "All is well").await;
}

#[tokio::test]
async fn each_setting_has_its_origin_and_is_reloaded() {
    let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let file = folder.path().join("gateway.toml");
    fs::write(&file, &text).expect("written");
    let served = {
        let folder = folder.path().to_owned();
        tokio::task::spawn_blocking(move || GatewayProcess::start(&folder)).await.expect("it starts")
    };
    let token = fs::read_to_string(folder.path().join("admin.token")).expect("a token");
    let page = Page::open_at(served.admin).await;
    page.sign_in(token.trim()).await;
    page.go("configuration").await;
    page.shows("#settings", "tokens.issuer").await;
    page.shows("#settings", "gateway.toml:").await;
    assert!(!page.text("#settings").await.contains("timeouts.store"), "a default");
    page.enter("#narrow-text", "timeouts.store").await;
    page.shows("#settings tbody tr", "5s").await;
    page.shows("#settings tbody tr", "default").await;

    fs::write(&file, format!("{text}[timeouts]\nstore = \"7s\"\n")).expect("written");
    page.click("#reload-place button").await;
    page.shows("#confirm-text", "timeouts.store (takes a restart)").await;
    page.enter("#confirm-typed", "reload").await;
    page.click("#confirm-yes").await;
    page.shows("#reloaded", "take a restart").await;
    page.shows("#settings tbody tr", "after a restart: 7s").await;
    fs::write(&file, "[[route").expect("written");
    page.click("#reload-place button").await;
    page.shows("#reloaded [role=alert]", "422").await;
    page.shows("#reloaded pre", "gateway.toml:1").await;
}
