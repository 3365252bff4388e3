//! Login capture: the backend logs a user in and names the subject in a response header. The gateway adds tokens.

mod cookie;
mod guesses;
mod headers;
mod responses;
mod tokens;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::support::{Gateway, ScriptedBackend, TestResponse, TokenPair};

const ROUTES: &str = r#"
[[route]]
path = "/login"
public = true
login = true
[[route]]
path = "/public/"
public = true
[[route]]
path = "/"
"#;

fn gateway(backend: SocketAddr, more: &str) -> Gateway {
    Gateway::from_text(Gateway::config_text(&backend.to_string(), &format!("{ROUTES}\n{more}")))
}

/// A backend that sends the same response to each request. Also returns the heads of the requests.
fn backend(response: impl Into<Vec<u8>>) -> (ScriptedBackend, Arc<Mutex<Vec<String>>>) {
    let (response, heads): (Arc<[u8]>, Arc<Mutex<Vec<String>>>) = (response.into().into(), Arc::default());
    let recorded = heads.clone();
    let scripted = ScriptedBackend::start(move |mut wire, _| {
        let (response, recorded) = (response.clone(), recorded.clone());
        async move {
            while let Some(head) = wire.try_read_until("\r\n\r\n").await {
                recorded.lock().expect("unpoisoned").push(head.to_lowercase());
                wire.send(&response).await;
            }
        }
    });
    (scripted, heads)
}

/// A response with these header lines and this body, and a Content-Length.
fn response_text(status: &str, head: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{head}content-length: {}\r\n\r\n{body}", body.len())
}

const JSON: &str = "content-type: application/json\r\n";
const ALICE: &str = "x-bearward-subject: alice\r\n";

async fn log_in(gateway: &Gateway) -> TestResponse {
    gateway.client().post("/login", &json!({ "password": "right" })).await
}

/// Number of sessions of a subject in the admin API.
async fn session_count(gateway: &Gateway, subject: &str) -> usize {
    let response = gateway.admin_client().get(&format!("/admin/v1/subjects/{subject}/tokens")).await;
    response.json()["tokens"].as_array().expect("a list").len()
}
