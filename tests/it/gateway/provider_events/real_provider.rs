//! npm's `oidc-provider`: an administrator ends a session there, and an open WebSocket behind the gateway closes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::gateway::streams::{assert_open, close_frame, open, revoked, within_a_second};
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, OidcProvider, Upstream};

const API: &str = "https://api.example";
const CALLBACK: &str = "https://app.example/callback";

fn client(gateway: Option<&Gateway>, names_session: bool) -> Value {
    let mut client = json!({
        "client_id": "app", "client_secret": "of the app", "redirect_uris": [CALLBACK],
        "grant_types": ["authorization_code"], "scope": "openid read",
    });
    if let Some(gateway) = gateway {
        let uri = format!("http://{}/oauth2/backchannel_logout/corp", gateway.address());
        client["backchannel_logout_uri"] = uri.into();
        client["backchannel_logout_session_required"] = names_session.into();
    }
    client
}

fn provider() -> OidcProvider {
    OidcProvider::start(&json!({
        "account": "alice", "accounts": { "alice": {}, "bob": {} }, "pkce_required": false,
        "resources": { API: { "scope": "read", "accessTokenFormat": "jwt", "jwt": { "sign": { "alg": "RS256" } } } },
        "clients": [client(None, false)],
    }))
}

/// A gateway that accepts the provider's access tokens and is registered for its logout tokens. It signs in no user.
async fn gateway(provider: &OidcProvider, upstream: &Upstream, more: &str) -> Gateway {
    let issuer = &provider.issuer;
    let gateway = Gateway::with_config(
        upstream,
        &format!(
            "[[issuer]]\nissuer = \"{issuer}\"\naudience = [\"{API}\"]\nalgorithms = [\"RS256\"]\ndiscover = true\n\
             [[provider]]\nname = \"corp\"\nissuer = \"{issuer}\"\nclient_id = \"app\"\nclient_auth = \"none\"\n{more}\n"
        ),
    );
    provider.control("/clients", &client(Some(&gateway), !more.is_empty())).await;
    // The keys of the provider come by a task.
    eventually_ok("the provider was asked for its keys twice", async || match provider.log("jwks").await.len() {
        2.. => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
    gateway
}

/// Signs in as a browser does, and returns the access token.
async fn sign_in(provider: &OidcProvider) -> String {
    let host = provider.issuer.strip_prefix("http://").expect("http");
    let browser = Client::http1(provider.address).host(host);
    let mut cookies = BTreeMap::<String, String>::new();
    let mut path = format!(
        "/auth?response_type=code&client_id=app&redirect_uri={CALLBACK}&scope=openid%20read&resource={API}&state=s"
    );
    let code = loop {
        let cookie = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ");
        let response = browser.clone().header("cookie", &cookie).get(&path).await;
        for cookie in response.headers.get_all("set-cookie") {
            let pair = cookie.to_str().expect("text").split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').expect("a cookie");
            cookies.insert(name.to_owned(), value.to_owned());
        }
        let location = response.header("location").unwrap_or_else(|| panic!("no redirect: {response:?}")).to_owned();
        if let Some(answer) = location.strip_prefix(CALLBACK) {
            let code = answer.trim_start_matches('?').split('&').find_map(|pair| pair.strip_prefix("code="));
            break code.unwrap_or_else(|| panic!("no code: {location}")).to_owned();
        }
        path = location.strip_prefix(&provider.issuer).unwrap_or(&location).to_owned();
    };
    let form = format!("grant_type=authorization_code&code={code}&redirect_uri={CALLBACK}&resource={API}");
    let credentials = STANDARD.encode("app:of+the+app");
    let client = browser.header("authorization", &format!("Basic {credentials}"));
    let client = client.header("content-type", "application/x-www-form-urlencoded");
    let tokens = client.send(Method::POST, "/token", Bytes::from(form)).await.json();
    tokens["access_token"].as_str().unwrap_or_else(|| panic!("no token: {tokens}")).to_owned()
}

async fn assert_logout_closes(more: &str) {
    let (provider, upstream) = (provider(), Upstream::start());
    let gateway = gateway(&provider, &upstream, more).await;
    let alice = sign_in(&provider).await;
    let mut socket = open(&gateway, &alice).await;
    assert_open(&mut socket).await;
    provider.control("/account", &json!({ "account": "bob" })).await;
    let mut of_bob = open(&gateway, &sign_in(&provider).await).await;
    // An administrator ends the session. The call returns when the gateway has confirmed it.
    within_a_second(async {
        provider.control("/end", &json!({ "account": "alice" })).await;
        assert_eq!(close_frame(&mut socket).await, revoked());
    })
    .await;
    let told = provider.log("backchannel").await;
    assert_eq!((told.len(), &told[0]["result"]), (1, &json!("ok")), "{told:?}");
    assert_eq!(gateway.status_of(&alice).await, 401);
    assert_open(&mut of_bob).await;
}

#[tokio::test]
async fn a_session_that_ends_at_a_real_provider_ends_here() {
    assert_logout_closes("").await;
}

/// The logout token names the session, and the access tokens do not.
#[tokio::test]
async fn a_real_logout_with_a_sid_ends_the_user_by_option() {
    assert_logout_closes("logout_ends = \"subject\"").await;
}
