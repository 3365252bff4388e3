//! The client libraries of MCP.

use serde_json::{Value, json};

use super::Site;
use crate::gateway::oauth::post;

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

/// Hostile case 90.
#[tokio::test]
async fn nothing_secret_of_a_grant_reaches_what_operators_read() {
    let site = Site::start(RESOURCE).await;
    let redirect = "http://127.0.0.1:7777/callback";
    let state = "a state that only this client has";
    let settings = json!({
        "library": "@modelcontextprotocol/client", "server": format!("{}/mcp", site.url), "redirect": redirect,
        "client": "cli", "state": state,
    });
    let found = site.run("client.mjs", &settings).await;
    assert_eq!(found["granted"], 200, "{found}");
    let secrets = found["secrets"].as_array().expect("a list");
    let secrets: Vec<&str> = secrets.iter().map(|secret| secret.as_str().expect("a text")).collect();
    let [code, sent_state, verifier, ..] = secrets[..] else { panic!("{found}") };
    assert_eq!(sent_state, state);
    // The client repeats itself, which ends the session; then it is wrong.
    let host = site.url.strip_prefix("https://").expect("a URL").to_owned();
    let wrong = format!("{}x", &verifier[1..]);
    for verifier in [verifier, &wrong] {
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("client_id", "cli"),
            ("redirect_uri", redirect),
            ("code_verifier", verifier),
        ];
        let client = site.gateway.client().host(&host).header("referer", found["url"].as_str().expect("a URL"));
        post(client, "/oauth/token", &form).await.assert_rejected(400, "invalid_grant");
    }
    for path in [format!("/oauth/{code}"), format!("/oauth/token/{}", code.replace('_', "%5f"))] {
        site.gateway.client().host(&host).get(&path).await;
        let cut = |line: &Value| line["path"].as_str().is_some_and(|path| path.ends_with("/[token]"));
        site.gateway.log_line(cut).await;
    }
    let log = site.gateway.log_line(|line| line["reason"] == "code_verifier").await;
    assert_eq!(log["client"], "127.0.0.1");
    let events = site.gateway.audit_events(7).await;
    for name in ["authorization.granted", "code.reused"] {
        assert!(events.iter().any(|event| event["event"] == name), "{name}: {events:?}");
    }
    let rejections = site.gateway.admin_client().get("/admin/v1/rejections?limit=500").await.text();
    let metrics = site.gateway.admin_client().get("/metrics").await.text();
    let file = |name: &str| std::fs::read_to_string(site.gateway.path().join(name)).expect("the file is there");
    let [log, events] = ["access.log", "audit.jsonl"].map(file);
    let messages = site.gateway.logged();
    for (place, text) in [
        ("the access log", &log),
        ("the audit log", &events),
        ("the metrics", &metrics),
        ("the rejections", &rejections),
        ("the messages", &messages),
    ] {
        assert!(!text.is_empty(), "{place}");
        for secret in secrets.iter().copied().chain([&*wrong, "bwc1_", "bwq1_", "bw-ask"]) {
            assert!(!text.contains(secret), "{secret} is in {place}:\n{text}");
        }
    }
}
