//! Sessions of the gateway itself that are bound to a client certificate (RFC 8705 sections 4 and 7.1).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::certificate_bound::{authorization, certificate, thumbprint};
use crate::support::mutual_tls::MutualClient;
use crate::support::prover::Prover;
use crate::support::tokens::claims_of;
use crate::support::{Gateway, ScriptedBackend, TokenPair, Upstream};

const OAUTH: &str = "[oauth]\ntoken_endpoint = \"/oauth/token\"\nintrospection_endpoint = \"/oauth/introspect\"\n";
const GRANT: (&str, &str) = ("grant_type", "refresh_token");

/// `tokens`: keys of this table.
fn gateway(upstream: &str, tokens: &str, more: &str) -> Gateway {
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    let text = Gateway::config_text(upstream, more);
    let tls = "tls = \"self-signed\"";
    let text = text.replacen(tls, &format!("{tls}\nclient_certificate = \"any\""), 1);
    let text = text.replacen("[tokens]\n", &format!("[tokens]\n{tokens}"), 1);
    Gateway::in_folder(text, folder, Arc::new(crate::support::clock::ManualClock::new()))
}

fn gateway_before(upstream: &Upstream, more: &str) -> Gateway {
    gateway(&upstream.address.to_string(), "", more)
}

/// A client with a certificate of its own, and the thumbprint of it.
fn client(gateway: &Gateway) -> (MutualClient, String) {
    let shown = certificate(&rcgen::KeyPair::generate().expect("a key"));
    let hash = thumbprint(&shown.0[0]);
    (MutualClient::new(gateway, Some(shown)), hash)
}

async fn session(gateway: &Gateway, binding: Value) -> TokenPair {
    let mut login = json!({ "sub": "alice" });
    for (name, value) in binding.as_object().expect("an object") {
        login[name] = value.clone();
    }
    let response = gateway.request_tokens(&login).await;
    assert_eq!(response.status, 201, "{response:?}");
    TokenPair::from_json(&response.json())
}

async fn refresh_beside(client: &MutualClient, pair: &TokenPair) -> (u16, Value) {
    let fields = format!("{}Content-Type: application/json\r\n", authorization(&pair.access));
    client.post("/user/refresh", &fields, &json!({ "refreshToken": pair.refresh }).to_string()).await
}

async fn refresh_alone(client: &MutualClient, refresh: &str) -> (u16, Value) {
    client.post_form("/oauth/token", &[GRANT, ("refresh_token", refresh)]).await
}

fn text(object: &Value, member: &str) -> String {
    let token = object[member].as_str().unwrap_or_else(|| panic!("{member} in {object}")).to_owned();
    crate::support::secrets::remember(&token);
    token
}

#[tokio::test]
async fn a_session_that_was_issued_for_a_certificate_is_good_beside_it_alone() {
    let upstream = Upstream::start();
    let gateway = gateway_before(&upstream, OAUTH);
    let ((owner, hash), (thief, _)) = (client(&gateway), client(&gateway));
    let pair = session(&gateway, json!({ "x5t#S256": hash })).await;
    assert_eq!(claims_of(&pair.access)["cnf"], json!({ "x5t#S256": hash }));
    let fields = authorization(&pair.access);
    for (client, expected) in [(&owner, 200), (&thief, 401), (&MutualClient::new(&gateway, None), 401), (&owner, 200)] {
        assert_eq!(client.status("/", &fields).await, expected);
    }
    for wrong in ["", "x", &hash[1..], &format!("{hash}=")] {
        let login = json!({ "sub": "alice", "x5t#S256": wrong });
        gateway.request_tokens(&login).await.assert_rejected(400, "invalid_request");
    }
    let path = format!("/token/{}", pair.token_id);
    let revoked = async |client: &MutualClient| {
        client.send("DELETE", &path, &fields, "").await.expect("a response")[9..12].to_owned()
    };
    assert_eq!((revoked(&thief).await, revoked(&owner).await), ("401".to_owned(), "200".to_owned()));
    assert_eq!(owner.status("/", &fields).await, 401);
}

