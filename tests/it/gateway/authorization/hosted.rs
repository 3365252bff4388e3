//! What clients send that cannot run here: Claude, Claude Code, VS Code, ChatGPT and Cursor. Their documents and
//! registrations are as their users and makers describe them in public (autumn 2026), with the host of the document
//! replaced by that of a server here.

use std::sync::Arc;

use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Front, MCP, OAUTH, Page, authorize};
use crate::gateway::oauth::clients::{MachineKey, TYPE};
use crate::support::KeyServer;
use crate::support::tokens::{Mint, claims_of};
use crate::support::visitor::{APP, parameter};

/// What `deploy/assistants.md` tells the operator of such clients to write.
const REGISTRATION: &str =
    r#"["loopback", "cursor://", "https://www.cursor.com", "https://vscode.dev", "https://insiders.vscode.dev"]"#;

/// A gateway, and a server of documents, at which the user has a session.
struct Hosted {
    front: Front,
    server: KeyServer,
    _folder: Arc<TempDir>,
}

impl Hosted {
    async fn start() -> Hosted {
        let folder = Arc::new(TempDir::new().expect("a folder"));
        let certificate = folder.path().join("documents.pem");
        let server = KeyServer::start_tls(&[], &certificate);
        let keys = format!(
            "registration = {REGISTRATION}\nclient_documents = [\"localhost\"]\nclient_documents_ca_file = \"{}\"\n",
            certificate.display()
        );
        let mut front = Front::with(&OAUTH.replace("[oauth]\n", &format!("[oauth]\n{keys}"))).await;
        assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
        Hosted { front, server, _folder: folder }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.server.address.port())
    }

    /// Publishes a document. Returns its URL, which is the `client_id`.
    fn publish(&self, path: &str, mut document: Value) -> String {
        let id = self.url(path);
        document["client_id"] = json!(id);
        self.server.pages().documents.push((path.to_owned(), document.to_string()));
        id
    }

    async fn register(&self, metadata: &Value) -> String {
        let response = self.front.gateway.client().host("app.example").post("/oauth/register", metadata).await;
        assert_eq!(response.status, 201, "{}", response.text());
        response.json()["client_id"].as_str().expect("a client id").to_owned()
    }

    /// The tokens that a client gets. `proofs`: with which it authenticates, for its code and for its refresh.
    async fn tokens(&mut self, id: &str, redirect_uri: &str, proofs: [&[(&str, &str)]; 2]) -> Value {
        let client = [("client_id", id), ("redirect_uri", redirect_uri)];
        let url = authorize(&[&client[..], &[("resource", MCP), ("prompt", "consent")]].concat());
        let page = Page::of(&self.front.alice.navigate(&url).await);
        let answer = self.front.decide(&page, "allow").await;
        assert!(answer.starts_with(redirect_uri), "{answer}");
        let code = parameter(&answer, "code").unwrap_or_else(|| panic!("{id}: no code in {answer}"));
        let [of_code, of_refresh] = proofs;
        let redeemed = self.front.redeem(&code, &[&client[..], &[("resource", MCP)], of_code].concat()).await;
        assert_eq!(redeemed.status, 200, "{id}: {}", redeemed.text());
        assert_eq!(self.front.status("/mcp", &redeemed.json()["access_token"]).await, 200, "{id}");
        let more = [&[("client_id", id), ("resource", MCP)], of_refresh].concat();
        let refreshed = self.front.refresh_for(&redeemed.json(), &more).await;
        assert_eq!(refreshed.status, 200, "{id}: {}", refreshed.text());
        assert_eq!(self.front.status("/mcp", &refreshed.json()["access_token"]).await, 200, "{id}");
        refreshed.json()
    }
}

const NO_PROOF: [&[(&str, &str)]; 2] = [&[], &[]];

#[tokio::test]
async fn claude_has_a_document_and_a_page_of_its_own_site() {
    let mut hosted = Hosted::start().await;
    let callback = "https://claude.ai/api/mcp/auth_callback";
    let document = json!({
        "client_name": "Claude", "client_uri": "https://claude.ai", "redirect_uris": [callback],
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    });
    let id = hosted.publish("/oauth/mcp-oauth-client-metadata", document);
    hosted.tokens(&id, callback, NO_PROOF).await;
}

