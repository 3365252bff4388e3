//! Clients that are not ours at the token endpoint of the gateway, with nonces.

use std::sync::Arc;

use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::{SigningKey, generate_pem};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::clients::on_time;
use crate::gateway::oauth::clients::{MachineKey, TYPE};
use crate::gateway::oauth::post;
use crate::support::clock::ManualClock;
use crate::support::oidc_provider::run_in_node;
use crate::support::prover::Prover;
use crate::support::tokens::claims_of;
use crate::support::{Client, Gateway, TokenPair, Upstream};

const ISSUER: &str = "https://gateway.example";

const CONFIG: &str = r#"
[oauth]
token_endpoint = "/oauth/token"
introspection_endpoint = "/oauth/introspect"
[[oauth.client]]
client_id = "ci"
jwks_file = "ci.json"
algorithms = ["ES256"]
scopes = ["orders:read"]
"#;

/// The gateway is at another address than its issuer says. Counts the requests that are asked to use a nonce.
const BEFORE: &str = "import { importPKCS8 } from 'jose';
    const { issuer, base, pem, kid, resource, open } = settings;
    const key = { key: await importPKCS8(pem, 'ES256'), kid };
    const asked = [];
    const at = async (url, options) => {
        const response = await fetch(String(url).replace(issuer, base), options);
        if (response.headers.has('dpop-nonce')) asked.push([new URL(url).pathname, response.status]);
        return response;
    };
";

/// Runs a script as the client `ci`, or as a public one, at a gateway that requires nonces. `public_url` is the URL
/// that the clients know.
async fn run(code: &str) -> (Value, Upstream) {
    let (upstream, folder) = (Upstream::start(), Arc::new(TempDir::new().expect("a folder")));
    let pem = generate_pem(Algorithm::ES256).expect("a key");
    let public = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("its own key");
    std::fs::write(folder.path().join("ci.json"), json!({ "keys": [public.public_jwk()] }).to_string())
        .expect("written");
    let text = Gateway::config_text(&upstream.address.to_string(), CONFIG);
    let text = text.replace("[tokens]\n", "[tokens]\nproof_nonce = \"required\"\n");
    let text = text.replacen("tls = \"off\"\n", &format!("tls = \"off\"\npublic_url = \"{ISSUER}\"\n"), 1);
    let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
    let settings = json!({
        "issuer": ISSUER, "base": format!("http://{}", gateway.address()), "kid": public.kid,
        "pem": String::from_utf8(pem.expose().to_vec()).expect("text"), "resource": "https://api.example",
        "open": gateway.issue("bob", "").await.refresh,
    });
    let code = format!("{BEFORE}{code}");
    let found = tokio::select! {
        found = run_in_node(&code, &settings) => found,
        () = on_time(&gateway) => unreachable!("it never ends"),
    };
    (found, upstream)
}

/// The client learns the algorithms from the metadata, and the first nonce from a 400 of the token endpoint and a 401
/// of a resource. Each is asked for once: both are the same.
#[tokio::test]
async fn openid_client_gets_and_uses_bound_tokens_with_nonces() {
    const CODE: &str = "import * as client from 'openid-client';
        const options = { [client.customFetch]: at, algorithm: 'oauth2' };
        const found = await client.discovery(new URL(issuer), 'ci', undefined, client.PrivateKeyJwt(key), options);
        const DPoP = client.getDPoPHandle(found, await client.randomDPoPKeyPair());
        const tokens = await client.clientCredentialsGrant(found, { resource, scope: 'orders:read' }, { DPoP });
        const again = await client.clientCredentialsGrant(found, { resource, scope: 'orders:read' }, { DPoP });
        const call = async (path, token) => (await client.fetchProtectedResource(
            found, token, new URL(issuer + path), 'GET', null, null, { DPoP })).status;
        const statuses = [];
        for (const path of ['/', '/a/b?q=1', '/%C3%BC']) statuses.push(await call(path, tokens.access_token));
        statuses.push(await call('/', again.access_token));
        const bearer = (await at(issuer, { headers: { authorization: `Bearer ${tokens.access_token}` } })).status;
        const { dpop_signing_alg_values_supported: algorithms } = found.serverMetadata();
        finish({ type: tokens.token_type, access: tokens.access_token, statuses, bearer, algorithms, asked });";
    let (found, upstream) = run(CODE).await;
    assert_eq!(found["type"].as_str().map(str::to_lowercase).as_deref(), Some("dpop"), "{found}");
    assert!(claims_of(found["access"].as_str().expect("a token"))["cnf"]["jkt"].is_string());
    assert_eq!((&found["statuses"], &found["bearer"]), (&json!([200, 200, 200, 200]), &json!(401)), "{found}");
    assert!(found["algorithms"].as_array().is_some_and(|names| names.contains(&json!("ES256"))), "{found}");
    // More often only if a step of 30 s ends meanwhile.
    let asked = found["asked"].as_array().expect("a list");
    assert_eq!(asked.first(), Some(&json!(["/oauth/token", 400])), "{found}");
    assert!(asked.len() <= 4, "{found}");
    assert!(upstream.seen().iter().all(|seen| seen.header("dpop").is_none()));
}

