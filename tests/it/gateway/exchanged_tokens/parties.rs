//! Two gateways: one exchanges the tokens of its callers at the token endpoint of the other.

use std::sync::Arc;

use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::{SigningKey, generate_pem};
use serde_json::json;
use tempfile::TempDir;

use super::last_token;
use crate::support::clock::ManualClock;
use crate::support::tokens::claims_of;
use crate::support::{Gateway, Upstream};

const OTHER: &str = "https://other.example";

#[tokio::test]
async fn a_gateway_exchanges_tokens_at_another_gateway() {
    let (upstream, behind) = (Upstream::start(), Upstream::start());
    let clock = Arc::new(ManualClock::new());
    let folders = [0, 1].map(|_| Arc::new(TempDir::new().expect("a folder")));
    let pem = generate_pem(Algorithm::ES256).expect("a key");
    let public = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("its own key");
    bearward::types::secret::write_private(&folders[0].path().join("client.key"), pem.expose()).expect("written");
    let keys = json!({ "keys": [public.public_jwk()] }).to_string();
    std::fs::write(folders[1].path().join("gateway.json"), keys).expect("written");
    // The ports of both are not known before they run.
    let first =
        Gateway::in_folder(Gateway::config_text(&upstream.address.to_string(), ""), folders[0].clone(), clock.clone());
    let published = first.client().get("/.well-known/jwks.json").await.text();
    std::fs::write(folders[1].path().join("issuer.json"), published).expect("written");
    let rules = "[[issuer]]\nissuer = \"https://gateway.example\"\naudience = [\"https://unused.example\"]\n\
        jwks_file = \"issuer.json\"\nalgorithms = [\"ES256\"]\n[oauth]\ntoken_endpoint = \"/oauth/token\"\n\
        [[oauth.client]]\nclient_id = \"gateway\"\njwks_file = \"gateway.json\"\nalgorithms = [\"ES256\"]\n\
        client_credentials = false\n[[oauth.exchange]]\nissuer = \"https://gateway.example\"\n\
        clients = [\"gateway\"]\naudience = [\"https://exchange.example\"]\nsubject_prefix = \"first|\"\n\
        scopes = [\"orders:read\"]\n";
    let text = Gateway::config_text(&behind.address.to_string(), rules);
    let text = text.replace(
        "issuer = \"https://gateway.example\"\naudience = [\"https://api.example\"]",
        &format!("issuer = \"{OTHER}\"\naudience = [\"https://orders.internal\"]"),
    );
    let second = Gateway::in_folder(text, folders[1].clone(), clock);
    let exchange = format!(
        "[[token_exchange]]\nname = \"second\"\ntoken_endpoint = \"http://{}/oauth/token\"\nissuer = \"{OTHER}\"\n\
         client_id = \"gateway\"\nclient_auth = \"private_key_jwt\"\nassertion_key_file = \"client.key\"\n\
         audience = [\"https://orders.internal\"]\nsubject_audience = [\"https://exchange.example\"]\n\
         [[route]]\npath = \"/\"\ntoken = \"exchange\"\ntoken_exchange = \"second\"\n",
        second.address()
    );
    let first = first.restart_with(|text| text + &exchange);
    let pair = first.issue("alice", "orders:read admin").await;
    assert_eq!(first.client().bearer(&pair.access).get("/").await.status, 200);
    let token = last_token(&upstream).expect("a token");
    let claims = claims_of(&token);
    assert_eq!(
        (&claims["iss"], &claims["sub"], &claims["scope"]),
        (&json!(OTHER), &json!("first|alice"), &json!("orders:read"),)
    );
    assert_eq!(second.client().bearer(&token).get("/").await.status, 200, "the second gateway accepts it");
    assert_eq!(behind.only_request().header("x-auth-subject"), Some("first|alice"));
    assert_eq!(first.client().bearer(&token).get("/").await.status, 401, "the first one does not");
}
