//! Logout capture: when the backend has logged somebody out, their login is over before they hear of it.

use http::Method;
use rusqlite::Connection;

use crate::support::tokens::Mint;
use crate::support::{Gateway, Upstream};
use bearward::tokens::jwt::Algorithm;

const ROUTES: &str = r#"
[[route]]
path = "/"
[[route]]
path = "/status/"
logout = true
preflight = true
"#;

#[tokio::test]
async fn a_2xx_ends_the_callers_login_and_no_other() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&upstream, ROUTES);
    for status in [200, 201, 204] {
        for client in gateway.clients() {
            let (phone, laptop) = (gateway.issue("alice", "").await, gateway.issue("alice", "").await);
            let answer =
                client.bearer(&phone.access).send(Method::POST, &format!("/status/{status}"), "bye".into()).await;
            assert_eq!(answer.status, status);
            assert_eq!(gateway.status_of(&phone.access).await, 401, "at once");
            gateway.refresh(&phone.access, &phone.refresh).await.refused(400, "invalid_grant");
            assert_eq!(gateway.status_of(&laptop.access).await, 200);
            assert_eq!(gateway.refresh(&laptop.access, &laptop.refresh).await.status, 200);
        }
    }
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.client().bearer(&pair.access).get("/status/200").await.status, 200);
    let gateway = gateway.restart();
    assert_eq!(gateway.status_of(&pair.access).await, 401, "and for good");
}

#[tokio::test]
async fn a_backend_that_does_not_log_out_ends_nothing() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    for status in [302, 304, 400, 401, 404, 500] {
        let answer = gateway.client().bearer(&pair.access).get(&format!("/status/{status}")).await;
        assert_eq!(answer.status, status);
    }
    let preflight = gateway.client().header("origin", "https://a").header("access-control-request-method", "POST");
    assert_eq!(preflight.bearer(&pair.access).send(Method::OPTIONS, "/status/204", "".into()).await.status, 204);
    assert_eq!(gateway.status_of(&pair.access).await, 200);
}

/// Any page can have a browser ask for an address as an image, and the browser adds its cookies.
#[tokio::test]
async fn a_page_of_somebody_else_logs_nobody_out() {
    let upstream = Upstream::start();
    let in_cookie = "token_from = [\"cookie:session\"]\norigins = [\"https://friend.example\"]";
    let gateway = Gateway::with(&upstream, &format!("{ROUTES}{in_cookie}"));
    for client in gateway.clients() {
        let pair = gateway.issue("alice", "").await;
        let client = client.header("cookie", &format!("session={}", pair.access));
        let ask = async |method: &Method, origin: &str| {
            let client = if origin.is_empty() { client.clone() } else { client.clone().header("origin", origin) };
            client.send(method.clone(), "/status/204", "".into()).await.status
        };
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::DELETE] {
            for origin in ["", "null", "https://evil.example"] {
                assert_eq!(ask(&method, origin).await, 403, "{method} {origin}");
            }
        }
        let preflight = client.clone().header("origin", "https://evil.example");
        let preflight = preflight.header("access-control-request-method", "GET");
        assert_eq!(preflight.send(Method::OPTIONS, "/status/204", "".into()).await.status, 204);
        assert_eq!(gateway.status_of(&pair.access).await, 200, "nothing of that has ended it");
        for origin in ["https://gateway.test", "https://friend.example"] {
            let pair = gateway.issue("alice", "").await;
            let page = gateway.client().header("cookie", &format!("session={}", pair.access)).header("origin", origin);
            assert_eq!(page.get("/status/204").await.status, 204, "{origin}");
            assert_eq!(gateway.status_of(&pair.access).await, 401, "{origin}");
        }
    }
}

#[tokio::test]
async fn nobody_is_told_that_they_are_logged_out_before_it_is_durable() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    let shell = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    shell.execute_batch("begin immediate").expect("locked");
    let client = gateway.client().bearer(&pair.access);
    client.get("/status/200").await.refused(503, "temporarily_unavailable");
    shell.execute_batch("rollback").expect("let go");
    assert_eq!(gateway.status_of(&pair.access).await, 200, "what was answered with 503 has not happened");
    assert_eq!(client.get("/status/200").await.status, 200);
    assert_eq!(gateway.status_of(&pair.access).await, 401);
}

/// The store knows nothing of the login, as after a restored backup: its token lives on, and that is no success.
#[tokio::test]
async fn a_login_that_the_store_has_lost_is_not_reported_ended() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    let shell = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    shell.execute_batch("delete from families").expect("lost");
    gateway.client().bearer(&pair.access).get("/status/200").await.refused(503, "temporarily_unavailable");
}

#[tokio::test]
async fn whoever_has_no_login_here_cannot_log_out() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::trusting(&upstream, &mint, ROUTES);
    gateway.client().get("/status/200").await.refused(401, "unauthorized");
    let foreign = mint.good(gateway.now_secs());
    assert_eq!(gateway.status_of(&foreign).await, 200);
    gateway.client().bearer(&foreign).get("/status/200").await.refused(401, "invalid_token");
    assert_eq!(upstream.seen().len(), 1, "it was not bothered with it");
}
