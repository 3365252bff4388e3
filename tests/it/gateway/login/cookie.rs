//! `login = "cookie"`: an application that renders its pages on the server, and knows nothing of tokens.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use rusqlite::Connection;

use super::session_count;
use crate::support::{Client, Gateway, ScriptedBackend, TestResponse};

const ROUTES: &str = r#"
[[route]]
path = "/login"
public = true
login = "cookie"
[[route]]
path = "/logout"
token_from = ["login_cookie"]
logout = true
[[route]]
path = "/"
token_from = ["login_cookie"]
"#;

const ACCESS: &str = "__Host-bearward-access";
const REFRESH: &str = "__Host-bearward-refresh";
const PAST_EXPIRY: Duration = Duration::from_secs(20 * 60);

/// A login form, a page with the name of the user, and a logout. Also returns the heads of the requests.
fn form_app() -> (ScriptedBackend, Arc<Mutex<Vec<String>>>) {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let recorded = heads.clone();
    let app = ScriptedBackend::start(move |mut wire, _| {
        let recorded = recorded.clone();
        async move {
            while let Some(head) = wire.try_read_until("\r\n\r\n").await {
                let field = |name: &str| {
                    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                    line.unwrap_or_default().to_owned()
                };
                let body = wire.read_bytes(field("content-length").parse().unwrap_or(0)).await;
                let response = match head.split(' ').collect::<Vec<_>>()[..2] {
                    ["POST", "/login"] if body.starts_with(b"password=right") => {
                        let user = String::from_utf8_lossy(&body).replace("password=right&user=", "");
                        format!(
                            "HTTP/1.1 303 See Other\r\nlocation: /\r\nset-cookie: theme=dark; Path=/\r\n\
                             x-bearward-subject: {user}\r\ncontent-length: 0\r\n\r\n"
                        )
                    }
                    ["GET", "/broken"] => return,
                    ["POST", "/logout"] => {
                        "HTTP/1.1 303 See Other\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n".to_owned()
                    }
                    _ => {
                        let page = format!("hello {}", field("x-auth-subject"));
                        format!(
                            "HTTP/1.1 200 OK\r\ncache-control: public\r\ncontent-length: {}\r\n\r\n{page}",
                            page.len()
                        )
                    }
                };
                recorded.lock().expect("unpoisoned").push(head);
                wire.send(response).await;
            }
        }
    });
    (app, heads)
}

fn gateway(app: &ScriptedBackend) -> Gateway {
    Gateway::with_throttle(app.address, "", ROUTES)
}

/// curl with a cookie jar, as a browser: a status line, the location and the body.
struct Browser {
    base: String,
    certificate: PathBuf,
    jar: PathBuf,
}

impl Browser {
    fn of(gateway: &Gateway) -> Browser {
        let base = format!("https://localhost:{}", gateway.tls_address().port());
        Browser { base, certificate: gateway.certificate(), jar: gateway.path().join("jar") }
    }

    async fn run(&self, arguments: &[&str], path: &str) -> (u16, String) {
        let mut curl = Command::new("curl");
        // Over HTTP/2, this curl loses the response to a form that is rejected before it was read.
        curl.args(["-sS", "--http1.1", "--max-time", "20", "--resolve"]);
        curl.arg(format!("{}:127.0.0.1", self.base.trim_start_matches("https://")));
        curl.arg("--cacert").arg(&self.certificate).arg("-b").arg(&self.jar).arg("-c").arg(&self.jar);
        curl.args(["-w", "\n%{http_code} %header{location}"]).args(arguments).arg(format!("{}{path}", self.base));
        // The backend of the test runs on this thread.
        let output = tokio::task::spawn_blocking(move || curl.output()).await.expect("no panic");
        let output = output.expect("curl is installed: tests/run does that");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, end) = text.rsplit_once('\n').expect("the last line");
        let (status, location) = end.split_once(' ').expect("two words");
        let what = if location.is_empty() { body.to_owned() } else { format!("to {location}") };
        (status.parse().expect("a status"), what)
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.run(&[], path).await
    }

    /// Submits a form of a page of this host.
    async fn submit(&self, path: &str, form: &str) -> (u16, String) {
        self.run(&["-H", &format!("Origin: {}", self.base), "-d", form], path).await
    }

    /// The cookie in the jar, as a line of the file.
    fn cookie(&self, name: &str) -> Option<String> {
        let jar = std::fs::read_to_string(&self.jar).unwrap_or_default();
        jar.lines().find(|line| line.contains(&format!("\t{name}\t"))).map(str::to_owned)
    }
}

