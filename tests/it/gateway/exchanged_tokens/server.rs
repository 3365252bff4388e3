//! The token endpoint of another server: it responds as a test says, and records the forms that it gets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bearward::protocols::http::parameters;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::secrets;

pub struct TokenServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

pub struct State {
    pub status: u16,
    /// Changes the members of a good response; `null` removes one.
    pub changes: Value,
    /// Instead of a good response.
    pub body: Option<&'static str>,
    pub delay: Duration,
    /// The forms, and the `Authorization` of each.
    pub seen: Vec<(BTreeMap<String, String>, String)>,
}

impl TokenServer {
    pub fn start() -> TokenServer {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("an address");
        socket.set_nonblocking(true).expect("nonblocking");
        let state = State { status: 200, changes: json!({}), body: None, delay: Duration::ZERO, seen: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let accepting = tokio::spawn(async move {
            let listener = TcpListener::from_std(socket).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                let state = shared.clone();
                let service = service_fn(move |request| respond(request, state.clone()));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        TokenServer { address, state, accepting }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// How often it was asked.
    pub fn count(&self) -> usize {
        self.state().seen.len()
    }
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn respond(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let authorization = request.headers().get("authorization").map(|value| value.to_str().expect("text").to_owned());
    let form = request.into_body().collect().await.expect("a body").to_bytes();
    let form = parameters::read(std::str::from_utf8(&form).expect("text")).expect("a form");
    let (status, body, delay) = {
        let mut state = state.lock().expect("no panic");
        state.seen.push((form, authorization.unwrap_or_default()));
        let token = format!("exchanged.{}", state.seen.len());
        secrets::remember(&token);
        let mut good = json!({
            "access_token": token, "token_type": "Bearer", "expires_in": 300,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        });
        let members = good.as_object_mut().expect("an object");
        members.extend(state.changes.as_object().expect("an object").clone());
        members.retain(|_, value| !value.is_null());
        (state.status, state.body.map_or_else(|| good.to_string(), str::to_owned), state.delay)
    };
    tokio::time::sleep(delay).await;
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::from(body)).expect("a response"))
}
