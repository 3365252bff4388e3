//! The introspection endpoint of a real provider.

use serde_json::Value;

use super::*;
use crate::support::OidcProvider;
use crate::support::certificates::Authority;

fn client_of(authentication: &str, more: Value) -> Value {
    let mut client = json!({
        "client_id": "gate way", "token_endpoint_auth_method": authentication, "redirect_uris": [],
        "response_types": [], "grant_types": [],
    });
    client.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    client
}

fn settings(gateway: Value) -> Value {
    let app = json!({
        "client_id": "app", "client_secret": "of the app", "redirect_uris": ["https://app.example/callback"],
        "grant_types": ["authorization_code", "refresh_token", "client_credentials"],
        "scope": "openid offline_access read",
    });
    json!({
        "accounts": { "alice": {} },
        "resources": {
            AUDIENCE: { "scope": "read", "accessTokenFormat": "opaque" },
            "https://other.example": { "scope": "read", "accessTokenFormat": "opaque" },
        },
        "clients": [gateway, app],
    })
}

fn by_secret() -> Value {
    settings(client_of("client_secret_basic", json!({ "client_secret": endpoint::CLIENT_SECRET })))
}

/// An `[[issuer]]` that asks the provider.
fn asked(provider: &OidcProvider, of_issuer: &str, more: &str) -> String {
    let issuer = &provider.issuer;
    format!(
        "[[issuer]]\nissuer = \"{issuer}\"\naudience = [\"{AUDIENCE}\"]\nmax_lifetime = \"30d\"\n{of_issuer}\n\
         [issuer.introspection]\nendpoint = \"{issuer}/token/introspection\"\nclient_id = \"gate way\"\n{more}\n"
    )
}

const BY_SECRET: &str = "client_secret_file = \"client.secret\"";

fn token_for(resource: &str) -> Value {
    json!({ "account": "alice", "client_id": "app", "scope": "read", "resource": resource })
}

#[tokio::test]
async fn an_opaque_token_of_a_provider_is_accepted_until_it_is_revoked() {
    let (provider, upstream) = (OidcProvider::start(&by_secret()), Upstream::start());
    let gateway = start(&upstream, &asked(&provider, "", BY_SECRET));
    let (access, refresh) = provider.tokens(&token_for(AUDIENCE)).await;
    assert_eq!((status(&gateway, &access).await, status(&gateway, &access).await), (200, 200));
    assert_eq!(provider.log("introspection").await.len(), 1);
    assert_eq!(upstream.seen()[0].header("x-auth-subject"), Some("alice"));
    // Active there, and no access token.
    assert_eq!(status(&gateway, &refresh).await, 401);
    assert_eq!(provider.log("introspection").await[1]["body"]["active"], true);
    // The provider knows no audience for it, or another one.
    let (unbound, _) = provider.tokens(&json!({ "account": "alice", "client_id": "app", "scope": "read" })).await;
    let (foreign, _) = provider.tokens(&token_for("https://other.example")).await;
    assert_eq!((status(&gateway, &unbound).await, status(&gateway, &foreign).await), (401, 401));
    // Within the cache a revocation at the provider is not known yet.
    provider.control("/revoke", &json!({ "token": access })).await;
    gateway.advance(MINUTE - SECOND);
    assert_eq!(status(&gateway, &access).await, 200);
    gateway.advance(SECOND);
    assert_eq!(status(&gateway, &access).await, 401);
    let log = gateway.log_text(7).await;
    assert!(![access, refresh, unbound, foreign].iter().any(|token| log.contains(token)), "{log}");
}

