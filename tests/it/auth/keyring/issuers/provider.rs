//! A provider of others: discovery, its keys, and a change of keys.

use serde_json::{Value, json};

use super::{TIMEOUT, status};
use crate::support::oidc_provider::run_in_node;
use crate::support::wait::eventually_within;
use crate::support::{Gateway, OidcProvider, Upstream};

const API: &str = "https://api.example";

fn settings() -> Value {
    json!({
        "accounts": { "alice": {} },
        "resources": { API: { "scope": "read", "accessTokenFormat": "jwt", "jwt": { "sign": { "alg": "RS256" } } } },
        "clients": [{
            "client_id": "app", "client_secret": "of the app", "redirect_uris": ["https://app.example/callback"],
            "grant_types": ["authorization_code", "client_credentials"], "scope": "openid read",
        }],
    })
}

fn issuer(provider: &OidcProvider) -> String {
    let issuer = &provider.issuer;
    format!("[[issuer]]\nissuer = \"{issuer}\"\naudience = [\"{API}\"]\nalgorithms = [\"RS256\"]\ndiscover = true\n")
}

#[tokio::test]
async fn tokens_of_a_discovered_provider_are_accepted() {
    let (provider, upstream) = (OidcProvider::start(&settings()), Upstream::start());
    let gateway = Gateway::with_config(&upstream, &issuer(&provider));
    let request = json!({ "account": "alice", "client_id": "app", "scope": "read", "resource": API });
    let (access, _) = provider.tokens(&request).await;
    assert_eq!(status(&gateway, &access).await, 200);
    assert_eq!(upstream.only_request().header("x-auth-subject"), Some("alice"));
    assert_eq!(provider.log("jwks").await.len(), 1);
    // A refresh token of this provider is no JWT.
    let (_, refresh) = provider.tokens(&request).await;
    assert_eq!(status(&gateway, &refresh).await, 401);
    // It signs with a new key, and does not publish the earlier one any more.
    provider.control("/rotate", &json!({ "keep": false })).await;
    eventually_within(TIMEOUT, "the new key is accepted", async || {
        let (access, _) = provider.tokens(&request).await;
        match status(&gateway, &access).await {
            200 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_token_that_a_strict_client_got_is_accepted() {
    const CODE: &str = "import * as client from 'openid-client';
        const { issuer, id, secret, resource } = settings;
        const options = { execute: [client.allowInsecureRequests] };
        const found = await client.discovery(new URL(issuer), id, secret, client.ClientSecretBasic(secret), options);
        const tokens = await client.clientCredentialsGrant(found, { resource, scope: 'read' });
        finish(tokens);";
    let (provider, upstream) = (OidcProvider::start(&settings()), Upstream::start());
    let gateway = Gateway::with_config(&upstream, &issuer(&provider));
    let client = json!({ "issuer": provider.issuer, "id": "app", "secret": "of the app", "resource": API });
    let tokens = run_in_node(CODE, &client).await;
    assert_eq!(status(&gateway, tokens["access_token"].as_str().expect("a token")).await, 200);
}
