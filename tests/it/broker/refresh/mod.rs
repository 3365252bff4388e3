//! `POST /user/refresh`: what it answers, what it asks for, and every row of the rotation table.

mod answer;
mod bearer;
mod crowd;
mod request;
mod rotation;

use std::time::Duration;

use serde_json::Value;

use crate::support::{Answer, Gateway, Pair, Upstream};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const MILLISECOND: Duration = Duration::from_millis(1);

/// With more keys in `[tokens]`.
fn gateway_with_tokens(upstream: &Upstream, keys: &str) -> Gateway {
    let text = Gateway::text(&upstream.address.to_string(), "");
    Gateway::from_text(text.replace("[tokens]\n", &format!("[tokens]\n{keys}\n")))
}

/// Refreshes a pair with itself, and expects the next one.
async fn refreshed(gateway: &Gateway, pair: &Pair) -> Pair {
    pair_of(&gateway.refresh(&pair.access, &pair.refresh).await)
}

#[track_caller]
fn pair_of(answer: &Answer) -> Pair {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    Pair::of(&answer.json())
}

/// The family as the admin API lists it.
async fn listed(gateway: &Gateway, pair: &Pair, subject: &str) -> Value {
    let answer = gateway.admin_client().get(&format!("/admin/v1/subjects/{subject}/tokens")).await;
    let tokens = answer.json()["tokens"].as_array().expect("a list").clone();
    tokens.into_iter().find(|token| token["tokenId"] == pair.token_id).expect("the family is listed")
}