#[tokio::test]
async fn a_form_app_works_in_a_browser_without_code() {
    let (app, heads) = form_app();
    let gateway = gateway(&app);
    let browser = Browser::of(&gateway);
    assert_eq!(browser.get("/").await.0, 401);
    assert_eq!(browser.submit("/login", "password=wrong").await, (200, "hello ".to_owned()));
    assert_eq!((browser.cookie(ACCESS), browser.cookie(REFRESH)), (None, None), "a wrong password");

    assert_eq!(browser.submit("/login", "password=right&user=alice").await, (303, "to /".to_owned()));
    for name in [ACCESS, REFRESH] {
        let cookie = browser.cookie(name).expect("it is set");
        let fields: Vec<&str> = cookie.split('\t').collect();
        assert_eq!(fields[..5], ["#HttpOnly_localhost", "FALSE", "/", "TRUE", "0"], "{name}");
    }
    assert_eq!(browser.get("/").await, (200, "hello alice".to_owned()));
    let head = heads.lock().expect("unpoisoned").last().expect("a request").to_lowercase();
    assert!(head.contains("\r\ncookie: theme=dark\r\n") && !head.contains("__host-"), "{head}");

    // A form of another site brings the cookies, and no page of this host as its origin.
    assert_eq!(browser.run(&["-d", "a=b"], "/save").await.0, 403);
    assert_eq!(browser.run(&["-H", "Origin: https://evil.example", "-d", "a=b"], "/save").await.0, 403);
    assert_eq!(browser.submit("/save", "a=b").await, (200, "hello alice".to_owned()));

    for _ in 0..3 {
        let before = [browser.cookie(ACCESS), browser.cookie(REFRESH)];
        gateway.advance(PAST_EXPIRY);
        assert_eq!(browser.get("/").await, (200, "hello alice".to_owned()), "the gateway has refreshed");
        let after = [browser.cookie(ACCESS), browser.cookie(REFRESH)];
        assert!(before[0] != after[0] && before[1] != after[1]);
        assert_eq!(browser.submit("/save", "a=b").await, (200, "hello alice".to_owned()));
        assert_eq!([browser.cookie(ACCESS), browser.cookie(REFRESH)], after, "once");
    }
    assert_eq!(session_count(&gateway, "alice").await, 1);

    let stolen = browser.cookie(ACCESS).expect("a cookie").split('\t').next_back().expect("a value").to_owned();
    assert_eq!(browser.submit("/logout", "").await, (303, "to /login".to_owned()));
    // curl 7.88 forgets only the last of two cookies that one response removes.
    assert_eq!(browser.cookie(REFRESH), None);
    assert!(browser.cookie("theme").is_some());
    assert_eq!(browser.get("/").await.0, 401);
    let thief = gateway.client().header("cookie", &format!("{ACCESS}={stolen}"));
    thief.get("/").await.assert_rejected(401, "invalid_token");
}

/// The cookies of a new login, as a `Cookie` field.
async fn log_in(gateway: &Gateway, user: &str) -> String {
    let client = gateway.client().header("origin", "http://gateway.test");
    let form = Bytes::from(format!("password=right&user={user}"));
    cookies(&client.send(Method::POST, "/login", form).await).expect("cookies")
}

