//! `token = "exchange"`: the backend receives a token that the gateway got for the client's token at another server.

mod failures;
mod forwarded;
mod parties;
mod reloaded;
mod server;

use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use self::server::TokenServer;
use crate::support::clock::ManualClock;
use crate::support::{Gateway, Upstream};

/// A gateway that exchanges tokens for /orders and for /stock, and no others.
const ROUTES: &str = r#"
[[route]]
path = "/orders"
token = "exchange"
token_exchange = "orders"
[[route]]
path = "/stock"
token = "exchange"
token_exchange = "stock"
[[route]]
path = "/observed"
token = "exchange"
token_exchange = "orders"
enforce = false
[[route]]
path = "/"
"#;

fn exchanges(server: &TokenServer) -> String {
    let table = |name: &str, more: &str| {
        format!(
            "[[token_exchange]]\nname = \"{name}\"\ntoken_endpoint = \"http://{}/token\"\nclient_id = \"gateway\"\n\
             client_secret_file = \"client.secret\"\nclient_timeout = \"2s\"\naudience = [\"https://{name}.internal\"]\n{more}",
            server.address
        )
    };
    table("orders", "scopes = [\"orders:read\", \"orders:list\"]\n")
        + &table("stock", "subject_audience = [\"https://login.internal\"]\n")
}

fn gateway(upstream: &Upstream, server: &TokenServer, more: &str) -> Gateway {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    bearward::types::secret::write_private(&folder.path().join("client.secret"), b"of the gateway").expect("written");
    let text = format!("{}{ROUTES}{more}", exchanges(server));
    let text = Gateway::config_text(&upstream.address.to_string(), &text);
    Gateway::in_folder(text, folder, Arc::new(ManualClock::new()))
}

/// The token of the last request at the backend.
fn last_token(upstream: &Upstream) -> Option<String> {
    let seen = upstream.seen().pop().expect("a request");
    seen.header("authorization").map(|value| value.strip_prefix("Bearer ").expect("a Bearer").to_owned())
}

/// The reason in the log of the request with this path.
async fn reason(gateway: &Gateway, path: &str) -> Value {
    gateway.log_line(|line| line["path"] == path).await["reason"].clone()
}