/// doorkeeper 1794: without the certificate, a stolen refresh token must not even end the session of its owner.
#[tokio::test]
async fn a_refresh_needs_the_certificate_before_anything_happens() {
    let upstream = Upstream::start();
    let gateway = gateway_before(&upstream, OAUTH);
    let ((owner, hash), (thief, _), without) = (client(&gateway), client(&gateway), MutualClient::new(&gateway, None));
    let pair = session(&gateway, json!({ "x5t#S256": hash })).await;
    for other in [&thief, &without] {
        for (status, error) in [refresh_beside(other, &pair).await, refresh_alone(other, &pair.refresh).await] {
            // Not 401: many clients refresh again on any 401.
            assert_eq!((status, &error["error"]), (400, &json!("invalid_grant")), "{error}");
        }
    }
    let cleartext = gateway.refresh(&pair.access, &pair.refresh).await;
    cleartext.assert_rejected(400, "invalid_grant");
    let (status, body) = refresh_beside(&owner, &pair).await;
    assert_eq!(status, 200, "{body}");
    let child = TokenPair::from_json(&body);
    assert_eq!(claims_of(&child.access)["cnf"], json!({ "x5t#S256": hash }));
    assert_eq!(owner.status("/", &authorization(&child.access)).await, 200);

    // A spent refresh token without the certificate is no reuse. With it, it is, beside an access token.
    gateway.advance(Duration::from_secs(30));
    assert_eq!(refresh_alone(&thief, &pair.refresh).await.0, 400);
    let (status, alone) = refresh_alone(&owner, &child.refresh).await;
    assert_eq!((status, &alone["token_type"]), (200, &json!("Bearer")), "{alone}");
    assert_eq!(owner.status("/", &authorization(&text(&alone, "access_token"))).await, 200);
    gateway.advance(Duration::from_secs(30));
    let (status, again) = refresh_alone(&owner, &pair.refresh).await;
    assert_eq!((status, &again["refresh_token"]), (200, &alone["refresh_token"]), "a copy of the client");
    assert_eq!(owner.status("/", &authorization(&text(&again, "access_token"))).await, 200);
    assert_eq!(refresh_beside(&owner, &pair).await.0, 400);
    assert_eq!(owner.status("/", &authorization(&child.access)).await, 401, "the session was revoked");
    let counted = |line: &Value| line["reason"] == "grant_certificate" && line["status"] == 400;
    gateway.log_line(counted).await;
}

#[tokio::test]
async fn a_session_of_a_key_and_a_certificate_needs_both() {
    let upstream = Upstream::start();
    let gateway = gateway_before(&upstream, OAUTH);
    let ((owner, hash), (other, _), prover) = (client(&gateway), client(&gateway), Prover::new());
    let pair = session(&gateway, json!({ "x5t#S256": hash, "jkt": prover.thumbprint() })).await;
    assert_eq!(claims_of(&pair.access)["cnf"], json!({ "x5t#S256": hash, "jkt": prover.thumbprint() }));
    let proof = |method: &str, path: &str, token: &str| {
        prover.proof(method, &format!("https://localhost{path}"), token, gateway.now_secs())
    };
    let with_proof = |token: &str| format!("Authorization: DPoP {token}\r\nDPoP: {}\r\n", proof("GET", "/", token));
    assert_eq!(owner.status("/", &with_proof(&pair.access)).await, 200);
    assert_eq!(other.status("/", &with_proof(&pair.access)).await, 401);
    assert_eq!(owner.status("/", &authorization(&pair.access)).await, 401);

    let form = format!("grant_type=refresh_token&refresh_token={}", pair.refresh);
    let fields = |proof: &str| format!("Content-Type: application/x-www-form-urlencoded\r\nDPoP: {proof}\r\n");
    let (status, error) = other.post("/oauth/token", &fields(&proof("POST", "/oauth/token", "")), &form).await;
    assert_eq!((status, &error["error"]), (400, &json!("invalid_grant")));
    let (status, error) = refresh_alone(&owner, &pair.refresh).await;
    assert_eq!((status, &error["error"]), (400, &json!("invalid_dpop_proof")));
    let (status, both) = owner.post("/oauth/token", &fields(&proof("POST", "/oauth/token", "")), &form).await;
    assert_eq!((status, &both["token_type"]), (200, &json!("DPoP")), "{both}");
    assert_eq!(owner.status("/", &with_proof(&text(&both, "access_token"))).await, 200);
}

