//! The strict clients `openid-client` and `oauth4webapi` at the gateway's own endpoints.

use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::{SigningKey, generate_pem};
use serde_json::{Value, json};

use super::{ISSUER, MachineKey, gateway};
use crate::support::oidc_provider::run_in_node;
use crate::support::tokens::claims_of;
use crate::support::{Gateway, Upstream};

/// The gateway is at another address than its issuer says.
const BEFORE: &str = "import { importPKCS8 } from 'jose';
    const { issuer, base, pem, kid, resource } = settings;
    const key = { key: await importPKCS8(pem, 'ES256'), kid };
    const at = (url, options) => fetch(String(url).replace(issuer, base), options);
";

/// A gateway with the client `ci`, and what a script needs to be that client.
fn with_client(upstream: &Upstream) -> (Gateway, Value) {
    let key = MachineKey::new();
    let gateway = gateway(upstream, &key, "");
    let pem = generate_pem(Algorithm::ES256).expect("a key");
    let public = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("its own key");
    std::fs::write(gateway.path().join("ci.json"), json!({ "keys": [public.public_jwk()] }).to_string())
        .expect("written");
    gateway.running().reload(gateway.config()).expect("reloaded");
    let pem = String::from_utf8(pem.expose().to_vec()).expect("text");
    let settings = json!({
        "issuer": ISSUER, "base": format!("http://{}", gateway.address()), "pem": pem, "kid": public.kid,
        "resource": "https://api.example",
    });
    (gateway, settings)
}

#[tokio::test]
async fn openid_client_gets_a_token_by_client_credentials() {
    const CODE: &str = "import * as client from 'openid-client';
        const options = { [client.customFetch]: at, algorithm: 'oauth2' };
        const found = await client.discovery(new URL(issuer), 'ci', undefined, client.PrivateKeyJwt(key), options);
        const tokens = await client.clientCredentialsGrant(found, { resource, scope: 'orders:read' });
        finish(tokens);";
    let upstream = Upstream::start();
    let (gateway, settings) = with_client(&upstream);
    let tokens = run_in_node(&format!("{BEFORE}{CODE}"), &settings).await;
    let access = tokens["access_token"].as_str().expect("a token");
    assert_eq!(claims_of(access)["scope"], "orders:read");
    assert_eq!(gateway.status_of(access).await, 200);
}

#[tokio::test]
async fn oauth4webapi_gets_a_token_and_revokes_it() {
    const CODE: &str = "import * as oauth from 'oauth4webapi';
        const options = { [oauth.customFetch]: at, algorithm: 'oauth2' };
        const place = new URL(issuer);
        const server = await oauth.processDiscoveryResponse(place, await oauth.discoveryRequest(place, options));
        const [client, auth] = [{ client_id: 'ci' }, oauth.PrivateKeyJwt(key)];
        const asked = await oauth.clientCredentialsGrantRequest(server, client, auth, { resource }, options);
        const tokens = await oauth.processClientCredentialsResponse(server, client, asked);
        const before = (await at(`${issuer}/`, { headers: { authorization: `Bearer ${tokens.access_token}` } })).status;
        const revoked = await oauth.revocationRequest(server, client, auth, tokens.access_token, options);
        await oauth.processRevocationResponse(revoked);
        const after = (await at(`${issuer}/`, { headers: { authorization: `Bearer ${tokens.access_token}` } })).status;
        finish({ before, after, refresh: tokens.refresh_token ?? null });";
    let upstream = Upstream::start();
    let (_gateway, settings) = with_client(&upstream);
    let found = run_in_node(&format!("{BEFORE}{CODE}"), &settings).await;
    assert_eq!(found, json!({ "before": 200, "after": 401, "refresh": null }));
}
