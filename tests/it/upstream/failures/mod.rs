//! Failures of backends. The client gets a matching response, and the log has the reason.

mod bodies;
mod broken_off;
mod http2;
mod no_response;
mod points;
mod tls;
mod unprocessed;
mod uploads;

use serde_json::Value;

use crate::support::Gateway;

/// Returns the only line of the log: its status, its reason, and whether the response was sent completely.
async fn logged(gateway: &Gateway) -> (u64, String, bool) {
    let line = gateway.log_lines(1).await.remove(0);
    let reason = line["reason"].as_str().unwrap_or_default().to_owned();
    (line["status"].as_u64().expect("a number"), reason, line["complete"] != Value::Bool(false))
}

fn log_entry(status: u64, reason: &str, complete: bool) -> (u64, String, bool) {
    (status, reason.to_owned(), complete)
}
