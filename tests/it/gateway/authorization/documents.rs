//! Clients that a document at their URL describes (Client ID Metadata Documents).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Front, OAUTH, authorize, counted, counts, fetched};
use crate::support::KeyServer;
use crate::support::visitor::{APP, parameter};

pub(super) const CALLBACK: &str = "http://127.0.0.1:7777/callback";

/// A gateway that accepts documents of these hosts, and a server at `https://localhost` that has some.
pub(super) async fn front(hosts: &str) -> (Front, KeyServer, Arc<TempDir>) {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    let certificate = folder.path().join("documents.pem");
    let server = KeyServer::start_tls(&[], &certificate);
    let keys = format!("client_documents = {hosts}\nclient_documents_ca_file = \"{}\"\n", certificate.display());
    let front = Front::with(&OAUTH.replace("[oauth]\n", &format!("[oauth]\n{keys}"))).await;
    (front, server, folder)
}

pub(super) fn url(server: &KeyServer) -> String {
    format!("https://localhost:{}/client.json", server.address.port())
}

fn publish(server: &KeyServer, document: &Value) {
    server.pages().documents = vec![("/client.json".to_owned(), document.to_string())];
}

pub(super) fn document(server: &KeyServer) -> Value {
    json!({
        "client_id": url(server), "client_name": "Notes", "redirect_uris": ["http://127.0.0.1/callback"],
        "grant_types": ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"], "logo_uri": "x",
    })
}

pub(super) async fn status(front: &Front, client_id: &str) -> u16 {
    let request = authorize(&[("client_id", client_id), ("redirect_uri", CALLBACK)]);
    fetched(front, &request).await.status.as_u16()
}

#[tokio::test]
async fn a_client_with_a_document_gets_tokens() {
    let (mut front, server, _folder) = front("[\"localhost\"]").await;
    publish(&server, &document(&server));
    let id = url(&server);
    let page = front.consent_page(&authorize(&[("client_id", &id), ("redirect_uri", CALLBACK)])).await;
    for shown in ["“\u{2068}Notes\u{2069}”", "Described by <strong>localhost</strong>", "a program on this device"]
    {
        assert!(page.html.contains(shown), "{shown} in {}", page.html);
    }
    let answer = front.decide(&page, "allow").await;
    let code = parameter(&answer, "code").expect("a code");
    let tokens = front.redeem(&code, &[("client_id", &id), ("redirect_uri", CALLBACK)]).await;
    assert_eq!(tokens.status, 200, "{}", tokens.text());
    assert_eq!(front.status("/mcp", &tokens.json()["access_token"]).await, 200);
    assert_eq!(server.pages().seen.len(), 1, "it is kept");
    front.gateway.clock.advance(Duration::from_secs(16 * 60));
    assert_eq!(status(&front, &id).await, 303);
    assert_eq!(server.pages().seen.len(), 2, "not for longer than 15 minutes");
    // While its server is away, the client goes on.
    front.gateway.clock.advance(Duration::from_secs(16 * 60));
    server.fail_with(503);
    assert_eq!(status(&front, &id).await, 303);
    // It is there again, and no document.
    server.fail_with(200);
    server.pages().documents = vec![("/client.json".to_owned(), "x".repeat(6_000))];
    assert_eq!(status(&front, &id).await, 400);
}

/// Hostile cases 46, 48, 49 and 51. No failure is kept.
#[tokio::test]
async fn a_document_that_is_none_is_asked_for_again() {
    let (front, server, _folder) = front("[\"localhost\"]").await;
    let id = url(&server);
    let good = document(&server);
    let with = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        changed
    };
    for wrong in [
        with("client_id", json!("https://localhost/other")),
        with("client_secret", json!("x")),
        with("token_endpoint_auth_method", json!("client_secret_basic")),
        with("redirect_uris", json!([])),
        with("redirect_uris", json!(["javascript:alert(1)"])),
        json!([]),
    ] {
        publish(&server, &wrong);
        assert_eq!(status(&front, &id).await, 400, "{wrong}");
    }
    publish(&server, &with("client_name", json!("a".repeat(6_000))));
    assert_eq!(status(&front, &id).await, 400, "larger than 5 KiB");
    publish(&server, &good);
    // Not more than 10 fetches a minute.
    front.gateway.clock.advance(Duration::from_secs(60));
    for (answer, expected) in [(204, 400), (302, 400), (404, 400), (500, 503), (429, 503)] {
        server.fail_with(answer);
        assert_eq!(status(&front, &id).await, expected, "{answer}: an unknown client would register again");
    }
    server.fail_with(200);
    front.gateway.clock.advance(Duration::from_secs(60));
    assert_eq!(status(&front, &id).await, 303);
}

