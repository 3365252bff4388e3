//! Certificate-bound tokens with clients and an issuer that are not ours: `oidc-provider`, `openid-client`,
//! `oauth4webapi` and curl.

use std::process::Command;
use std::sync::Arc;

use bearward::types::clock::{Clock, SystemClock};
use rcgen::SanType;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::certificate_bound::thumbprint;
use crate::support::certificates::{Authority, Signed};
use crate::support::clock::ManualClock;
use crate::support::oidc_provider::run_in_node;
use crate::support::tokens::claims_of;
use crate::support::{Gateway, OidcProvider, Upstream};

const API: &str = "https://api.example";
/// Where the metadata say that clients are asked for certificates.
const ALIAS: &str = "https://mtls.example:8444";

/// `fetch` with a client certificate, which that of Node cannot show.
const FETCH: &str = "import { readFileSync } from 'node:fs';
    import https from 'node:https';
    const files = settings.files;
    const [cert, key, other, otherKey, ca] = files.map((file) => readFileSync(file));
    const own = { cert, key };
    const fetchWith = (shown) => (url, { method, headers, body } = {}) => new Promise((resolve, reject) => {
      const options = { method, headers: Object.fromEntries(new Headers(headers)), ca, ...shown };
      const request = https.request(url, options, (response) => {
        const chunks = [];
        response.on('data', (chunk) => chunks.push(chunk));
        response.on('end', () => {
          const headers = Object.entries(response.headers).map(([name, value]) => [name, [value].flat().join(', ')]);
          resolve(new Response(Buffer.concat(chunks), { status: response.statusCode, headers }));
        });
      });
      request.on('error', reject);
      request.end(body instanceof URLSearchParams ? String(body) : body);
    });
";

/// The certificate of the client, another one, and the files of both.
struct Certificates {
    folder: Arc<TempDir>,
    client: Signed,
}

impl Certificates {
    fn new(authority: &Authority) -> Certificates {
        let folder = Arc::new(TempDir::new().expect("a folder"));
        let name = |name: &str| SanType::DnsName(name.try_into().expect("text"));
        let [client, other] = ["orders.internal", "other.internal"]
            .map(|dns| authority.client(|params| params.subject_alt_names = vec![name(dns)]));
        client.write(folder.path(), "client");
        other.write(folder.path(), "other");
        authority.sign("localhost").write(folder.path(), "server");
        std::fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
        Certificates { folder, client }
    }

