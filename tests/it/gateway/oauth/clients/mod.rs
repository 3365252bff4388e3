//! `[[oauth.client]]`: clients that authenticate with assertions, and the grant `client_credentials`.

mod assertions;
mod certificates;
mod credentials;
mod keys;
mod replicas;
mod strict;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bearward::tokens::jwt::{Algorithm, algorithm_name};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::post;
use crate::support::clock::ManualClock;
use crate::support::tokens::Mint;
use crate::support::{Client, Gateway, TestResponse, Upstream};

pub const TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
pub const ISSUER: &str = "https://gateway.example";

/// Endpoints, and the client `ci` with the keys in `ci.json`.
const CI: &str = r#"
[oauth]
token_endpoint = "/oauth/token"
revocation_endpoint = "/oauth/revoke"
[[oauth.client]]
client_id = "ci"
jwks_file = "ci.json"
algorithms = ["ES256"]
scopes = ["orders:read", "orders:write"]
lifetime = "5m"
"#;

/// The private key of a client.
pub struct MachineKey(pub Mint);

impl MachineKey {
    pub fn new() -> MachineKey {
        MachineKey(Mint::new(Algorithm::ES256))
    }

    pub fn claims(now: u64) -> Value {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let jti = format!("assertion-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        json!({ "iss": "ci", "sub": "ci", "aud": ISSUER, "iat": now, "exp": now + 60, "jti": jti })
    }

    /// A good assertion of the client `ci`.
    pub fn assertion(&self, now: u64) -> String {
        self.with_claims(now, json!({}))
    }

    /// With some claims changed. `null` removes a claim.
    pub fn with_claims(&self, now: u64, changes: Value) -> String {
        let mut claims = Self::claims(now);
        let members = claims.as_object_mut().expect("an object");
        for (name, value) in changes.as_object().expect("an object") {
            members.insert(name.clone(), value.clone());
        }
        members.retain(|_, value| !value.is_null());
        self.0.sign(&json!({ "alg": algorithm_name(self.0.algorithm), "kid": self.0.kid }), &claims)
    }
}

/// A gateway with the client `ci`. `more` begins in its table.
pub fn gateway(upstream: &Upstream, key: &MachineKey, more: &str) -> Gateway {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    std::fs::write(folder.path().join("ci.json"), key.0.jwks()).expect("written");
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("{CI}{more}"));
    Gateway::in_folder(text, folder, Arc::new(ManualClock::new()))
}

pub async fn granted(client: Client, assertion: &str, more: &[(&str, &str)]) -> TestResponse {
    let mut form =
        vec![("grant_type", "client_credentials"), ("client_assertion_type", TYPE), ("client_assertion", assertion)];
    form.extend(more);
    post(client, "/oauth/token", &form).await
}

#[track_caller]
pub fn access_token(response: &TestResponse) -> String {
    assert_eq!(response.status, 200, "{response:?}");
    let token = response.json()["access_token"].as_str().expect("a token").to_owned();
    crate::support::secrets::remember(&token);
    token
}