/// `tokens.certificate_bound`
#[tokio::test]
async fn tokens_of_clients_with_certificates_are_bound_if_the_operator_wants_it() {
    let upstream = Upstream::start();
    for is_wanted in [true, false] {
        let wanted = format!("certificate_bound = {is_wanted}\n");
        let gateway = gateway(&upstream.address.to_string(), &wanted, OAUTH);
        let ((client, hash), without) = (client(&gateway), MutualClient::new(&gateway, None));
        let expected = if is_wanted { json!({ "x5t#S256": hash }) } else { Value::Null };
        let pair = gateway.issue("alice", "").await;
        let (_, first) = refresh_beside(&client, &pair).await;
        let first = TokenPair::from_json(&first);
        assert_eq!(claims_of(&first.access)["cnf"], expected);
        let (_, second) = refresh_alone(&client, &first.refresh).await;
        assert_eq!(claims_of(&text(&second, "access_token"))["cnf"], expected);
        // The session itself is not bound, and a client without a certificate gets bearer tokens.
        let (_, third) = refresh_alone(&without, &text(&second, "refresh_token")).await;
        assert_eq!(claims_of(&text(&third, "access_token"))["cnf"], Value::Null);
        let metadata = gateway.client().get("/.well-known/oauth-authorization-server").await.json();
        let names = metadata["tls_client_certificate_bound_access_tokens"] == true;
        assert_eq!(names, is_wanted);
    }
}

/// The access token alone is bound, and its session is not: beside this token, a refresh needs the certificate.
#[tokio::test]
async fn a_refresh_beside_a_bound_token_of_an_unbound_session_needs_its_certificate() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream.address.to_string(), "certificate_bound = true\n", OAUTH);
    let ((owner, hash), (thief, _), without) = (client(&gateway), client(&gateway), MutualClient::new(&gateway, None));
    let (_, first) = refresh_beside(&owner, &gateway.issue("alice", "").await).await;
    let first = TokenPair::from_json(&first);
    assert_eq!(claims_of(&first.access)["cnf"], json!({ "x5t#S256": hash }));
    for other in [&thief, &without] {
        let (status, error) = refresh_beside(other, &first).await;
        assert_eq!((status, &error["error"]), (400, &json!("invalid_grant")), "{error}");
    }
    let (status, second) = refresh_beside(&owner, &first).await;
    assert_eq!(status, 200, "{second}");
}

/// The backend logs the user in. The session is bound to the certificate of the client that asked.
#[tokio::test]
async fn a_captured_login_is_bound_to_the_certificate() {
    let backend = ScriptedBackend::responding_with(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-bearward-subject: alice\r\ncontent-length: 16\r\n\r\n\
         {\"welcome\":true}",
    );
    let login = "[[route]]\npath = \"/login\"\npublic = true\nlogin = true\n";
    let gateway = gateway(&backend.address.to_string(), "certificate_bound = true\n", login);
    let ((owner, hash), (thief, _)) = (client(&gateway), client(&gateway));
    let log_in = async |client: &MutualClient| {
        let (status, body) = client.post("/login", "Content-Type: application/json\r\n", "{}").await;
        assert_eq!(status, 200, "{body}");
        TokenPair::from_json(&body)
    };
    let bound = log_in(&owner).await;
    assert_eq!(claims_of(&bound.access)["cnf"], json!({ "x5t#S256": hash }));
    assert_eq!(refresh_beside(&thief, &bound).await.0, 400);
    assert_eq!(refresh_beside(&owner, &bound).await.0, 200);
    let unbound = log_in(&MutualClient::new(&gateway, None)).await;
    assert_eq!(claims_of(&unbound.access)["cnf"], Value::Null);
}

#[tokio::test]
async fn introspection_tells_of_the_certificate() {
    let upstream = Upstream::start();
    let gateway = gateway_before(&upstream, OAUTH);
    let (_, hash) = client(&gateway);
    let pair = session(&gateway, json!({ "x5t#S256": hash })).await;
    let service = gateway.issue("service", "token:introspect").await;
    for (token, kind) in [(&pair.access, "Bearer"), (&pair.refresh, "refresh_token")] {
        let asking = gateway.client().bearer(&service.access);
        let asking = asking.header("content-type", "application/x-www-form-urlencoded");
        let body = format!("token={token}").into();
        let found = asking.send(http::Method::POST, "/oauth/introspect", body).await.json();
        let expected = (&json!(true), &json!({ "x5t#S256": hash }), &json!(kind));
        assert_eq!((&found["active"], &found["cnf"], &found["token_type"]), expected);
    }
}
