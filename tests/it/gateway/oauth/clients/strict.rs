//! The strict clients `openid-client` and `oauth4webapi` at the gateway's own endpoints.

use std::sync::Arc;

use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::{SigningKey, generate_pem};
use bearward::types::secret;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{CI, ISSUER};
use crate::support::clock::ManualClock;
use crate::support::oidc_provider::run_in_node;
use crate::support::tokens::claims_of;
use crate::support::{Gateway, TokenPair, Upstream};

/// Of the resource server. It has characters that a client must encode (RFC 6749 section 2.3.1).
const SECRET: &str = "0123456789+abcdefghijklmnop:qrstuv%=";

/// The gateway is at another address than its issuer says.
const BEFORE: &str = "import { importPKCS8 } from 'jose';
    const { issuer, base, pem, kid, resource, refresh, secret, open } = settings;
    const key = { key: await importPKCS8(pem, 'ES256'), kid };
    const at = (url, options) => fetch(String(url).replace(issuer, base), options);
";

/// A gateway with the client `ci` and the resource server `orders`, and what a script needs to be both.
async fn with_client(upstream: &Upstream) -> (Gateway, Value) {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    let pem = generate_pem(Algorithm::ES256).expect("a key");
    let public = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("its own key");
    std::fs::write(folder.path().join("ci.json"), json!({ "keys": [public.public_jwk()] }).to_string())
        .expect("written");
    secret::write_private(&folder.path().join("orders.secret"), SECRET.as_bytes()).expect("written");
    let more = CI.replace("[oauth]\n", "[oauth]\nintrospection_endpoint = \"/oauth/introspect\"\n")
        + "[[oauth.resource_server]]\nclient_id = \"orders\"\nsecret_file = \"orders.secret\"\n";
    let text = Gateway::config_text(&upstream.address.to_string(), &more);
    let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "clientId": "ci" })).await;
    let settings = json!({
        "issuer": ISSUER, "base": format!("http://{}", gateway.address()), "kid": public.kid,
        "pem": String::from_utf8(pem.expose().to_vec()).expect("text"), "resource": "https://api.example",
        "refresh": TokenPair::from_json(&issued.json()).refresh, "secret": SECRET,
        "open": gateway.issue("bob", "").await.refresh,
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
    let (gateway, settings) = with_client(&upstream).await;
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
    let (_gateway, settings) = with_client(&upstream).await;
    let found = run_in_node(&format!("{BEFORE}{CODE}"), &settings).await;
    assert_eq!(found, json!({ "before": 200, "after": 401, "refresh": null }));
}

#[tokio::test]
async fn openid_client_refreshes_introspects_and_revokes() {
    const CODE: &str = "import * as client from 'openid-client';
        const options = { [client.customFetch]: at, algorithm: 'oauth2' };
        const as = (id, auth) => client.discovery(new URL(issuer), id, undefined, auth, options);
        const ci = await as('ci', client.PrivateKeyJwt(key));
        const orders = await as('orders', client.ClientSecretBasic(secret));
        const renewed = await client.refreshTokenGrant(ci, refresh);
        const tokens = [renewed.access_token, renewed.refresh_token];
        const asked = () => Promise.all(tokens.map((token) => client.tokenIntrospection(orders, token)));
        const before = await asked();
        await client.tokenRevocation(ci, renewed.refresh_token);
        const after = await asked();
        const again = await client.refreshTokenGrant(ci, renewed.refresh_token).catch((error) => error.error);
        finish({ before: before.map(({ active, sub, client_id }) => [active, sub, client_id]), after, again });";
    let upstream = Upstream::start();
    let (_gateway, settings) = with_client(&upstream).await;
    let found = run_in_node(&format!("{BEFORE}{CODE}"), &settings).await;
    assert_eq!(found["before"], json!([[true, "alice", "ci"], [true, "alice", "ci"]]));
    assert_eq!(found["after"], json!([{ "active": false }, { "active": false }]));
    assert_eq!(found["again"], "invalid_grant");
}

/// A session of a registered client needs its assertion, and one that names no client needs none.
#[tokio::test]
async fn oauth4webapi_refreshes_and_introspects_as_a_registered_and_as_a_public_client() {
    const CODE: &str = "import * as oauth from 'oauth4webapi';
        const options = { [oauth.customFetch]: at, algorithm: 'oauth2' };
        const place = new URL(issuer);
        const server = await oauth.processDiscoveryResponse(place, await oauth.discoveryRequest(place, options));
        const refreshed = async (id, auth, token) => {
            const client = { client_id: id };
            const response = await oauth.refreshTokenGrantRequest(server, client, auth, token, options);
            return oauth.processRefreshTokenResponse(server, client, response);
        };
        const own = await refreshed('ci', oauth.PrivateKeyJwt(key), refresh);
        const ofPublic = await refreshed('app', oauth.None(), open);
        const stolen = await refreshed('app', oauth.None(), own.refresh_token).catch((error) => error.error);
        const orders = { client_id: 'orders' };
        const subject = async ({ access_token }) => {
            const auth = oauth.ClientSecretBasic(secret);
            const asked = await oauth.introspectionRequest(server, orders, auth, access_token, options);
            return (await oauth.processIntrospectionResponse(server, orders, asked)).sub;
        };
        finish({ stolen, subjects: [await subject(own), await subject(ofPublic)] });";
    let upstream = Upstream::start();
    let (_gateway, settings) = with_client(&upstream).await;
    let found = run_in_node(&format!("{BEFORE}{CODE}"), &settings).await;
    assert_eq!(found, json!({ "stolen": "invalid_grant", "subjects": ["alice", "bob"] }));
}