    /// A gateway with the certificate `server`, that asks for those of the authority.
    fn gateway(&self, upstream: &Upstream, more: &str) -> Gateway {
        let tls = "tls = { certificate = \"server.pem\", key = \"server.key\" }\nclient_certificate = \"optional\"\n\
                   client_ca = \"clients.pem\"";
        let text = Gateway::config_text(&upstream.address.to_string(), more);
        let text = text.replacen("tls = \"self-signed\"", tls, 1);
        Gateway::in_folder(text, self.folder.clone(), Arc::new(ManualClock::new()))
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn files(&self) -> Value {
        json!(["client.pem", "client.key", "other.pem", "other.key", "clients.pem"].map(|name| self.file(name)))
    }

    fn hash(&self) -> String {
        thumbprint(&self.client.certificate())
    }
}

#[tokio::test]
async fn a_bound_token_of_oidc_provider_is_good_beside_its_certificate() {
    const CODE: &str = "import * as client from 'openid-client';
        const { issuer, resource, gateway } = settings;
        const options = { [client.customFetch]: fetchWith(own) };
        const found = await client.discovery(new URL(issuer), 'app', undefined, client.TlsClientAuth(), options);
        const tokens = await client.clientCredentialsGrant(found, { resource, scope: 'read' });
        const call = (path) =>
          client.fetchProtectedResource(found, tokens.access_token, new URL(gateway + path), 'GET', null, null);
        const with_own = [(await call('/a')).status, (await call('/a')).status];
        const headers = { authorization: `Bearer ${tokens.access_token}` };
        const as = async (shown) => (await fetchWith(shown)(gateway, { headers })).status;
        const others = [await as({ cert: other, key: otherKey }), await as({}), await as(own)];
        finish({ token: tokens.access_token, type: tokens.token_type, with_own, others });";
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let certificates = Certificates::new(&authority);
    let provider = OidcProvider::start(&json!({
        "tls": {
            "cert": certificates.file("server.pem"), "key": certificates.file("server.key"),
            "client_ca": certificates.file("clients.pem"),
        },
        "resources": { API: { "scope": "read", "accessTokenFormat": "jwt", "jwt": { "sign": { "alg": "RS256" } } } },
        "clients": [{
            "client_id": "app", "token_endpoint_auth_method": "tls_client_auth",
            "tls_client_auth_san_dns": "orders.internal", "tls_client_certificate_bound_access_tokens": true,
            "redirect_uris": [], "response_types": [], "grant_types": ["client_credentials"], "scope": "read",
        }],
    }));
    let issuer = format!(
        "[[issuer]]\nissuer = \"{}\"\naudience = [\"{API}\"]\nalgorithms = [\"RS256\"]\ndiscover = true\n\
         ca_file = \"clients.pem\"\nrequire_subject = false\n",
        provider.issuer
    );
    let gateway = certificates.gateway(&upstream, &issuer);
    // The provider signs with the real time.
    gateway.advance(SystemClock.now().since(gateway.clock.now()));
    let settings = json!({
        "issuer": provider.issuer, "resource": API, "files": certificates.files(),
        "gateway": format!("https://localhost:{}", gateway.tls_address().port()),
    });
    let found = run_in_node(&format!("{FETCH}{CODE}"), &settings).await;
    let token = found["token"].as_str().expect("a token");
    assert_eq!(claims_of(token)["cnf"], json!({ "x5t#S256": certificates.hash() }), "oidc-provider has bound it");
    assert_eq!((&found["with_own"], &found["others"]), (&json!([200, 200]), &json!([401, 401, 200])), "{found}");
    assert_eq!(upstream.seen().len(), 3);
}

/// A gateway with a token endpoint that takes the certificate of the client `orders`.
fn issuing(certificates: &Certificates, upstream: &Upstream) -> Gateway {
    let more = format!(
        "[oauth]\ntoken_endpoint = \"/oauth/token\"\nrevocation_endpoint = \"/oauth/revoke\"\nmtls_url = \"{ALIAS}\"\n\
         [[oauth.client]]\nclient_id = \"orders\"\nclient_auth = \"tls_client_auth\"\n\
         certificate_name = \"dns:orders.internal\"\nscopes = [\"stock:read\"]\n"
    );
    certificates.gateway(upstream, &more)
}

fn settings_of(certificates: &Certificates, gateway: &Gateway) -> Value {
    json!({
        "files": certificates.files(), "alias": ALIAS, "issuer": "https://gateway.example",
        "base": format!("http://{}", gateway.address()),
        "mtls": format!("https://localhost:{}", gateway.tls_address().port()),
    })
}

#[tokio::test]
async fn openid_client_authenticates_with_its_certificate_at_the_alias() {
    const CODE: &str = "import * as client from 'openid-client';
        const { issuer, base, alias, mtls } = settings;
        const called = [];
        const at = (shown) => (url, options) => {
          const text = String(url);
          called.push(text);
          return text.startsWith(alias)
            ? fetchWith(shown)(text.replace(alias, mtls), options)
            : fetch(text.replace(issuer, base), options);
        };
        const as = (shown) => client.discovery(
          new URL(issuer), 'orders', { use_mtls_endpoint_aliases: true }, client.TlsClientAuth(),
          { [client.customFetch]: at(shown), algorithm: 'oauth2' });
        const tokens = await client.clientCredentialsGrant(await as(own), { scope: 'stock:read' });
        const headers = { authorization: `Bearer ${tokens.access_token}` };
        const status = async (shown) => (await fetchWith(shown)(mtls, { headers })).status;
        const statuses = [await status(own), await status({}), await status({ cert: other, key: otherKey })];
        const stranger = await client.clientCredentialsGrant(await as({ cert: other, key: otherKey }), {})
          .catch((error) => error.error ?? error.cause?.[0]?.parameters?.error ?? String(error.cause ?? error));
        await client.tokenRevocation(await as(own), tokens.access_token);
        finish({ token: tokens.access_token, statuses, stranger, after: await status(own), called });";
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let certificates = Certificates::new(&authority);
    let gateway = issuing(&certificates, &upstream);
    let found = run_in_node(&format!("{FETCH}{CODE}"), &settings_of(&certificates, &gateway)).await;
    let claims = claims_of(found["token"].as_str().expect("a token"));
    assert_eq!((&claims["sub"], &claims["scope"]), (&json!("client|orders"), &json!("stock:read")));
    assert_eq!(claims["cnf"], json!({ "x5t#S256": certificates.hash() }));
    assert_eq!((&found["statuses"], &found["after"]), (&json!([200, 401, 401]), &json!(401)), "{found}");
    assert_eq!(found["stranger"], "invalid_client");
    let called = found["called"].as_array().expect("a list");
    assert!(called.contains(&json!(format!("{ALIAS}/oauth/token"))), "{called:?}");
    assert!(called.contains(&json!(format!("{ALIAS}/oauth/revoke"))), "{called:?}");
}

#[tokio::test]
async fn oauth4webapi_authenticates_with_its_certificate() {
    const CODE: &str = "import * as oauth from 'oauth4webapi';
        const { issuer, base, alias, mtls } = settings;
        const at = (url, options) => {
          const text = String(url);
          return text.startsWith(alias)
            ? fetchWith(own)(text.replace(alias, mtls), options)
            : fetch(text.replace(issuer, base), options);
        };
        const options = { [oauth.customFetch]: at, algorithm: 'oauth2' };
        const place = new URL(issuer);
        const server = await oauth.processDiscoveryResponse(place, await oauth.discoveryRequest(place, options));
        const client = { client_id: 'orders', use_mtls_endpoint_aliases: true };
        const asked = await oauth.clientCredentialsGrantRequest(server, client, oauth.TlsClientAuth(), {}, options);
        const tokens = await oauth.processClientCredentialsResponse(server, client, asked);
        finish({ tokens, bound: server.tls_client_certificate_bound_access_tokens });";
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let certificates = Certificates::new(&authority);
    let gateway = issuing(&certificates, &upstream);
    let found = run_in_node(&format!("{FETCH}{CODE}"), &settings_of(&certificates, &gateway)).await;
    let access = found["tokens"]["access_token"].as_str().expect("a token");
    assert_eq!(claims_of(access)["cnf"]["x5t#S256"], certificates.hash());
    assert_eq!(found["bound"], true);
}

/// As `deploy/client-certificates.md` shows it.
#[tokio::test]
async fn curl_gets_a_bound_token_and_uses_it() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let certificates = Certificates::new(&authority);
    let gateway = issuing(&certificates, &upstream);
    let curl = |who: Option<&str>, more: &[&str], path: &str| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert", &certificates.file("clients.pem"), "-w", " %{http_code}"]).args(more);
        if let Some(who) = who {
            let [certificate, key] = ["pem", "key"].map(|kind| certificates.file(&format!("{who}.{kind}")));
            command.args(["--cert", &certificate, "--key", &key]);
        }
        let url = format!("https://localhost:{}{path}", gateway.tls_address().port());
        let output = command.arg(url).output().expect("curl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let form = ["-d", "grant_type=client_credentials", "-d", "client_id=orders"];
    let granted = curl(Some("client"), &form, "/oauth/token");
    let (body, status) = granted.rsplit_once(' ').expect("a status");
    assert_eq!(status, "200", "{body}");
    let granted: Value = serde_json::from_str(body).expect("JSON");
    let token = granted["access_token"].as_str().expect("a token");
    crate::support::secrets::remember(token);
    for who in [Some("other"), None] {
        assert!(curl(who, &form, "/oauth/token").ends_with(" 401"), "{who:?}");
    }
    let header = format!("Authorization: Bearer {token}");
    for version in ["--http1.1", "--http2", "--tlsv1.3"] {
        for (who, expected) in [(Some("client"), " 200"), (Some("other"), " 401"), (None, " 401")] {
            let found = curl(who, &[version, "-H", &header], "/");
            assert!(found.ends_with(expected), "{version} {who:?}: {found}");
        }
    }
    assert_eq!(upstream.seen().len(), 3);
}
