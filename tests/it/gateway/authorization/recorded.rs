//! The requests of clients that are not ours, as they were recorded in November 2026 (`recorded.json`): registration,
//! authorization, code and refresh. Each client must get through all of them. Values that differ each time are names.

use std::collections::BTreeMap;

use bearward::protocols::http::parameters;
use bearward::tokens::sealed;
use http::Method;
use serde_json::Value;

use super::{Front, MCP, Page};
use crate::support::TestResponse;
use crate::support::visitor::{APP, parameter};

const OAUTH: &str = r#"
[oauth]
sign_in = "main"
registration = ["loopback"]
[[oauth.scope]]
name = "mcp:read"
[[oauth.client]]
client_id = "spa"
client_auth = "none"
redirect_uris = ["http://127.0.0.1/cb"]
[[oauth.client]]
client_id = "conf"
client_auth = "none"
redirect_uris = ["http://127.0.0.1/callback"]
[[route]]
path = "/orders"
sign_in = "main"
[[route]]
path = "/mcp"
resource = true
scopes = ["mcp:read"]
"#;

/// What the names stand for.
struct Names {
    client: String,
    code: String,
    refresh: String,
    verifier: String,
}

impl Names {
    /// `token`: the token request, which tells how long the verifier of this client is.
    fn for_client(token: &Value) -> Names {
        let length = token.as_array().expect("pairs").iter().find(|pair| pair[0] == "code_verifier");
        let length = length.and_then(|pair| length_of(pair[1].as_str()?)).expect("a verifier");
        let verifier = "aZ09-._~".chars().cycle().take(length).collect();
        Names { client: String::new(), code: String::new(), refresh: String::new(), verifier }
    }

    fn value(&self, text: &str) -> String {
        match text {
            "DCR1" => return self.client.clone(),
            "CODE1" => return self.code.clone(),
            "RT1" => return self.refresh.clone(),
            "http://GATEWAY/mcp" => return MCP.to_owned(),
            _ => {}
        }
        match length_of(text) {
            Some(_) if text.starts_with("<code_challenge:") => sealed::hash(&self.verifier),
            Some(_) if text.starts_with("<code_verifier:") => self.verifier.clone(),
            Some(length) => "s".repeat(length),
            None => text.replace("PORT1", "7777"),
        }
    }

    fn pairs(&self, recorded: &Value) -> String {
        let pairs = recorded.as_array().expect("pairs").iter();
        let pairs: Vec<(String, String)> = pairs
            .map(|pair| (pair[0].as_str().expect("a name").to_owned(), self.value(pair[1].as_str().expect("a value"))))
            .collect();
        parameters::write(pairs.iter().map(|pair| (&*pair.0, &*pair.1)))
    }
}

/// The number of characters in `<name:N>`.
fn length_of(text: &str) -> Option<usize> {
    text.strip_prefix('<')?.strip_suffix('>')?.split_once(':')?.1.parse().ok()
}

async fn post(front: &Front, path: &str, kind: &'static str, body: String) -> TestResponse {
    let client = front.gateway.client().host("app.example").header("content-type", kind);
    client.send(Method::POST, path, body.into()).await
}

#[tokio::test]
async fn every_recorded_client_gets_its_tokens() {
    const FORM: &str = "application/x-www-form-urlencoded";
    let recorded: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).expect("JSON");
    assert_eq!(recorded.len(), 13);
    let mut front = Front::with(OAUTH).await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let mut refreshed = BTreeMap::new();
    for client in &recorded {
        // Not more calls of one address than `throttle.calls` allows in a moment.
        front.gateway.clock.advance(std::time::Duration::from_mins(1));
        let name = client["client"].as_str().expect("a name");
        let mut names = Names::for_client(&client["token"]);
        if let Some(metadata) = client.get("register") {
            let metadata = metadata.to_string().replace("PORT1", "7777");
            let response = post(&front, "/oauth/register", "application/json", metadata).await;
            assert_eq!(response.status, 201, "{name}: {}", response.text());
            names.client = response.json()["client_id"].as_str().expect("a client id").to_owned();
        }
        let query = names.pairs(&client["authorize"]);
        let page = Page::of(&front.alice.navigate(&format!("{APP}/oauth/authorize?{query}")).await);
        let answer = front.decide(&page, "allow").await;
        names.code = parameter(&answer, "code").unwrap_or_else(|| panic!("{name}: no code in {answer}"));
        let response = post(&front, "/oauth/token", FORM, names.pairs(&client["token"])).await;
        assert_eq!(response.status, 200, "{name}: {}", response.text());
        let tokens = response.json();
        assert_eq!(tokens["scope"], "mcp:read", "{name}");
        assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 200, "{name}");
        names.refresh = tokens["refresh_token"].as_str().expect("a token").to_owned();
        if let Some(refresh) = client.get("refresh") {
            let response = post(&front, "/oauth/token", FORM, names.pairs(refresh)).await;
            assert_eq!(response.status, 200, "{name}: {}", response.text());
            refreshed.insert(name, front.status("/mcp", &response.json()["access_token"]).await);
        }
    }
    assert!(refreshed.len() >= 7 && refreshed.values().all(|status| *status == 200), "{refreshed:?}");
}
