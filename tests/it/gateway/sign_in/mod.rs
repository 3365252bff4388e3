//! Sign-in for browsers at a provider.

mod attempts;
mod callbacks;
mod claims;
mod compared;
mod endpoints;
mod forms;
mod glewlwyd;
mod hanging;
mod held;
mod idle;
mod independent;
mod killed;
mod left;
pub mod liar;
mod lies;
mod lost_rights;
mod no_refresh_token;
mod pages;
mod provider;
mod rediscovered;
mod refresh;
mod reloaded;
mod renewed;
mod replicas;
mod return_to;
mod saved;
mod sealed;
mod sessions;
mod stopped;
mod streams;
mod told;
mod trials;
mod unused;
mod user_info;
mod withdrawn;

use std::net::SocketAddr;
use std::sync::Arc;

use tempfile::TempDir;

use crate::gateway::provider_events::transmitter::AUTHORIZATION;
use crate::support::clock::ManualClock;
use crate::support::secrets;
use crate::support::visitor::{APP, Visitor};
use crate::support::wait::eventually_within;
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, Upstream};

const CALLBACK: &str = "https://app.example/oauth2/callback/main";
const SIGNED_OUT: &str = "https://app.example/oauth2/signed_out";
const CLIENT: &str = "gateway";
const SECRET: &str = "of the gateway: + % &";

/// `[[provider]]` for this issuer. `more`: further keys.
fn provider(name: &str, issuer: &str, more: &str) -> String {
    format!(
        "[[provider]]\nname = \"{name}\"\nissuer = \"{issuer}\"\nclient_id = \"{CLIENT}\"\n\
         client_secret_file = \"client.secret\"\n{more}\n"
    )
}

/// One provider, and all paths need a sign-in.
fn everything(issuer: &str, more: &str) -> String {
    let route = "[[route]]\npath = \"/\"\nsign_in = \"main\"\n";
    format!("{}[sign_in]\nexternal_urls = [\"{APP}\"]\n{route}", provider("main", issuer, more))
}

/// It knows the metadata of the provider at `/`.
async fn gateway(upstream: &Upstream, more: &str) -> Gateway {
    let text = Gateway::config_text(&upstream.address.to_string(), more);
    let gateway = Gateway::in_folder(text, folder(), Arc::new(ManualClock::new()));
    is_ready(gateway.address()).await;
    gateway
}

/// The lines of the journal since `start` about a provider, of which the name must be used by one test only.
fn journal(start: usize, provider: &str) -> Vec<String> {
    let name = format!("provider=\"{provider}\"");
    let log = secrets::logged_since(start);
    log.lines().filter(|line| line.contains(&name) && line.contains(" WARN ")).map(str::to_owned).collect()
}

/// With the secrets of the client and of the event stream.
fn folder() -> Arc<TempDir> {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    for (name, content) in [("client.secret", SECRET), ("events.authorization", AUTHORIZATION)] {
        bearward::types::secret::write_private(&folder.path().join(name), content.as_bytes()).expect("written");
    }
    folder
}

/// Waits until the gateway knows the metadata of the provider at `/`.
async fn is_ready(gateway: SocketAddr) {
    eventually_within(TIMEOUT, "the metadata is known", async || {
        match Visitor::at(gateway).load(&format!("{APP}/")).await.status.as_u16() {
            302 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
}
