//! `[[oauth.exchange]]`: tokens of another issuer that become tokens of the gateway (RFC 8693).

mod issued;
mod origins;
mod provider;
mod replicas;
mod subjects;

use std::sync::Arc;

use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::clients::{MachineKey, TYPE};
use super::post;
use crate::support::clock::ManualClock;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Gateway, TestResponse, Upstream};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const SHOP: &str = "https://shop.example";

/// Endpoints, an issuer, and a client without tokens of its own.
const PARTIES: &str = r#"
[[issuer]]
issuer = "https://login.example"
audience = ["https://api.example"]
jwks_file = "login.json"
algorithms = ["ES256"]
[oauth]
token_endpoint = "/oauth/token"
revocation_endpoint = "/oauth/revoke"
[[oauth.client]]
client_id = "ci"
jwks_file = "ci.json"
algorithms = ["ES256"]
client_credentials = false
"#;

/// The rule for tokens of the shop.
const RULE: &str = r#"
[[oauth.exchange]]
issuer = "https://login.example"
clients = ["ci"]
audience = ["https://shop.example"]
subject_prefix = "login|"
scopes = ["a", "c"]
"#;

/// An issuer, a client, and a gateway that knows both.
struct Parties {
    login: Mint,
    client: MachineKey,
    gateway: Gateway,
}

impl Parties {
    /// `more` begins in the rule, or is another one.
    fn start(upstream: &Upstream, more: &str) -> Parties {
        Self::with(upstream, &format!("{RULE}{more}"))
    }

    /// With these rules.
    fn with(upstream: &Upstream, rules: &str) -> Parties {
        let (login, client) = (Mint::new(Algorithm::ES256), MachineKey::new());
        let folder = Arc::new(TempDir::new().expect("a folder"));
        write_keys(&folder, &login, &client);
        let text = Gateway::config_text(&upstream.address.to_string(), &format!("{PARTIES}{rules}"));
        Parties { gateway: Gateway::in_folder(text, folder, Arc::new(ManualClock::new())), login, client }
    }

    fn now(&self) -> u64 {
        self.gateway.now_secs()
    }

    /// A token for the shop, with some claims changed.
    fn subject(&self, changes: Value) -> String {
        let mut all = json!({ "aud": SHOP, "jti": null });
        for (name, value) in changes.as_object().expect("an object") {
            all[name] = value.clone();
        }
        self.login.with_claims(self.now(), all)
    }

    /// The client exchanges this token.
    async fn exchange(&self, subject: &str, more: &[(&str, &str)]) -> TestResponse {
        self.exchange_as(ACCESS_TOKEN, subject, more).await
    }

    async fn exchange_as(&self, kind: &str, subject: &str, more: &[(&str, &str)]) -> TestResponse {
        let assertion = self.client.assertion(self.now());
        exchange_by(&self.gateway, kind, subject, Some(&assertion), more).await
    }
}

fn write_keys(folder: &TempDir, login: &Mint, client: &MachineKey) {
    for (name, keys) in [("login.json", login.jwks()), ("ci.json", client.0.jwks())] {
        std::fs::write(folder.path().join(name), keys).expect("written");
    }
}

async fn exchange_by(
    gateway: &Gateway,
    kind: &str,
    subject: &str,
    assertion: Option<&str>,
    more: &[(&str, &str)],
) -> TestResponse {
    let mut form = vec![("grant_type", GRANT), ("subject_token_type", kind), ("subject_token", subject)];
    if let Some(assertion) = assertion {
        form.extend([("client_assertion_type", TYPE), ("client_assertion", assertion)]);
    }
    form.extend(more);
    post(gateway.client(), "/oauth/token", &form).await
}

#[track_caller]
fn access_token(response: &TestResponse) -> String {
    super::clients::access_token(response)
}

/// `POST /admin/v1/revocations`
async fn revoke(gateway: &Gateway, what: Value) {
    let mut what = what;
    what["issuer"] = json!(EXTERNAL_ISSUER);
    let response = gateway.admin_client().post("/admin/v1/revocations", &what).await;
    assert_eq!(response.status, 200, "{response:?}");
}
