//! A transmitter of security events: it signs them, and offers them to be polled (RFC 8936).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use super::{Signer, changed};
use crate::support::Gateway;

pub const AUDIENCE: &str = "https://gateway.example/events";
pub const AUTHORIZATION: &str = "Bearer 0123456789abcdef0123456789abcdef";
pub const CLIENT_SECRET: &str = "of the client: + % &";
pub const SESSION_REVOKED: &str = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";

/// Another one each time.
pub fn new_jti() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("jti {}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// `[[event_stream]]` of this transmitter: its configuration names its keys. Its access tokens are accepted.
pub fn sections(signer: &Signer, more: &str) -> String {
    sections_without_authorization(signer, &format!("authorization_file = \"events.authorization\"\n{more}"))
}

pub fn sections_without_authorization(signer: &Signer, more: &str) -> String {
    let issuer = signer.issuer();
    signer.server.publish_discovery("/.well-known/ssf-configuration", &issuer);
    format!(
        "{}\n[[event_stream]]\nname = \"corp\"\nissuer = \"{issuer}\"\naudience = \"{AUDIENCE}\"\n\
         algorithms = [\"ES256\"]\n{more}\n",
        signer.issuer_section(),
    )
}

/// A gateway with the sections of [`sections`] and their secret.
pub fn gateway(upstream: &crate::support::Upstream, sections: &str) -> Gateway {
    let folder = Arc::new(folder());
    let text = Gateway::config_text(&upstream.address.to_string(), sections);
    Gateway::in_folder(text, folder, Arc::new(crate::support::clock::ManualClock::new()))
}

/// With the secrets of [`sections`] and of [`Poll::client_section`].
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().expect("a folder");
    for (name, content) in [("events.authorization", AUTHORIZATION), ("client.secret", CLIENT_SECRET)] {
        bearward::types::secret::write_private(&folder.path().join(name), content.as_bytes()).expect("written");
    }
    folder
}

/// The claims of an event about this user and session.
pub fn claims(signer: &Signer, gateway: &Gateway, subject: &Value) -> Value {
    json!({
        "iss": signer.issuer(), "aud": AUDIENCE, "iat": gateway.now_secs(), "jti": new_jti(), "sub_id": subject,
        "events": { SESSION_REVOKED: { "event_timestamp": gateway.now_secs() } },
    })
}

pub fn event(signer: &Signer, gateway: &Gateway, subject: &Value, changes: &Value) -> String {
    signer.sign("secevent+jwt", &changed(claims(signer, gateway, subject), changes))
}

pub fn user(signer: &Signer, name: &str) -> Value {
    json!({ "format": "iss_sub", "iss": signer.issuer(), "sub": name })
}

pub fn session(id: &str) -> Value {
    json!({ "format": "opaque", "id": id })
}

