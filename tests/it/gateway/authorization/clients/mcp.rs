//! The client libraries of MCP.

use serde_json::json;

use super::Site;

const RESOURCE: &str = "registration = [\"loopback\"]\n[[oauth.scope]]\nname = \"mcp\"\n\
    [[oauth.client]]\nclient_id = \"cli\"\nclient_auth = \"none\"\nredirect_uris = [\"http://127.0.0.1/callback\"]\n\
    [[route]]\npath = \"/mcp\"\nresource = true\nscopes = [\"mcp\"]\n";

/// Registered by the operator, and by themselves: discovery, grant, call, refresh, call.
async fn all_steps(library: &str) {
    let site = Site::start(RESOURCE).await;
    for client in [None, Some("cli")] {
        let settings = json!({
            "library": library, "server": format!("{}/mcp", site.url), "redirect": "http://127.0.0.1:7777/callback",
            "client": client,
        });
        let found = site.run("client.mjs", &settings).await;
        assert_eq!(found["before"]["status"], 401, "{found}");
        assert_eq!(found["steps"], json!(["REDIRECT", "AUTHORIZED", "AUTHORIZED"]), "{found}");
        assert_eq!((&found["granted"], &found["refreshed"]), (&json!(200), &json!(200)), "{found}");
        assert_eq!((&found["isNew"], &found["scope"]), (&json!(true), &json!("mcp")), "{found}");
        let asked = found["asked"].as_array().expect("a list");
        let registered = asked.iter().any(|call| call == "POST /oauth/register 201");
        assert_eq!(registered, client.is_none(), "{found}");
        let url = found["url"].as_str().expect("a URL");
        assert!(!url.contains("offline_access"), "clients ask for it only if the metadata list it: {url}");
    }
}

#[tokio::test]
async fn the_typescript_client_goes_all_steps() {
    all_steps("@modelcontextprotocol/client").await;
}

#[tokio::test]
async fn the_older_typescript_sdk_goes_all_steps() {
    all_steps("@modelcontextprotocol/sdk/client/auth.js").await;
}
