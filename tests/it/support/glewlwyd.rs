//! A second real OpenID provider, Debian's `glewlwyd`. It is set up as an operator does, by its REST API.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use rcgen::KeyPair;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Client;
use super::ports::free_address;
use super::wait::eventually_within;

/// The tables of an empty database, with the user `admin`.
const SCHEMA: &str = "/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3";
/// Clients have a list of where to go after a sign-out. Its page for operators says so in the same way.
const SEVERAL_TARGETS: &str = "update g_client_module_instance set gcmi_parameters = json_set(gcmi_parameters,
    '$.\"data-format\".post_logout_redirect_uris', json('{\"multiple\":true,\"read\":true,\"write\":true}'))";
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Name and password of the only user.
pub const USER: (&str, &str) = ("alice", "of alice, with 20 characters");

/// A process that ends when this is dropped.
pub struct Glewlwyd {
    process: Child,
    pub url: String,
    pub issuer: String,
    admin: Client,
    folder: TempDir,
}

/// A client, with `client_secret_post`.
pub struct Registration<'r> {
    pub client_id: &'r str,
    pub secret: &'r str,
    pub redirect_uri: &'r str,
    pub signed_out: &'r str,
    /// Where its back-channel logout goes.
    pub backchannel: &'r str,
}

impl Glewlwyd {
    /// Starts it with the plugin for OpenID Connect and one user. Its ID tokens have ES256.
    pub async fn start() -> Glewlwyd {
        let (folder, address) = (TempDir::new().expect("a folder"), free_address());
        let url = format!("http://{address}");
        let schema = std::fs::read_to_string(SCHEMA).expect("the package glewlwyd; tests/run installs it");
        let database = folder.path().join("glewlwyd.db");
        let written = Connection::open(&database).and_then(|database| {
            database.execute_batch(&schema)?;
            database.execute_batch(SEVERAL_TARGETS)
        });
        written.expect("written");
        let configuration = folder.path().join("glewlwyd.conf");
        let text = configured(&url, address.port(), &database.display().to_string());
        std::fs::write(&configuration, text).expect("written");
        let log = File::create(folder.path().join("log")).expect("created");
        let mut command = Command::new("glewlwyd");
        command.arg(format!("--config-file={}", configuration.display())).stdin(Stdio::null());
        let process = command.stdout(log.try_clone().expect("a second handle")).stderr(log).spawn();
        let process = process.expect("glewlwyd: tests/run installs it");
        let listens =
            async || tokio::net::TcpStream::connect(address).await.map(drop).map_err(|error| error.to_string());
        eventually_within(START_TIMEOUT, "glewlwyd listens", listens).await;
        let anyone = Client::http1(address).header("content-type", "application/json");
        let sign_in = json!({ "username": "admin", "password": "password" });
        let signed_in = anyone.send(Method::POST, "/api/auth/", Bytes::from(sign_in.to_string())).await;
        let cookie = signed_in.header("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a session");
        let admin = anyone.header("cookie", cookie);
        let issuer = format!("{url}/api/oidc");
        let provider = Glewlwyd { process, url, issuer, admin, folder };
        provider.call("/api/mod/plugin/", &plugin(&provider.issuer)).await;
        let (name, password) = USER;
        let scope = ["openid", "g_profile"];
        let email = "alice@ours.example";
        let user = json!({ "username": name, "password": password, "email": email, "enabled": true, "scope": scope });
        provider.call("/api/user/", &user).await;
        provider
    }

    /// Where it sends a browser that has to sign in, or to confirm.
    pub fn login_page(&self) -> String {
        format!("{}/login.html", self.url)
    }

    pub async fn register(&self, client: &Registration<'_>) {
        let client = json!({
            "client_id": client.client_id, "enabled": true, "confidential": true,
            "password": client.secret, "client_secret": client.secret,
            "token_endpoint_auth_method": ["client_secret_post"],
            "authorization_type": ["code", "refresh_token"], "scope": ["openid"],
            "redirect_uri": [client.redirect_uri], "post_logout_redirect_uris": [client.signed_out],
            "backchannel_logout_uri": client.backchannel,
        });
        self.call("/api/client/", &client).await;
    }

    async fn call(&self, path: &str, body: &Value) {
        let response = self.admin.send(Method::POST, path, Bytes::from(body.to_string())).await;
        assert_eq!(response.status, 200, "{path}: {response:?}");
    }
}

fn configured(url: &str, port: u16, database: &str) -> String {
    let modules = ["user_module", "client_module", "user_auth_scheme_module", "plugin_module"];
    let folders = ["user", "client", "scheme", "plugin"].map(|folder| format!("/usr/lib/glewlwyd/{folder}"));
    let modules = modules.iter().zip(folders).map(|(module, folder)| format!("{module}_path=\"{folder}\"\n"));
    format!(
        "port={port}\nbind_address=\"127.0.0.1\"\nexternal_url=\"{url}\"\nlogin_url=\"login.html\"\n\
         api_prefix=\"api\"\nlog_mode=\"console\"\nlog_level=\"WARNING\"\ncookie_secure=0\n\
         session_expiration=3600\nsession_key=\"GLEWLWYD2_SESSION_ID\"\nadmin_scope=\"g_admin\"\n\
         profile_scope=\"g_profile\"\nhash_algorithm=\"SHA512\"\n{}\
         database = {{ type = \"sqlite3\" path = \"{database}\" }};\n",
        modules.collect::<String>()
    )
}

/// Its JWKS leaves out the leading zeros of a coordinate, which RFC 7518 section 6.2.1.2 forbids. The gateway uses no
/// such key, so one in 128 keys would end the story.
fn key_pair() -> KeyPair {
    loop {
        let key = KeyPair::generate().expect("a key");
        let (x, y) = key.public_key_raw()[1..].split_at(32);
        if x[0] != 0 && y[0] != 0 {
            return key;
        }
    }
}

fn plugin(issuer: &str) -> Value {
    let key = key_pair();
    let parameters = json!({
        "iss": issuer, "key": key.serialize_pem(), "cert": key.public_key_pem(),
        "jwt-type": "ecdsa", "jwt-key-size": "256", "jwks-show": true, "subject-type": "public",
        "access-token-duration": 600, "refresh-token-duration": 86_400, "code-duration": 600,
        "refresh-token-rolling": true, "refresh-token-one-use": "always",
        "session-cookie-name": "OIDC_SESSION", "session-cookie-expiration": 86_400,
        "session-management-allowed": true, "back-channel-logout-allowed": true, "front-channel-logout-allowed": false,
        "auth-type-code-enabled": true, "auth-type-refresh-enabled": true, "auth-type-token-enabled": false,
        "auth-type-implicit-enabled": false, "auth-type-password-enabled": false, "auth-type-client-enabled": false,
        "auth-type-none-enabled": false, "allow-non-oidc": false, "oauth-as-iss-id": true, "pkce-allowed": true,
        "pkce-method-plain-allowed": false, "introspection-revocation-allowed": true,
        "introspection-revocation-allow-target-client": true, "email-claim": "mandatory", "name-claim": "no",
        "scope-claim": "no", "request-parameter-allow": false, "encrypt-out-token-allow": false,
    });
    json!({ "module": "oidc", "name": "oidc", "display_name": "OpenID Connect", "parameters": parameters })
}

impl Drop for Glewlwyd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("the log of glewlwyd:\n{log}");
        }
    }
}