/// Offers events at `/poll`, requests for verifications at `/verify`, and access tokens at `/token`.
pub struct Poll {
    pub address: SocketAddr,
    state: Arc<Mutex<PollState>>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

#[derive(Default)]
pub struct PollState {
    /// Events that were not answered, by `jti`.
    pub events: BTreeMap<String, String>,
    /// The body of each request.
    pub requests: Vec<Value>,
    /// `Authorization` of each request.
    pub authorizations: Vec<String>,
    /// The status of each response.
    pub status: Option<u16>,
    /// No request with an acknowledgement is read.
    pub deaf_to_acks: bool,
    /// It offers each event again and again.
    pub keeps_events: bool,
    /// It responds to a poll when there is an event.
    pub is_long: bool,
    /// If true, there are always more events.
    pub has_more: bool,
    /// How many new events without a signature each response has.
    pub garbage: usize,
    /// The body of each request for a verification.
    pub verifications: Vec<Value>,
    /// The body and `Authorization` of each request for a token. The token number n is `token-n`.
    pub tokens: Vec<(String, String)>,
    /// `expires_in` of each token, instead of 600.
    pub expires_in: Option<Value>,
    /// The only token that is accepted. `None`: any `Authorization` is.
    pub accepts: Option<String>,
}

impl Poll {
    pub fn start() -> Poll {
        let state = Arc::<Mutex<PollState>>::default();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("an address");
        socket.set_nonblocking(true).expect("nonblocking");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let served = state.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(socket).expect("a listener");
                tokio::select! { _ = stopped => {}, () = accept(listener, served) => {} }
            });
        });
        Poll { address, state, _stop: stop }
    }

    pub fn section(&self) -> String {
        format!("poll_url = \"http://{}/poll\"\npoll_interval = \"1s\"", self.address)
    }

    /// `[event_stream.client]`, which gets tokens here.
    pub fn client_section(&self) -> String {
        format!(
            "[event_stream.client]\ntoken_endpoint = \"http://{}/token\"\nclient_id = \"gate:way\"\n\
             client_secret_file = \"client.secret\"\n",
            self.address
        )
    }

    pub fn state(&self) -> MutexGuard<'_, PollState> {
        self.state.lock().expect("unpoisoned")
    }

    pub fn offer(&self, jti: &str, token: String) {
        self.state().events.insert(jti.to_owned(), token);
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<PollState>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        let service = service_fn(move |request| respond(request, state.clone()));
        tokio::spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    shared: Arc<Mutex<PollState>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let authorization = authorization.unwrap_or_default().to_owned();
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let answered = answer_at_once(&mut shared.lock().expect("unpoisoned"), &path, authorization, &body);
    if let Some(response) = answered {
        return Ok(response);
    }
    while shared.lock().is_ok_and(|state| state.is_long && state.events.is_empty()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let state = shared.lock().expect("unpoisoned");
    let response = json!({ "sets": state.events, "moreAvailable": state.has_more });
    Ok(Response::new(Full::new(Bytes::from(response.to_string()))))
}

/// `None` for a poll, which may wait for events.
fn answer_at_once(
    state: &mut PollState,
    path: &str,
    authorization: String,
    body: &Bytes,
) -> Option<Response<Full<Bytes>>> {
    let empty = |status: u16| Some(Response::builder().status(status).body(Full::default()).expect("a response"));
    if path == "/token" {
        state.tokens.push((String::from_utf8(body.to_vec()).expect("text"), authorization));
        let token = format!("token-{}", state.tokens.len());
        let expires_in = state.expires_in.clone().unwrap_or(json!(600));
        let response = json!({ "access_token": token, "token_type": "Bearer", "expires_in": expires_in });
        let response = Response::builder().header("content-type", "application/json").body(response.to_string().into());
        return Some(response.expect("a response"));
    }
    if state.accepts.as_ref().is_some_and(|accepted| authorization != format!("Bearer {accepted}")) {
        return empty(401);
    }
    let asked: Value = serde_json::from_slice(body).expect("JSON");
    if path == "/verify" {
        state.verifications.push(asked);
        return empty(204);
    }
    if state.deaf_to_acks && asked["ack"] != json!([]) {
        return empty(503);
    }
    state.requests.push(asked.clone());
    state.authorizations.push(authorization);
    if let Some(status) = state.status {
        return empty(status);
    }
    if state.garbage > 0 {
        let sets: Map<_, _> = (0..state.garbage).map(|_| (new_jti(), json!("garbage"))).collect();
        return Some(Response::new(Full::new(Bytes::from(json!({ "sets": sets }).to_string()))));
    }
    if state.keeps_events {
        let response = json!({ "sets": state.events, "moreAvailable": true });
        return Some(Response::new(Full::new(Bytes::from(response.to_string()))));
    }
    for jti in asked["ack"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        state.events.remove(jti);
    }
    for jti in asked["setErrs"].as_object().into_iter().flatten().map(|(jti, _)| jti) {
        state.events.remove(jti);
    }
    None
}
