//! Tokens of the provider that no session gets are revoked there.

use std::time::Duration;

use serde_json::{Value, json};

use super::refresh::{KEYS, refreshes, signed_in};
use super::{APP, everything, gateway, provider};
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_ok;
use crate::support::{OidcProvider, Upstream};

/// The only token that was revoked.
pub(super) async fn revoked(provider: &OidcProvider) -> Value {
    eventually_ok("a token is revoked", async || match provider.log("revocation").await.as_slice() {
        [call] if call["status"] == 200 => Ok(call["params"]["token"].clone()),
        calls => Err(format!("{calls:?}")),
    })
    .await
}

#[tokio::test]
async fn the_tokens_of_a_user_who_may_not_sign_in_are_revoked() {
    for (keys, token) in [(KEYS, "refresh_token"), ("scopes = [\"openid\", \"email\"]", "access_token")] {
        let (provider, upstream) = (provider::start(json!({ "account": "bob" })), Upstream::start());
        let keys = format!("{keys}\nemail_domains = [\"ours.example\"]");
        let gateway = gateway(&upstream, &everything(&provider.issuer, &keys)).await;
        let mut bob = Visitor::of(&gateway);
        assert_eq!(bob.navigate(&format!("{APP}/")).await.status, 403);
        let issued = provider.log("token").await.remove(0)["body"][token].clone();
        assert!(issued.is_string(), "{token}");
        assert_eq!(revoked(&provider).await, issued);
    }
}

/// With the refresh token that came last: the others are spent.
#[tokio::test]
async fn the_tokens_of_a_user_who_may_not_go_on_are_revoked() {
    let (provider, _upstream, gateway, mut alice) = signed_in("email_domains = [\"ours.example\"]").await;
    let claims = json!({ "email": "a@other.example", "email_verified": true });
    provider.control("/accounts", &json!({ "name": "alice", "claims": claims })).await;
    gateway.advance(Duration::from_secs(700));
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    let newest = refreshes(&provider).await.remove(0)["body"]["refresh_token"].clone();
    assert_eq!(revoked(&provider).await, newest);
}
