//! Tokens of npm's `oidc-provider`, exchanged by the strict clients `openid-client` and `oauth4webapi`.

use std::sync::Arc;

use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::{SigningKey, generate_pem};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ACCESS_TOKEN, GRANT, ID_TOKEN, SHOP};
use crate::support::clock::ManualClock;
use crate::support::oidc_provider::run_in_node;
use crate::support::tokens::claims_of;
use crate::support::{Gateway, OidcProvider, Upstream};

/// The client of the gateway has the name `ci` there, and `app` at the provider.
const BEFORE: &str = "import { importPKCS8 } from 'jose';
    const { issuer, base, pem, kid, subject, kind, grant, foreign, redirect } = settings;
    const key = { key: await importPKCS8(pem, 'ES256'), kid };
    const at = (url, options) => fetch(String(url).replace(issuer, base), options);
";

fn provider() -> OidcProvider {
    OidcProvider::start(&json!({
        "account": "alice",
        "accounts": { "alice": { "email": "alice@shop.example" } },
        "resources": { SHOP: { "scope": "read", "accessTokenFormat": "jwt", "jwt": { "sign": { "alg": "RS256" } } } },
        "clients": [{
            "client_id": "app", "client_secret": "of the app", "redirect_uris": ["https://app.example/callback"],
            "grant_types": ["authorization_code"], "scope": "openid email read",
        }],
    }))
}

/// A gateway with the client `ci`, which exchanges tokens of the provider. `audience`: that of the rule.
fn gateway(upstream: &Upstream, provider: &OidcProvider, rule: &str) -> (Gateway, Value) {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    let pem = generate_pem(Algorithm::ES256).expect("a key");
    let public = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("its own key");
    let keys = json!({ "keys": [public.public_jwk()] }).to_string();
    std::fs::write(folder.path().join("ci.json"), keys).expect("written");
    let issuer = &provider.issuer;
    let more = format!(
        "[[issuer]]\nissuer = \"{issuer}\"\naudience = [\"https://api.example\"]\nalgorithms = [\"RS256\"]\n\
         discover = true\n[oauth]\ntoken_endpoint = \"/oauth/token\"\n[[oauth.client]]\nclient_id = \"ci\"\n\
         jwks_file = \"ci.json\"\nalgorithms = [\"ES256\"]\n[[oauth.exchange]]\nissuer = \"{issuer}\"\n\
         clients = [\"ci\"]\nsubject_prefix = \"login|\"\n{rule}"
    );
    let text = Gateway::config_text(&upstream.address.to_string(), &more);
    let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
    let settings = json!({
        "issuer": "https://gateway.example", "base": format!("http://{}", gateway.address()), "grant": GRANT,
        "pem": String::from_utf8(pem.expose().to_vec()).expect("text"), "kid": public.kid, "foreign": issuer,
        "redirect": "https://app.example/callback",
    });
    (gateway, settings)
}

#[tokio::test]
async fn an_access_token_of_a_provider_is_exchanged() {
    const CODE: &str = "import * as client from 'openid-client';
        const options = { [client.customFetch]: at, algorithm: 'oauth2' };
        const found = await client.discovery(new URL(issuer), 'ci', undefined, client.PrivateKeyJwt(key), options);
        const asked = { subject_token: subject, subject_token_type: kind, scope: 'read' };
        finish(await client.genericGrantRequest(found, grant, asked));";
    let (provider, upstream) = (provider(), Upstream::start());
    let rule = format!("audience = [\"{SHOP}\"]\nscopes = [\"read\", \"write\"]\n");
    let (gateway, mut settings) = gateway(&upstream, &provider, &rule);
    let asked = json!({ "account": "alice", "client_id": "app", "scope": "read", "resource": SHOP });
    let (subject, _) = provider.tokens(&asked).await;
    (settings["subject"], settings["kind"]) = (json!(subject), json!(ACCESS_TOKEN));
    let tokens = run_in_node(&format!("{BEFORE}{CODE}"), &settings).await;
    assert_eq!((&tokens["issued_token_type"], &tokens["scope"]), (&json!(ACCESS_TOKEN), &json!("read")));
    let access = tokens["access_token"].as_str().expect("a token");
    assert_eq!(claims_of(access)["sub"], "login|alice");
    assert_eq!(gateway.status_of(access).await, 200);
}

/// The whole way: a user signs in at the provider, the app gets an ID token, and exchanges it here.
#[tokio::test]
async fn an_id_token_of_a_provider_is_exchanged_by_its_client() {
    const CODE: &str = "import * as oauth from 'oauth4webapi';
        const insecure = { [oauth.allowInsecureRequests]: true };
        const place = new URL(foreign);
        const login = await oauth.processDiscoveryResponse(place, await oauth.discoveryRequest(place, insecure));
        const app = { client_id: 'app' };
        const verifier = oauth.generateRandomCodeVerifier();
        const challenge = await oauth.calculatePKCECodeChallenge(verifier);
        let next = new URL(login.authorization_endpoint);
        next.search = new URLSearchParams({ client_id: 'app', response_type: 'code', redirect_uri: redirect,
            scope: 'openid', code_challenge: challenge, code_challenge_method: 'S256', state: 's' });
        const cookies = new Map();
        while (!next.href.startsWith(redirect)) {
            const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
            const response = await fetch(next, { redirect: 'manual', headers: { cookie } });
            for (const line of response.headers.getSetCookie()) {
                const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
                cookies.set(name, value);
            }
            next = new URL(response.headers.get('location'), next);
        }
        const params = oauth.validateAuthResponse(login, app, next, 's');
        const auth = oauth.ClientSecretBasic('of the app');
        const sent = await oauth.authorizationCodeGrantRequest(login, app, auth, params, redirect, verifier, insecure);
        const first = await oauth.processAuthorizationCodeResponse(login, app, sent);
        const here = { [oauth.customFetch]: at, algorithm: 'oauth2' };
        const home = new URL(issuer);
        const server = await oauth.processDiscoveryResponse(home, await oauth.discoveryRequest(home, here));
        const exchange = async (token, kind) => {
            const asked = new URLSearchParams({ subject_token: token, subject_token_type: kind });
            const client = { client_id: 'ci' };
            return oauth.genericTokenEndpointRequest(server, client, oauth.PrivateKeyJwt(key), grant, asked, here);
        };
        const good = await exchange(first.id_token, kind);
        const tokens = await oauth.processGenericTokenEndpointResponse(server, { client_id: 'ci' }, good);
        const other = await exchange(first.access_token, kind);
        finish({ tokens, other: [other.status, (await other.json()).error] });";
    let (provider, upstream) = (provider(), Upstream::start());
    let rule = "token_types = [\"id_token\"]\naudience = [\"app\"]\nrefresh_token = true\n";
    let (gateway, mut settings) = gateway(&upstream, &provider, rule);
    settings["kind"] = json!(ID_TOKEN);
    let found = run_in_node(&format!("{BEFORE}{CODE}"), &settings).await;
    let access = found["tokens"]["access_token"].as_str().expect("a token");
    assert_eq!(claims_of(access)["sub"], "login|alice");
    assert!(found["tokens"]["refresh_token"].is_string());
    assert_eq!(gateway.status_of(access).await, 200);
    assert_eq!(found["other"], json!([400, "invalid_request"]), "an opaque access token is no ID token");
}