/// Hostile cases 45 and 46: nothing is fetched.
#[tokio::test]
async fn a_stranger_makes_the_gateway_fetch_nothing_from_this_machine() {
    let (front, server, _folder) = front("\"any\"").await;
    publish(&server, &document(&server));
    assert_eq!(status(&front, &url(&server)).await, 400, "localhost is no public address");
    let (named, other, _kept) = self::front("[\"app.example\"]").await;
    assert_eq!(status(&named, &url(&other)).await, 400, "the host is not in the list");
    let port = server.address.port();
    for wrong in [
        format!("https://127.0.0.1:{port}/client.json"),
        format!("https://[::1]:{port}/client.json"),
        format!("http://localhost:{port}/client.json"),
        format!("https://user@localhost:{port}/client.json"),
        format!("https://localhost:{port}/a/../client.json"),
        format!("https://localhost:{port}/client.json#x"),
        format!("https://localhost:{port}/"),
    ] {
        assert_eq!(status(&front, &wrong).await, 400, "{wrong}");
    }
    assert!(server.pages().seen.is_empty() && other.pages().seen.is_empty());
}

/// Hostile case 54.
#[tokio::test]
async fn a_flood_of_urls_makes_few_fetches() {
    let (front, server, _folder) = front("[\"localhost\"]").await;
    let base = url(&server);
    let mut statuses = Vec::new();
    for number in 0..30 {
        statuses.push(status(&front, &format!("{base}?{number}")).await);
    }
    assert_eq!(statuses[..10], [400; 10], "the documents are missing");
    assert_eq!(statuses[10..], [503; 20], "10 a minute for each host");
    assert_eq!(server.pages().seen.len(), 10);
}

#[tokio::test]
async fn the_metadata_name_how_clients_of_documents_authenticate() {
    let (front, _server, _folder) = front("\"any\"").await;
    let metadata = fetched(&front, &format!("{APP}/.well-known/oauth-authorization-server")).await.json();
    assert_eq!(metadata["token_endpoint_auth_methods_supported"], json!(["none", "private_key_jwt"]));
    let algorithms = &metadata["token_endpoint_auth_signing_alg_values_supported"];
    assert_eq!(*algorithms, json!(["ES256", "EdDSA", "PS256", "RS256"]));
}

/// What the running gateway says about a request of this client.
async fn explained(front: &Front, client_id: &str) -> Value {
    let url = authorize(&[("client_id", client_id), ("redirect_uri", CALLBACK)]);
    let path = url.strip_prefix(APP).expect("a URL of the gateway");
    let question = json!({ "method": "GET", "path": path, "host": "app.example" });
    let answer = front.gateway.admin_client().post("/admin/v1/explain", &question).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn operators_see_which_documents_fail() {
    let (front, server, _folder) = front("[\"localhost\"]").await;
    let id = url(&server);
    let said = explained(&front, &id).await;
    assert_eq!(said["decision"], "unknown", "{said}");
    assert!(server.pages().seen.is_empty(), "a question fetches nothing");
    publish(&server, &json!([]));
    assert_eq!(status(&front, &id).await, 400);
    publish(&server, &document(&server));
    for _ in 0..2 {
        assert_eq!(status(&front, &id).await, 303);
    }
    let said = explained(&front, &id).await;
    assert_eq!(said["decision"], "local", "{said}");
    let detail = said["detail"].as_str().expect("what it does");
    assert!(detail.contains("“Notes”") && detail.contains("a program on the device"), "{said}");
    assert!(said.to_string().contains("a document of localhost describes it"), "{said}");
    front.gateway.clock.advance(Duration::from_secs(16 * 60));
    server.fail_with(503);
    assert_eq!(status(&front, &id).await, 303);
    let other = id.replace("client.json", "other.json");
    server.pages().documents = vec![("/other.json".to_owned(), String::new())];
    assert_eq!(status(&front, &other).await, 503);
    let line = front.gateway.log_line(|line| line["reason"] == "client_document").await;
    assert_eq!(line["oauth_client"], "localhost", "{line}");
    let expected = counts([("fetched", 1), ("invalid", 1), ("kept", 1), ("stale", 1), ("unreachable", 1)]);
    assert_eq!(counted(&front, "client_documents").await, expected);
    let answered = "bearward_client_document_seconds_count{outcome=\"answered\"}";
    assert_eq!(front.gateway.metric(answered).await, 2.0);
}