/// The cookies that a response sets.
fn cookies(response: &TestResponse) -> Option<String> {
    let set = response.headers.get_all("set-cookie").iter().map(|value| value.to_str().expect("text"));
    let ours: Vec<&str> = set.filter(|set| set.starts_with("__Host-")).collect();
    if ours.is_empty() {
        return None;
    }
    assert_eq!(response.header("cache-control"), Some("no-store"), "no cache may keep them");
    assert!(ours.iter().all(|set| set.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax")), "{ours:?}");
    Some(ours.iter().map(|set| set.split(';').next().expect("a pair")).collect::<Vec<_>>().join("; "))
}

fn with(client: Client, cookies: &str) -> Client {
    client.header("cookie", cookies)
}

#[tokio::test]
async fn fifty_requests_at_expiry_are_one_refresh() {
    let (app, _) = form_app();
    let gateway = gateway(&app);
    let mut current = log_in(&gateway, "alice").await;
    for _ in 0..2 {
        gateway.advance(PAST_EXPIRY);
        let [http1, http2, ..] = gateway.clients();
        let clients = [http1, http2].map(|client| with(client, &current));
        let requests: Vec<_> = (0..50)
            .map(|number| {
                let client = clients[number % 2].clone();
                tokio::spawn(async move { client.get("/").await })
            })
            .collect();
        let mut set = Vec::new();
        for request in requests {
            let response = request.await.expect("no panic");
            assert_eq!((response.status.as_u16(), response.text()), (200, "hello alice".to_owned()));
            set.push(cookies(&response).expect("new cookies"));
        }
        set.dedup();
        assert_eq!(set.len(), 1, "all get the same pair");
        assert_ne!(set[0], current);
        current = set.remove(0);
        let next = with(gateway.client(), &current).get("/").await;
        assert_eq!((next.status.as_u16(), cookies(&next)), (200, None));
    }
    assert_eq!(session_count(&gateway, "alice").await, 1);
}

#[tokio::test]
async fn a_lost_response_does_not_end_the_session_but_reuse_does() {
    let (app, _) = form_app();
    let gateway = gateway(&app);
    let first = log_in(&gateway, "alice").await;
    gateway.advance(PAST_EXPIRY);
    assert_eq!(with(gateway.client(), &first).get("/").await.status, 200, "the browser loses this response");
    gateway.advance(Duration::from_secs(60));
    let second = with(gateway.client(), &first).get("/").await;
    let second = cookies(&second).expect("the gateway refreshes again");
    assert_eq!(with(gateway.client(), &second).get("/").await.status, 200, "now the browser has the new cookies");
    gateway.advance(Duration::from_secs(60));
    with(gateway.client(), &first).get("/").await.assert_rejected(401, "invalid_token");
    with(gateway.client(), &second).get("/").await.assert_rejected(401, "invalid_token");
}

/// The backend fails after the gateway has refreshed the session, so the response brings no cookies.
#[tokio::test]
async fn a_502_does_not_end_the_session() {
    let (app, _) = form_app();
    let gateway = gateway(&app);
    let first = log_in(&gateway, "alice").await;
    gateway.advance(PAST_EXPIRY);
    let failed = with(gateway.client(), &first).get("/broken").await;
    assert_eq!((failed.status.as_u16(), cookies(&failed)), (502, None));
    // Much later than `tokens.refresh_grace`.
    gateway.advance(Duration::from_secs(60));
    let next = with(gateway.client(), &first).get("/").await;
    assert_eq!(next.status, 200);
    let second = cookies(&next).expect("the gateway refreshes again");
    assert_eq!(with(gateway.client(), &second).get("/").await.status, 200);
}

#[tokio::test]
async fn a_clock_set_back_keeps_no_spent_cookies_alive() {
    let (app, _) = form_app();
    let gateway = gateway(&app);
    let first = log_in(&gateway, "alice").await;
    gateway.advance(PAST_EXPIRY);
    let second = cookies(&with(gateway.client(), &first).get("/").await).expect("new cookies");
    assert_eq!(with(gateway.client(), &second).get("/").await.status, 200);
    // The grace of 10 seconds is over, and then it is not yet, by the clock. The new access token is not dated ahead.
    gateway.advance(Duration::from_secs(12));
    gateway.clock.set_back(Duration::from_secs(10));
    let stolen = with(gateway.client(), &first).get("/").await;
    assert_eq!((stolen.status.as_u16(), cookies(&stolen)), (401, None));
    with(gateway.client(), &second).get("/").await.assert_rejected(401, "invalid_token");
}

#[tokio::test]
async fn only_the_refresh_token_of_the_same_session_refreshes() {
    let (app, _) = form_app();
    let gateway = gateway(&app);
    let (alice, bob) = (log_in(&gateway, "alice").await, log_in(&gateway, "bob").await);
    let second = log_in(&gateway, "alice").await;
    gateway.advance(PAST_EXPIRY);
    let [access, refresh] = [0, 1].map(|place| alice.split("; ").nth(place).expect("two cookies").to_owned());
    let [of_bob, of_second] = [&bob, &second].map(|cookies| cookies.split("; ").nth(1).expect("two cookies"));
    let (rest, last) = refresh.split_at(refresh.len() - 1);
    let forged = format!("{rest}{}", if last == "x" { "y" } else { "x" });
    for cookies in [
        access.clone(),
        refresh.clone(),
        format!("{access}; {of_bob}"),
        format!("{access}; {of_second}"),
        format!("{access}; {forged}"),
        format!("{access}; {refresh}; {refresh}"),
        format!("{access}; {REFRESH}="),
    ] {
        let response = with(gateway.client(), &cookies).get("/").await;
        assert_eq!((response.status.as_u16(), self::cookies(&response)), (401, None), "{cookies}");
    }
    // A Bearer is no cookie.
    let bearer = gateway.client().bearer(access.split_once('=').expect("a pair").1);
    assert_eq!(with(bearer, &refresh).get("/").await.status, 401);
    assert_eq!(with(gateway.client(), &alice).get("/").await.status, 200);

    let database = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    database.execute_batch("begin immediate").expect("locked");
    with(gateway.client(), &bob).get("/").await.assert_rejected(503, "temporarily_unavailable");
    database.execute_batch("rollback").expect("unlocked");
    assert_eq!(with(gateway.client(), &bob).get("/").await.text(), "hello bob");
}

/// Login CSRF: another site submits the form with its own password, and the user works in the attacker's account.
#[tokio::test]
async fn another_site_cannot_log_a_browser_in() {
    let (app, heads) = form_app();
    let gateway = gateway(&app);
    let form = Bytes::from_static(b"password=right&user=mallory");
    let client = gateway.client();
    for client in [client.clone(), client.header("origin", "https://evil.example")] {
        let response = client.send(Method::POST, "/login", form.clone()).await;
        response.assert_rejected(403, "forbidden");
        assert_eq!(cookies(&response), None);
    }
    assert!(heads.lock().expect("unpoisoned").is_empty());
}

/// After a wrong password, such an application shows its form again, with status 200.
#[tokio::test]
async fn wrong_passwords_in_a_form_are_limited() {
    let (app, _) = form_app();
    let gateway = Gateway::with_throttle(app.address, "failures = 3", ROUTES);
    let client = gateway.client().header("origin", "http://gateway.test");
    for _ in 0..5 {
        assert_eq!(client.get("/login").await.status, 200, "to read the form is no guess");
    }
    for status in [200, 200, 200, 429] {
        let response = client.send(Method::POST, "/login", Bytes::from_static(b"password=guess")).await;
        assert_eq!(response.status, status);
    }
}

#[tokio::test]
async fn a_logout_removes_both_cookies() {
    let (app, _) = form_app();
    let gateway = gateway(&app);
    let current = log_in(&gateway, "alice").await;
    let client = with(gateway.client().header("origin", "http://gateway.test"), &current);
    let response = client.send(Method::POST, "/logout", Bytes::new()).await;
    assert_eq!(response.status, 303, "{response:?}");
    let set: Vec<_> =
        response.headers.get_all("set-cookie").iter().map(|value| value.to_str().expect("text")).collect();
    let removed = |name: &str| format!("{name}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax");
    assert_eq!(set, [removed(ACCESS), removed(REFRESH)]);
    assert_eq!(with(gateway.client(), &current).get("/").await.status, 401);
}
