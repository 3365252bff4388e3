//! Routes that are protected resources of their own (`route.resource`).

use bearward::tokens::dpop::PROOF_ALGORITHMS;
use http::Method;
use serde_json::{Value, json};

use super::{OAUTH, post};
use crate::support::gateway::AUDIENCE;
use crate::support::tokens::claims_of;
use crate::support::{Gateway, TokenPair, Upstream};

const NOTES: &str = "https://api.example/notes";
const MCP: &str = "https://api.example/mcp";
const ROUTES: &str = r#"
[[route]]
path = "/"
[[route]]
path = "/notes/"
resource = "https://api.example/notes"
scopes = ["notes:read"]
any_scope = ["notes:write", "admin"]
[[route]]
path = "/notes/public/"
public = true
[[route]]
path = "/mcp"
methods = ["POST"]
resource = "https://api.example/mcp"
"#;
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::with_config(upstream, &format!("{OAUTH}{ROUTES}"))
}

async fn issued(gateway: &Gateway, aud: Value) -> TokenPair {
    let login = json!({ "sub": "alice", "aud": aud, "scope": "notes:read notes:write" });
    let response = gateway.request_tokens(&login).await;
    assert_eq!(response.status, 201, "{response:?}");
    TokenPair::from_json(&response.json())
}

#[tokio::test]
async fn a_token_is_good_at_its_resource_alone() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    for (aud, at_notes, at_mcp, elsewhere) in [
        (json!(NOTES), 200, 401, 401),
        (json!([NOTES, MCP]), 200, 200, 401),
        (json!(AUDIENCE), 401, 401, 200),
        (json!([AUDIENCE, MCP]), 401, 200, 200),
    ] {
        let pair = issued(&gateway, aud.clone()).await;
        assert_eq!(claims_of(&pair.access)["aud"], aud);
        for client in gateway.clients() {
            let client = client.bearer(&pair.access);
            assert_eq!(client.get("/notes/1").await.status, at_notes, "{aud}");
            assert_eq!(client.send(Method::POST, "/mcp", "".into()).await.status, at_mcp, "{aud}");
            assert_eq!(client.get("/other").await.status, elsewhere, "{aud}");
            assert_eq!(client.get("/notes/public/1").await.status, 200, "no token is needed");
        }
    }
    let response = gateway.request_tokens(&json!({ "sub": "alice", "aud": "https://api.example/other" })).await;
    assert_eq!(response.status, 400, "no route is this resource: {response:?}");
    gateway.drain_and_check_log();
}

/// Its client may end the session that it has. It may do nothing else of the user.
#[tokio::test]
async fn a_token_for_a_resource_is_no_credential_for_the_gateway() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let pair = issued(&gateway, json!(NOTES)).await;
    let other = gateway.issue("alice", "token:introspect").await;
    gateway.revoke(&pair.access, &other.token_id).await.assert_rejected(401, "invalid_token");
    gateway.revoke(&pair.access, &pair.token_id).await.assert_rejected(401, "invalid_token");
    gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(401, "invalid_token");
    let introspected = |token: &str| [("token", token.to_owned())];
    let by_it = gateway.client().bearer(&pair.access);
    let token = introspected(&other.access);
    let form: Vec<_> = token.iter().map(|(name, value)| (*name, value.as_str())).collect();
    post(by_it, "/oauth/introspect", &form).await.assert_rejected(401, "invalid_token");
    assert_eq!(gateway.status_of(&other.access).await, 200, "nothing has ended");

    // About the token, and with the refresh token alone.
    let about_it = post(gateway.client().bearer(&other.access), "/oauth/introspect", &[("token", &pair.access)]).await;
    assert_eq!((about_it.json()["active"].clone(), about_it.json()["aud"].clone()), (json!(true), json!(NOTES)));
    let form = [("grant_type", "refresh_token"), ("refresh_token", &*pair.refresh)];
    let refreshed = post(gateway.client(), "/oauth/token", &form).await.json();
    let access = refreshed["access_token"].as_str().expect("a token");
    assert_eq!(claims_of(access)["aud"], NOTES);
    assert_eq!(gateway.client().bearer(access).get("/notes/1").await.status, 200);
    assert_eq!(post(gateway.client(), "/oauth/revoke", &[("token", access)]).await.status, 200);
    assert_eq!(gateway.client().bearer(access).get("/notes/1").await.status, 401);
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_client_learns_from_the_rejection_what_to_ask_for() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let metadata =
        |path: &str| format!("Bearer realm=\"bearward\", resource_metadata=\"https://api.example{WELL_KNOWN}{path}\"");
    let narrow = gateway.request_tokens(&json!({ "sub": "alice", "aud": NOTES, "scope": "notes:read" })).await;
    let narrow = TokenPair::from_json(&narrow.json());
    for client in gateway.clients() {
        let challenge = client.get("/notes/1").await.header("www-authenticate").expect("a challenge").to_owned();
        assert_eq!(challenge, format!("{}, scope=\"notes:read notes:write\"", metadata("/notes")));
        // Many clients begin with GET, although only POST is allowed.
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::POST] {
            let response = client.send(method, "/mcp", "".into()).await;
            assert_eq!(
                (response.status.as_u16(), response.header("www-authenticate")),
                (401, Some(&*metadata("/mcp")))
            );
        }
        let response = client.get("/other").await;
        assert_eq!(response.header("www-authenticate"), Some("Bearer realm=\"bearward\""), "it is no resource");

        let response = client.bearer(&narrow.access).get("/notes/1").await;
        assert_eq!(response.status, 403);
        let challenge = response.header("www-authenticate").expect("a challenge");
        let error = "error=\"insufficient_scope\", error_description=\"the token lacks a required scope\"";
        assert_eq!(challenge, format!("{}, {error}, scope=\"notes:read notes:write\"", metadata("/notes")));
    }
}

#[tokio::test]
async fn the_metadata_of_each_resource_are_published() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let document = |resource: &str| {
        json!({
            "resource": resource,
            "authorization_servers": ["https://gateway.example"],
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": PROOF_ALGORITHMS.split(' ').collect::<Vec<_>>(),
        })
    };
    let mut of_notes = document(NOTES);
    of_notes["scopes_supported"] = json!(["admin", "notes:read", "notes:write"]);
    for client in gateway.clients() {
        for (path, expected) in [("/notes", &of_notes), ("/mcp", &document(MCP))] {
            let response = client.get(&format!("{WELL_KNOWN}{path}")).await;
            assert_eq!((response.status.as_u16(), response.json()), (200, expected.clone()));
            assert_eq!(response.header("access-control-allow-origin"), Some("*"));
        }
        assert_eq!(client.get(WELL_KNOWN).await.status, 401, "it is not known which of the two");
    }

    let of_mcp = "resource = \"https://api.example/mcp\"\n";
    let default = ROUTES.replace(of_mcp, &format!("{of_mcp}default_resource = true\n"));
    for (routes, at_root) in [
        (default.as_str(), MCP),
        ("[[route]]\npath = \"/mcp/\"\nresource = true\n", "https://gateway.example/mcp"),
        ("[[route]]\npath = \"/\"\nresource = true\n", "https://gateway.example"),
    ] {
        let gateway = Gateway::with_config(&upstream, routes);
        assert_eq!(gateway.client().get(WELL_KNOWN).await.json()["resource"], at_root, "{routes}");
    }
}