#[tokio::test]
async fn a_provider_accepts_each_way_of_authentication() {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    write_client_secret(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let authority = Authority::new();
    authority.sign("localhost").write(folder.path(), "server");
    authority.sign("gateway.internal").write(folder.path(), "client");
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).expect("written");
    let key = rcgen::KeyPair::generate().expect("a key");
    bearward::types::secret::write_private(&folder.path().join("assertion.key"), key.serialize_pem().as_bytes())
        .expect("written");
    let jwk = crate::support::oidc_provider::run_in_node(
        "import { importSPKI, exportJWK } from 'jose';
        const jwk = await exportJWK(await importSPKI(settings.pem, 'ES256', { extractable: true }));
        finish({ ...jwk, kid: 'of the gateway', alg: 'ES256', use: 'sig' });",
        &json!({ "pem": key.public_key_pem() }),
    )
    .await;
    let self_signed = rcgen::generate_simple_self_signed(["gateway".to_owned()]).expect("a certificate");
    std::fs::write(folder.path().join("self.pem"), self_signed.cert.pem()).expect("written");
    let self_key = self_signed.signing_key.serialize_pem();
    bearward::types::secret::write_private(&folder.path().join("self.key"), self_key.as_bytes()).expect("written");
    let certificate = crate::support::oidc_provider::run_in_node(
        "import { importX509, exportJWK } from 'jose';
        const jwk = await exportJWK(await importX509(settings.pem, 'ES256', { extractable: true }));
        const der = settings.pem.replace(/-----[^-]+-----|\\s/g, '');
        finish({ ...jwk, x5c: [der], use: 'sig' });",
        &json!({ "pem": self_signed.cert.pem() }),
    )
    .await;
    let of_own_certificate = json!({ "jwks": { "keys": [certificate] } });
    let of_assertion = json!({ "jwks": { "keys": [jwk] }, "token_endpoint_auth_signing_alg": "ES256" });
    let of_certificate = json!({ "tls_client_auth_san_dns": "gateway.internal" });
    let tls = json!({ "cert": path("server.pem"), "key": path("server.key"), "client_ca": path("ca.pem") });
    for (client, tls, keys) in [
        (
            client_of("private_key_jwt", of_assertion),
            Value::Null,
            "client_auth = \"private_key_jwt\"\n\
             assertion_key_file = \"assertion.key\"\nassertion_key_id = \"of the gateway\"",
        ),
        (
            client_of("self_signed_tls_client_auth", of_own_certificate),
            tls.clone(),
            "client_auth = \"tls_client_auth\"\n\
             client_certificate = \"self.pem\"\nclient_key = \"self.key\"\nca_file = \"ca.pem\"",
        ),
        (
            client_of("tls_client_auth", of_certificate),
            tls,
            "client_auth = \"tls_client_auth\"\n\
             client_certificate = \"client.pem\"\nclient_key = \"client.key\"\nca_file = \"ca.pem\"",
        ),
        (
            client_of("client_secret_post", json!({ "client_secret": endpoint::CLIENT_SECRET })),
            Value::Null,
            "client_auth = \"client_secret_post\"\nclient_secret_file = \"client.secret\"",
        ),
    ] {
        let mut settings = settings(client);
        settings["tls"] = tls;
        let (provider, upstream) = (OidcProvider::start(&settings), Upstream::start());
        let text = Gateway::config_text(&upstream.address.to_string(), &asked(&provider, "", keys));
        let gateway = Gateway::in_folder(text, folder.clone(), Arc::new(ManualClock::new()));
        for _ in 0..2 {
            let (access, _) = provider.tokens(&token_for(AUDIENCE)).await;
            assert_eq!(status(&gateway, &access).await, 200, "{keys}: {:?}", provider.log("introspection").await);
        }
    }
}

#[tokio::test]
async fn a_provider_that_rejects_the_gateway_ends_no_login() {
    let other = client_of("client_secret_basic", json!({ "client_secret": "another secret" }));
    let (provider, upstream) = (OidcProvider::start(&settings(other)), Upstream::start());
    let gateway = start(&upstream, &asked(&provider, "", BY_SECRET));
    let (access, _) = provider.tokens(&token_for(AUDIENCE)).await;
    assert_eq!(status(&gateway, &access).await, 503);
    assert_eq!(provider.log("introspection").await[0]["status"], 401);
    provider.control("/clients", &by_secret()["clients"][0]).await;
    assert_eq!(status(&gateway, &access).await, 200);
}

#[tokio::test]
async fn signed_answers_of_a_provider_are_verified() {
    let signed = json!({ "client_secret": endpoint::CLIENT_SECRET, "introspection_signed_response_alg": "RS256" });
    let client = client_of("client_secret_basic", signed);
    let (provider, upstream) = (OidcProvider::start(&settings(client)), Upstream::start());
    let of_issuer = "discover = true\nalgorithms = [\"RS256\"]\nrefetch_cooldown = \"1s\"";
    let more = format!("{BY_SECRET}\nresponse = \"jwt\"");
    let gateway = start(&upstream, &asked(&provider, of_issuer, &more));
    let (access, refresh) = provider.tokens(&token_for(AUDIENCE)).await;
    let (foreign, _) = provider.tokens(&token_for("https://other.example")).await;
    assert_eq!([status(&gateway, &access).await, status(&gateway, &refresh).await], [200, 401]);
    assert_eq!(status(&gateway, &foreign).await, 401, "its own audience is this client, that of the token another API");
    let answer = provider.log("introspection").await[0]["body"].as_str().expect("a JWT").to_owned();
    assert_eq!(status(&gateway, &answer).await, 401, "the answer is no access token");
    // It signs with a new key.
    provider.control("/rotate", &json!({ "keep": false })).await;
    gateway.advance(MINUTE);
    assert_eq!(status(&gateway, &access).await, 200);
}
