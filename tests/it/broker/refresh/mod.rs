//! `POST /user/refresh`: its requests and responses, and the rotation table.

mod bearer;
mod crowd;
mod request;
mod response;
mod rotation;
mod time;

use std::time::Duration;

use serde_json::Value;

use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Starts a gateway with more settings in `[tokens]`.
fn gateway_with_tokens(upstream: &Upstream, keys: &str) -> Gateway {
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    Gateway::from_text(text.replace("[tokens]\n", &format!("[tokens]\n{keys}\n")))
}

/// Refreshes with both tokens of a pair. Returns the next pair.
async fn refreshed(gateway: &Gateway, pair: &TokenPair) -> TokenPair {
    pair_of(&gateway.refresh(&pair.access, &pair.refresh).await)
}

#[track_caller]
fn pair_of(response: &TestResponse) -> TokenPair {
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.header("cache-control"), Some("no-store"), "{response:?}");
    TokenPair::from_json(&response.json())
}

/// The entry of the family in the admin API.
async fn listed(gateway: &Gateway, pair: &TokenPair, subject: &str) -> Value {
    let response = gateway.admin_client().get(&format!("/admin/v1/subjects/{subject}/tokens")).await;
    let tokens = response.json()["tokens"].as_array().expect("a list").clone();
    tokens.into_iter().find(|token| token["tokenId"] == pair.token_id).expect("the family is listed")
}
