//! Logout capture: when the backend logs a user out, the gateway ends the session before it forwards the response.

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
async fn a_2xx_response_ends_the_session_of_its_client_only() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    for status in [200, 201, 204] {
        for client in gateway.clients() {
            let (phone, laptop) = (gateway.issue("alice", "").await, gateway.issue("alice", "").await);
            let response =
                client.bearer(&phone.access).send(Method::POST, &format!("/status/{status}"), "bye".into()).await;
            assert_eq!(response.status, status);
            assert_eq!(gateway.status_of(&phone.access).await, 401, "{status}: the session ended at once");
            gateway.refresh(&phone.access, &phone.refresh).await.assert_rejected(400, "invalid_grant");
            assert_eq!(gateway.status_of(&laptop.access).await, 200);
            assert_eq!(gateway.refresh(&laptop.access, &laptop.refresh).await.status, 200);
        }
    }
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.client().bearer(&pair.access).get("/status/200").await.status, 200);
    let gateway = gateway.restart();
    assert_eq!(gateway.status_of(&pair.access).await, 401, "the session is still ended after a restart");
}

#[tokio::test]
async fn other_responses_and_preflights_end_no_session() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    for status in [302, 304, 400, 401, 404, 500] {
        let response = gateway.client().bearer(&pair.access).get(&format!("/status/{status}")).await;
        assert_eq!(response.status, status);
    }
    let preflight = gateway.client().header("origin", "https://a").header("access-control-request-method", "POST");
    assert_eq!(preflight.bearer(&pair.access).send(Method::OPTIONS, "/status/204", "".into()).await.status, 204);
    assert_eq!(gateway.status_of(&pair.access).await, 200);
}

/// Any page can make a browser request an address, for example as an image, and the browser adds its cookies.
#[tokio::test]
async fn a_page_of_another_origin_cannot_log_a_user_out() {
    let upstream = Upstream::start();
    let in_cookie = "token_from = [\"cookie:session\"]\norigins = [\"https://friend.example\"]";
    let gateway = Gateway::with_config(&upstream, &format!("{ROUTES}{in_cookie}"));
    for client in gateway.clients() {
        let pair = gateway.issue("alice", "").await;
        let client = client.header("cookie", &format!("session={}", pair.access));
        let send = async |method: &Method, origin: &str| {
            let client = if origin.is_empty() { client.clone() } else { client.clone().header("origin", origin) };
            client.send(method.clone(), "/status/204", "".into()).await.status
        };
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::DELETE] {
            for origin in ["", "null", "https://evil.example"] {
                assert_eq!(send(&method, origin).await, 403, "{method} {origin}");
            }
        }
        let preflight = client.clone().header("origin", "https://evil.example");
        let preflight = preflight.header("access-control-request-method", "GET");
        assert_eq!(preflight.send(Method::OPTIONS, "/status/204", "".into()).await.status, 204);
        assert_eq!(gateway.status_of(&pair.access).await, 200, "none of these requests ended the session");
        for origin in ["https://gateway.test", "https://friend.example"] {
            let pair = gateway.issue("alice", "").await;
            let page = gateway.client().header("cookie", &format!("session={}", pair.access)).header("origin", origin);
            assert_eq!(page.get("/status/204").await.status, 204, "{origin}");
            assert_eq!(gateway.status_of(&pair.access).await, 401, "{origin}");
        }
    }
}

#[tokio::test]
async fn a_logout_succeeds_only_when_it_is_durable() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    let database = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    database.execute_batch("begin immediate").expect("locked");
    let client = gateway.client().bearer(&pair.access);
    client.get("/status/200").await.assert_rejected(503, "temporarily_unavailable");
    database.execute_batch("rollback").expect("unlocked");
    assert_eq!(gateway.status_of(&pair.access).await, 200, "a logout that failed with 503 did not end the session");
    assert_eq!(client.get("/status/200").await.status, 200);
    assert_eq!(gateway.status_of(&pair.access).await, 401);
}

/// The store does not have the session, for example after a backup was restored. The token stays valid, so the logout
/// fails.
#[tokio::test]
async fn a_logout_of_a_session_missing_in_the_store_fails() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    let database = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    database.execute_batch("delete from families").expect("deleted");
    gateway.client().bearer(&pair.access).get("/status/200").await.assert_rejected(503, "temporarily_unavailable");
}

#[tokio::test]
async fn a_client_without_a_session_of_the_gateway_cannot_log_out() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, ROUTES);
    gateway.client().get("/status/200").await.assert_rejected(401, "unauthorized");
    let external = mint.valid_token(gateway.now_secs());
    assert_eq!(gateway.status_of(&external).await, 200);
    gateway.client().bearer(&external).get("/status/200").await.assert_rejected(401, "invalid_token");
    assert_eq!(upstream.seen().len(), 1, "the backend received no logout");
}
