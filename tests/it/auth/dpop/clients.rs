//! Clients that are not ours, with tokens of an issuer that is not ours.

use std::time::Duration;

use bearward::types::clock::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::support::oidc_provider::run_in_node;
use crate::support::{Gateway, OidcProvider, Upstream};

const API: &str = "https://api.example";

fn provider() -> OidcProvider {
    OidcProvider::start(&json!({
        "resources": { API: { "scope": "read", "accessTokenFormat": "jwt", "jwt": { "sign": { "alg": "RS256" } } } },
        "features": { "dPoP": { "enabled": true } },
        "clients": [{
            "client_id": "app", "client_secret": "of the app", "redirect_uris": [],
            "response_types": [], "grant_types": ["client_credentials"], "scope": "read",
        }],
    }))
}

/// Real clients sign with the real time, so the gateway must have it, too.
pub(super) async fn on_time(gateway: &Gateway) {
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        gateway.advance(SystemClock.now().since(gateway.clock.now()));
    }
}

/// Runs a client with a token of the provider at a gateway. Returns what it finishes with.
async fn run(code: &str) -> (Value, Upstream) {
    let (provider, upstream) = (provider(), Upstream::start());
    let issuer = format!(
        "[[issuer]]\nissuer = \"{}\"\naudience = [\"{API}\"]\nalgorithms = [\"RS256\"]\ndiscover = true\n\
         require_subject = false\n",
        provider.issuer
    );
    let text = Gateway::config_text(&upstream.address.to_string(), &issuer);
    // The clients know the gateway by its address.
    let gateway = Gateway::from_text(text.replace("[\"gateway.test\"]", "[\"127.0.0.1\"]"));
    let settings = json!({
        "issuer": provider.issuer, "id": "app", "secret": "of the app", "resource": API,
        "gateway": format!("http://{}", gateway.address()),
    });
    tokio::select! {
        found = run_in_node(code, &settings) => (found, upstream),
        () = on_time(&gateway) => unreachable!("it never ends"),
    }
}

#[tokio::test]
async fn openid_client_gets_through_with_fresh_proofs() {
    const CODE: &str = "import * as client from 'openid-client';
        const { issuer, id, secret, resource, gateway } = settings;
        const options = { execute: [client.allowInsecureRequests] };
        const found = await client.discovery(new URL(issuer), id, secret, client.ClientSecretBasic(secret), options);
        const DPoP = client.getDPoPHandle(found, await client.randomDPoPKeyPair());
        const tokens = await client.clientCredentialsGrant(found, { resource, scope: 'read' }, { DPoP });
        const call = (path, method) =>
          client.fetchProtectedResource(
            found, tokens.access_token, new URL(gateway + path), method, null, null, { DPoP });
        const statuses = [];
        for (const path of ['/', '/a/b', '/a/b?q=%20', '/%C3%BC']) statuses.push((await call(path, 'GET')).status);
        statuses.push((await call('/', 'DELETE')).status);
        const bearer = await fetch(gateway, { headers: { authorization: `Bearer ${tokens.access_token}` } });
        finish({ type: tokens.token_type, statuses, bearer: bearer.status });";
    let (found, upstream) = run(CODE).await;
    assert_eq!(found["type"].as_str().map(str::to_lowercase).as_deref(), Some("dpop"), "{found}");
    assert_eq!((&found["statuses"], &found["bearer"]), (&json!([200, 200, 200, 200, 200]), &json!(401)), "{found}");
    assert!(upstream.seen().len() == 5 && upstream.seen().iter().all(|seen| seen.header("dpop").is_none()));
}

#[tokio::test]
async fn oauth4webapi_gets_through_and_reads_the_challenge() {
    const CODE: &str = "import * as oauth from 'oauth4webapi';
        const { issuer, id, secret, resource, gateway } = settings;
        const insecure = { [oauth.allowInsecureRequests]: true };
        const url = new URL(issuer);
        const server = await oauth.processDiscoveryResponse(url, await oauth.discoveryRequest(url, insecure));
        const client = { client_id: id };
        const DPoP = oauth.DPoP(client, await oauth.generateKeyPair('ES256'));
        const response = await oauth.clientCredentialsGrantRequest(
          server, client, oauth.ClientSecretBasic(secret), { resource, scope: 'read' }, { ...insecure, DPoP });
        const tokens = await oauth.processClientCredentialsResponse(server, client, response);
        const call = (url, DPoP) =>
          oauth.protectedResourceRequest(
            tokens.access_token, 'GET', new URL(url), undefined, undefined, { ...insecure, DPoP });
        const good = await call(gateway + '/orders', DPoP);
        const other = oauth.DPoP(client, await oauth.generateKeyPair('ES256'));
        let challenges;
        try {
          await call(gateway, other);
        } catch (error) {
          challenges = error.cause;
        }
        finish({ good: good.status, challenges });";
    let (found, _) = run(CODE).await;
    assert_eq!(found["good"], 200, "{found}");
    let dpop = &found["challenges"][0];
    assert_eq!((&dpop["scheme"], &dpop["parameters"]["error"]), (&json!("dpop"), &json!("invalid_token")), "{found}");
    assert!(dpop["parameters"]["algs"].as_str().is_some_and(|algorithms| algorithms.contains("ES256")), "{found}");
}

/// npm's `dpop` signs whatever URL it gets.
#[tokio::test]
async fn a_proof_of_npm_dpop_is_good_for_its_request() {
    const CODE: &str = "import { generateKeyPair, generateProof } from 'dpop';
        import * as oauth from 'oauth4webapi';
        const { issuer, id, secret, resource, gateway } = settings;
        const statuses = {};
        for (const algorithm of ['ES256', 'RS256', 'PS256', 'Ed25519']) {
          const pair = await generateKeyPair(algorithm);
          const token = async () => {
            const proof = await generateProof(pair, issuer + '/token', 'POST');
            const body = new URLSearchParams({ grant_type: 'client_credentials', resource, scope: 'read' });
            const authorization = 'Basic ' + btoa(id + ':' + encodeURIComponent(secret).replace(/%20/g, '+'));
            const headers = { dpop: proof, authorization };
            const response = await fetch(issuer + '/token', { method: 'POST', body, headers });
            return response.json();
          };
          const { access_token, error } = await token();
          if (!access_token) {
            statuses[algorithm] = error;
            continue;
          }
          const send = async (signed, method, sent, how) => {
            const dpop = await generateProof(pair, gateway + signed, method, undefined, access_token);
            const headers = { authorization: `DPoP ${access_token}`, dpop };
            return (await fetch(gateway + sent, { method: how, headers })).status;
          };
          statuses[algorithm] = [
            await send('/a', 'GET', '/a', 'GET'),
            await send('/a', 'GET', '/a?x=1', 'GET'),
            await send('/a', 'GET', '/b', 'GET'),
            await send('/a', 'POST', '/a', 'GET'),
          ];
        }
        finish(statuses);";
    let (found, _) = run(CODE).await;
    for algorithm in ["ES256", "Ed25519"] {
        assert_eq!(found[algorithm], json!([200, 200, 401, 401]), "{found}");
    }
    // The provider does not take the others by default.
    for (algorithm, statuses) in found.as_object().expect("an object") {
        assert!(statuses.is_string() || *statuses == json!([200, 200, 401, 401]), "{algorithm}: {found}");
    }
}