/// Its document has addresses of the device without a port, and no `application_type`.
#[tokio::test]
async fn claude_code_comes_back_to_any_port_of_the_device() {
    let mut hosted = Hosted::start().await;
    let document = json!({
        "client_name": "Claude Code", "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    });
    let id = hosted.publish("/oauth/claude-code-client-metadata", document);
    for callback in ["http://localhost:3118/callback", "http://127.0.0.1:52163/callback"] {
        hosted.tokens(&id, callback, NO_PROOF).await;
    }
}

/// Also as a client that registers itself, as older versions do: with pages of its site beside the device.
#[tokio::test]
async fn vs_code_comes_back_to_its_site_or_to_the_device() {
    let mut hosted = Hosted::start().await;
    let uris = [
        "http://127.0.0.1:33418/",
        "http://127.0.0.1/",
        "https://vscode.dev/redirect",
        "https://insiders.vscode.dev/redirect",
    ];
    let metadata = json!({
        "client_name": "Visual Studio Code", "client_uri": "https://code.visualstudio.com", "redirect_uris": uris,
        "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
        "response_types": ["code"], "token_endpoint_auth_method": "none", "application_type": "native",
    });
    let described = hosted.publish("/oauth/client-metadata.json", metadata.clone());
    let registered = hosted.register(&metadata).await;
    for id in [described, registered] {
        // The usual port is taken by another window.
        for callback in ["http://127.0.0.1:59656/", "https://vscode.dev/redirect"] {
            hosted.tokens(&id, callback, NO_PROOF).await;
        }
    }
}

/// It signs with RS256, and could do without a key: it uses one, because the metadata offer it.
#[tokio::test]
async fn chatgpt_signs_an_assertion() {
    let mut hosted = Hosted::start().await;
    let key = MachineKey(Mint::new(Algorithm::RS256));
    let callback = "https://chatgpt.com/connector/oauth/OUbdUMlL15Ct";
    let document = json!({
        "client_name": "ChatGPT", "redirect_uris": [callback], "token_endpoint_auth_method": "private_key_jwt",
        "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
        "token_endpoint_auth_signing_alg": "RS256", "jwks_uri": hosted.url("/keys.json"),
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
    });
    hosted.server.pages().documents.push(("/keys.json".to_owned(), key.0.jwks()));
    let id = hosted.publish("/oauth/plugin/client.json", document);
    let now = hosted.front.gateway.now_secs();
    // Its audience is the issuer, or the token endpoint (RFC 7523 section 3).
    let sign = |aud: &str| key.with_claims(now, json!({ "iss": id, "sub": id, "aud": aud }));
    let assertions = [sign(APP), sign(&format!("{APP}/oauth/token"))];
    let proof = |assertion| [("client_assertion_type", TYPE), ("client_assertion", assertion)];
    let (of_code, of_refresh) = (proof(&assertions[0]), proof(&assertions[1]));
    let tokens = hosted.tokens(&id, callback, [&of_code, &of_refresh]).await;
    let claims = claims_of(tokens["access_token"].as_str().expect("a token"));
    assert_eq!(claims["client_auth"], "private_key_jwt");
}

/// It registers three redirect URIs at once, and uses that of its scheme.
#[tokio::test]
async fn cursor_registers_a_scheme_a_site_and_the_device() {
    let mut hosted = Hosted::start().await;
    let callback = "cursor://anysphere.cursor-mcp/oauth/callback";
    let metadata = json!({
        "client_name": "Cursor",
        "redirect_uris": [callback, "https://www.cursor.com/agents/mcp/oauth/callback", "http://localhost:8787/callback"],
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    });
    let id = hosted.register(&metadata).await;
    for callback in [callback, "https://www.cursor.com/agents/mcp/oauth/callback"] {
        hosted.tokens(&id, callback, NO_PROOF).await;
    }
}
