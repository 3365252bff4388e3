//! A transmitter of security events: it signs them, and offers them to be polled (RFC 8936).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Signer, changed};
use crate::support::Gateway;

pub const AUDIENCE: &str = "https://gateway.example/events";
pub const AUTHORIZATION: &str = "Bearer 0123456789abcdef0123456789abcdef";
pub const SESSION_REVOKED: &str = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";

/// Another one each time.
pub fn new_jti() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("jti {}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// `[[event_stream]]` of this transmitter: its configuration names its keys. Its access tokens are accepted.
pub fn sections(signer: &Signer, more: &str) -> String {
    let issuer = signer.issuer();
    signer.server.publish_discovery("/.well-known/ssf-configuration", &issuer);
    format!(
        "{}\n[[event_stream]]\nname = \"corp\"\nissuer = \"{issuer}\"\naudience = \"{AUDIENCE}\"\n\
         algorithms = [\"ES256\"]\nauthorization_file = \"events.authorization\"\n{more}\n",
        signer.issuer_section(),
    )
}

/// A gateway with the sections of [`sections`] and their secret.
pub fn gateway(upstream: &crate::support::Upstream, sections: &str) -> Gateway {
    use std::os::unix::fs::PermissionsExt;
    let folder = Arc::new(tempfile::TempDir::new().expect("a folder"));
    let file = folder.path().join("events.authorization");
    std::fs::write(&file, format!("{AUTHORIZATION}\n")).expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("private");
    let text = Gateway::config_text(&upstream.address.to_string(), sections);
    Gateway::in_folder(text, folder, Arc::new(crate::support::clock::ManualClock::new()))
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

/// Offers events at `/poll`.
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
    state: Arc<Mutex<PollState>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let authorization = authorization.unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let asked: Value = serde_json::from_slice(&body).expect("JSON");
    let mut state = state.lock().expect("unpoisoned");
    state.requests.push(asked.clone());
    state.authorizations.push(authorization);
    if let Some(status) = state.status {
        return Ok(Response::builder().status(status).body(Full::default()).expect("a response"));
    }
    for jti in asked["ack"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        state.events.remove(jti);
    }
    for jti in asked["setErrs"].as_object().into_iter().flatten().map(|(jti, _)| jti) {
        state.events.remove(jti);
    }
    let response = json!({ "sets": state.events, "moreAvailable": false });
    Ok(Response::new(Full::new(Bytes::from(response.to_string()))))
}
