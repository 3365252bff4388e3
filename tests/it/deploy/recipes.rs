//! The recipes of the pages, with the configuration and the code that the pages show.

use std::process::{Child, Command, Stdio};

use serde_json::json;
use tokio::net::TcpStream;

use crate::support::files::blocks;
use crate::support::ports::free_port;
use crate::support::source;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TestResponse};

/// The routes of the configuration behind this heading of a page.
pub(super) fn routes(page: &str, heading: &str) -> String {
    let section = section(page, heading);
    let config = blocks(&section, "toml").into_iter().next().expect("a configuration");
    config[config.find("[[route]]").expect("a route")..].to_owned()
}

pub(super) fn section(page: &str, heading: &str) -> String {
    let page = source::read(page);
    let start = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    page[start..].to_owned()
}

/// A server that a recipe shows. Dropping it stops it.
pub(super) struct Server(pub(super) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The cookies that a response sets, as a browser sends them back to this path.
fn cookies(answer: &TestResponse, path: &str) -> String {
    let set = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().expect("text"));
    let sent = set.filter_map(|cookie| {
        let (pair, attributes) = cookie.split_once("; ").expect("attributes");
        assert!(attributes.contains("Secure; HttpOnly; SameSite=Lax"), "{cookie}");
        let scope = attributes.strip_prefix("Path=")?.split(';').next()?;
        (path.starts_with(scope) && !attributes.contains("Max-Age=0")).then_some(pair)
    });
    sent.collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn a_login_can_end_in_a_cookie() {
    let heading = "### A login that ends in a cookie";
    let port = free_port();
    let text = Gateway::config_text(&format!("127.0.0.1:{port}"), &routes("deploy/logins.md", heading));
    let gateway = Gateway::from_text(text);
    let code = blocks(&section("deploy/logins.md", heading), "python").into_iter().next().expect("a backend");
    let mut command = Command::new("python3");
    command.args(["-c", &code]).stderr(Stdio::null()).env("PORT", port.to_string());
    command.env("ADMIN", gateway.admin_address().to_string()).env("ADMIN_TOKEN", gateway.file("admin.token").trim());
    command.env("GATEWAY", gateway.address().to_string());
    let _backend = Server(command.spawn().expect("python3 is there"));
    eventually_ok("the backend listens", async || {
        TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())
    })
    .await;

    let client = |cookies: &str| gateway.client().header("origin", "http://gateway.test").header("cookie", cookies);
    let login = gateway.client().post("/session/login", &json!({ "name": "alice" })).await;
    assert_eq!((login.status.as_u16(), login.text().as_str()), (204, ""), "no script of the page sees a token");
    let site = cookies(&login, "/orders");
    assert!(site.starts_with("__Host-session=") && !site.contains("refresh"), "{site}");
    assert_eq!(gateway.client().header("cookie", &site).get("/orders").await.status, 204);
    assert_eq!(client(&site).post("/orders", &json!({})).await.status, 204);
    let other_site = gateway.client().header("origin", "https://evil.example").header("cookie", &site);
    other_site.post("/orders", &json!({})).await.assert_rejected(403, "forbidden");
    gateway.client().get("/orders").await.assert_rejected(401, "unauthorized");

    gateway.advance(std::time::Duration::from_secs(16 * 60));
    gateway.client().header("cookie", &site).get("/orders").await.assert_rejected(401, "invalid_token");
    let refreshed = client(&cookies(&login, "/session/refresh")).post("/session/refresh", &json!({})).await;
    assert_eq!(refreshed.status, 204, "{refreshed:?}");
    let site = cookies(&refreshed, "/orders");
    assert_eq!(gateway.client().header("cookie", &site).get("/orders").await.status, 204);

    let logout = client(&site).post("/session/logout", &json!({})).await;
    assert_eq!((logout.status.as_u16(), cookies(&logout, "/orders").as_str()), (204, ""));
    gateway.client().header("cookie", &site).get("/orders").await.assert_rejected(401, "invalid_token");
}
