//! Guesses of a password: each attempt counts, unless the backend reports a login.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Method;

use super::{ALICE, JSON, response_text};
use crate::support::{Client, Gateway, ScriptedBackend, TestResponse};

const ROUTES: &str = r#"
[[route]]
path = "/login"
public = true
login = "cookie"
[[route]]
path = "/api/login"
public = true
login = true
[[route]]
path = "/"
token_from = ["login_cookie"]
"#;

/// A backend that reports a wrong password with this response, and takes a right one from the body or the query. An
/// empty response closes the connection. Also counts the passwords that reach it.
fn backend(wrong: &'static str) -> (ScriptedBackend, Arc<AtomicUsize>) {
    let reached = Arc::<AtomicUsize>::default();
    let count = reached.clone();
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let count = count.clone();
        async move {
            while let Some(head) = wire.try_read_until("\r\n\r\n").await {
                let size = head
                    .to_lowercase()
                    .split_once("content-length: ")
                    .and_then(|(_, rest)| rest.lines().next().unwrap_or_default().parse().ok());
                let body = wire.read_bytes(size.unwrap_or(0)).await;
                let text = format!("{head}{}", String::from_utf8_lossy(&body));
                if text.contains("password=") {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                let right = response_text("200 OK", &format!("{JSON}{ALICE}"), "{}");
                let response = if text.contains("password=right") { right.as_str() } else { wrong };
                if response.is_empty() {
                    return;
                }
                wire.send(response).await;
            }
        }
    });
    (backend, reached)
}

const FORM: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nform";
const REDIRECT: &str = "HTTP/1.1 302 Found\r\nlocation: /login?error\r\ncontent-length: 0\r\n\r\n";
const ERROR: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
const CLOSES: &str = "";

fn gateway(backend: &ScriptedBackend) -> Gateway {
    Gateway::with_throttle(backend.address, "calls = 0\nfailures = 5", ROUTES)
}

fn client(gateway: &Gateway) -> Client {
    gateway.client().header("origin", "http://gateway.test")
}

async fn post(gateway: &Gateway, path: &str, body: &str) -> TestResponse {
    client(gateway).send(Method::POST, path, Bytes::from(body.to_owned())).await
}

#[tokio::test]
async fn a_wrong_password_counts_however_it_is_reported() {
    for wrong in [FORM, REDIRECT, ERROR, CLOSES] {
        for path in ["/login", "/api/login"] {
            let (backend, reached) = backend(wrong);
            let gateway = gateway(&backend);
            for _ in 0..10 {
                post(&gateway, path, "password=wrong").await;
            }
            let reached = reached.load(Ordering::SeqCst);
            // The gateway may send a request again if a connection closes without a response; not a POST.
            assert_eq!(reached, 5, "{path}: {wrong}");
            post(&gateway, path, "password=right").await.assert_rejected(429, "rate_limited");
        }
    }
}

#[tokio::test]
async fn a_guess_in_a_query_or_a_header_counts() {
    for (path, name) in [("/login?password=wrong", "x-none"), ("/login", "authorization")] {
        let (backend, _) = backend(FORM);
        let gateway = gateway(&backend);
        let mut statuses = Vec::new();
        for _ in 0..8 {
            let client = gateway.client().header(name, "Basic cGFzc3dvcmQ6d3Jvbmc=");
            statuses.push(client.get(path).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429], "{path}");
    }
}

#[tokio::test]
async fn pages_and_right_passwords_do_not_count() {
    let (backend, _) = backend(FORM);
    let gateway = gateway(&backend);
    for _ in 0..10 {
        assert_eq!(gateway.client().get("/login").await.text(), "form");
        for path in ["/login", "/api/login"] {
            let response = post(&gateway, path, "password=right").await;
            assert_eq!(response.status, 200, "{response:?}");
        }
    }
}

/// A link on any page makes the browser send a GET, and no `Origin` comes with it (login CSRF).
#[tokio::test]
async fn a_login_by_get_sets_no_cookies() {
    let (backend, reached) = backend(FORM);
    let gateway = gateway(&backend);
    for client in [gateway.client(), client(&gateway)] {
        let response = client.get("/login?password=right").await;
        response.assert_rejected(503, "temporarily_unavailable");
        assert_eq!(response.header("set-cookie"), None);
    }
    assert_eq!(reached.load(Ordering::SeqCst), 2);
    assert_eq!(super::session_count(&gateway, "alice").await, 0);
    assert!(post(&gateway, "/login", "password=right").await.header("set-cookie").is_some());
}