/// A public client: its session is not bound, and each access token is bound to the key of its refresh.
#[tokio::test]
async fn oauth4webapi_refreshes_with_proofs_and_nonces() {
    const CODE: &str = "import * as oauth from 'oauth4webapi';
        const options = { [oauth.customFetch]: at, algorithm: 'oauth2' };
        const place = new URL(issuer);
        const server = await oauth.processDiscoveryResponse(place, await oauth.discoveryRequest(place, options));
        const client = { client_id: 'app' };
        const DPoP = oauth.DPoP(client, await oauth.generateKeyPair('ES256'));
        const refreshed = async (token) => {
            const all = { ...options, DPoP };
            const send = () => oauth.refreshTokenGrantRequest(server, client, oauth.None(), token, all);
            const read = async () => oauth.processRefreshTokenResponse(server, client, await send());
            return read().catch((error) => oauth.isDPoPNonceError(error) ? read() : Promise.reject(error));
        };
        const first = await refreshed(open);
        const second = await refreshed(first.refresh_token);
        const send = () => oauth.protectedResourceRequest(
            second.access_token, 'GET', new URL(`${issuer}/a`), undefined, undefined, { ...options, DPoP });
        const again = (error) => oauth.isDPoPNonceError(error) ? send() : Promise.reject(error);
        const { status } = await send().catch(again);
        finish({ types: [first.token_type, second.token_type], status, asked });";
    let (found, _) = run(CODE).await;
    let types: Vec<_> = found["types"].as_array().expect("a list").iter().map(|name| name.as_str()).collect();
    assert!(types.iter().all(|name| name.is_some_and(|name| name.eq_ignore_ascii_case("dpop"))), "{found}");
    assert_eq!((&found["status"], &found["asked"][0]), (&json!(200), &json!(["/oauth/token", 400])), "{found}");
}

/// RFC 9449 section 5.2. A bearer token would be as good for a thief as for the client.
#[tokio::test]
async fn a_client_can_be_held_to_its_proofs() {
    let (upstream, folder, key) = (Upstream::start(), Arc::new(TempDir::new().expect("a folder")), MachineKey::new());
    std::fs::write(folder.path().join("ci.json"), key.0.jwks()).expect("written");
    let text =
        Gateway::config_text(&upstream.address.to_string(), &format!("{CONFIG}dpop_bound_access_tokens = true\n"));
    let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
    let prover = Prover::new();
    let session = gateway.request_tokens(&json!({ "sub": "alice", "clientId": "ci" })).await;
    let refresh = TokenPair::from_json(&session.json()).refresh;
    for more in [vec![], vec![("grant_type", "refresh_token"), ("refresh_token", refresh.as_str())]] {
        let ask = async |client: Client| {
            let assertion = key.assertion(gateway.now_secs());
            let mut form = vec![("client_assertion_type", TYPE), ("client_assertion", assertion.as_str())];
            form.extend(if more.is_empty() { vec![("grant_type", "client_credentials")] } else { more.clone() });
            post(client, "/oauth/token", &form).await
        };
        ask(gateway.client()).await.assert_rejected(400, "invalid_dpop_proof");
        let proof = prover.proof("POST", "http://gateway.test/oauth/token", "", gateway.now_secs());
        let granted = ask(gateway.client().header("dpop", &proof)).await;
        assert_eq!(granted.json()["token_type"], "DPoP", "{granted:?}");
        let access = granted.json()["access_token"].as_str().expect("a token").to_owned();
        assert_eq!(claims_of(&access)["cnf"]["jkt"], prover.thumbprint());
        assert_eq!(gateway.status_of(&access).await, 401);
    }
}
