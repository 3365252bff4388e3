//! A reload that changes how a provider is discovered.

use bearward::config::{self, Probe};
use bearward::tokens::jwt::Algorithm;
use serde_json::json;

use super::{APP, everything, gateway};
use crate::support::tokens::Mint;
use crate::support::visitor::Visitor;
use crate::support::{Gateway, KeyServer, Upstream};

#[tokio::test]
async fn sign_ins_go_on_until_the_changed_provider_has_answered() {
    let upstream = Upstream::start();
    let key = Mint::new(Algorithm::ES256);
    let server = KeyServer::start(&[&key]);
    let issuer = format!("http://{}", server.address);
    let document = json!({
        "issuer": issuer, "jwks_uri": server.url("/keys"), "authorization_endpoint": server.url("/auth"),
        "token_endpoint": server.url("/token"),
    });
    server.pages().documents.push(("/.well-known/openid-configuration".to_owned(), document.to_string()));
    let gateway = gateway(&upstream, &everything(&issuer, "algorithms = [\"ES256\"]")).await;
    let mut browser = Visitor::of(&gateway);
    assert_eq!(browser.load(&format!("{APP}/")).await.status, 302);

    server.fail_with(503);
    let changed = everything(&issuer, "algorithms = [\"ES256\", \"RS256\"]");
    let text = Gateway::config_text(&upstream.address.to_string(), &changed);
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    let warnings = gateway.running().reload(config).expect("it reloads").warnings;
    assert_eq!(browser.load(&format!("{APP}/")).await.status, 302, "the known document stays");
    assert!(warnings.len() == 1 && warnings[0].starts_with(&issuer), "{warnings:?}");
}
