//! An authority in front of Pebble: it passes requests on, and can be away, answer wrongly, and offer renewal
//! information, which the Pebble of Debian does not.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::support::certificates::Authority;
use crate::support::pebble::Pebble;

/// Pebble's path of challenges.
pub(super) const CHALLENGE: &str = "/chalZ/";

/// What is wrong with the answer to requests of which the path begins with `.0`.
pub(super) type Wrong = (&'static str, fn(Response<Bytes>) -> Response<Bytes>);

/// What the test decides, and what the authority has seen.
#[derive(Default)]
pub(super) struct State {
    pub(super) away: AtomicBool,
    /// `suggestedWindow` of all certificates.
    pub(super) window: Mutex<Option<[String; 2]>>,
    /// The authority confirms `replaces` (RFC 9773 section 5).
    pub(super) confirms: AtomicBool,
    pub(super) wrong: Mutex<Option<Wrong>>,
    /// Requests with such a path get no answer. Those to the challenges do not reach Pebble.
    pub(super) silent: Mutex<Option<&'static str>>,
    /// How many of the next requests with such a path get `badNonce`.
    pub(super) bad_nonces: Mutex<Option<(&'static str, u32)>>,
    /// The URLs of accounts from which everything is rejected.
    pub(super) deactivated: Mutex<Vec<String>>,
    /// Whether a deactivated account can still be found by its key.
    pub(super) finds_deactivated: AtomicBool,
    /// The payloads of new orders.
    orders: Mutex<Vec<Value>>,
    /// The accounts of new orders.
    accounts: Mutex<Vec<Value>>,
    /// The certificates of which renewal information was asked for.
    asked: Mutex<Vec<String>>,
    pub(super) silenced: AtomicU64,
}

impl State {
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("unpoisoned").clone()
    }

    pub(super) fn accounts(&self) -> Vec<Value> {
        self.accounts.lock().expect("unpoisoned").clone()
    }

    /// Returns true for the next requests that get `badNonce`.
    fn takes_bad_nonce(&self, path: &str) -> bool {
        let mut wanted = self.bad_nonces.lock().expect("unpoisoned");
        let Some((_, left)) = wanted.as_mut().filter(|(prefix, left)| path.starts_with(*prefix) && *left > 0) else {
            return false;
        };
        *left -= 1;
        true
    }

    fn is_deactivated(&self, account: Option<&str>) -> bool {
        let deactivated = self.deactivated.lock().expect("unpoisoned");
        account.is_some_and(|account| deactivated.iter().any(|url| url == account))
    }

    pub(super) fn orders(&self) -> Vec<Value> {
        self.orders.lock().expect("unpoisoned").clone()
    }
}

/// It ends with the runtime of the test.
pub(super) struct Front {
    pub(super) address: SocketAddr,
    pub(super) state: Arc<State>,
    authority: Authority,
    tls_port: u16,
    backend: Arc<Mutex<Arc<Backend>>>,
    pebble: Pebble,
}

impl Front {
    /// Names are validated at `tls_port`.
    pub(super) async fn start(tls_port: u16) -> Front {
        let (pebble, authority) = (Pebble::start(tls_port), Authority::new());
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (address, acceptor) = (socket.local_addr().expect("an address"), authority.server("localhost"));
        let backend = Arc::new(Mutex::new(Arc::new(Backend::of(&pebble))));
        let current = backend.clone();
        let state = Arc::<State>::default();
        let seen = state.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = socket.accept().await.expect("accepts");
                let backend = current.lock().expect("unpoisoned").clone();
                let (acceptor, state) = (acceptor.clone(), seen.clone());
                tokio::spawn(async move {
                    if state.away.load(Ordering::SeqCst) {
                        return;
                    }
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| {
                        let (backend, state) = (backend.clone(), state.clone());
                        async move { Ok::<_, Infallible>(respond(&backend, &state, request).await.map(Full::new)) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Front { address, state, authority, tls_port, backend, pebble }
    }

    /// From now on, the authority knows no account, order or certificate of before.
    pub(super) fn forget_all(&mut self) {
        self.pebble = Pebble::start(self.tls_port);
        *self.backend.lock().expect("unpoisoned") = Arc::new(Backend::of(&self.pebble));
    }

    /// `[acme]`. Writes the certificate of this authority into the folder.
    pub(super) fn settings(&self, folder: &std::path::Path) -> String {
        std::fs::write(folder.join("directory-ca.pem"), self.authority.pem()).expect("written");
        let port = self.address.port();
        // The stories poll a listener that has no certificate yet.
        let limits = "[limits]\nfailed_handshakes = 0\n";
        format!("{limits}[acme]\ndirectory = \"https://localhost:{port}/dir\"\ndirectory_ca = \"directory-ca.pem\"\n")
    }

    pub(super) fn set_away(&self, away: bool) {
        self.state.away.store(away, Ordering::SeqCst);
    }

    pub(super) fn set_wrong(&self, wrong: Option<Wrong>) {
        *self.state.wrong.lock().expect("unpoisoned") = wrong;
    }

    /// The window for renewals, in seconds since 1970.
    pub(super) fn suggest(&self, from: u64, to: u64) {
        let time = |seconds| bearward::types::clock::UnixTime::from_secs(seconds).to_string();
        *self.state.window.lock().expect("unpoisoned") = Some([time(from), time(to)]);
    }
}

struct Backend {
    address: SocketAddr,
    tls: TlsConnector,
}

impl Backend {
    fn of(pebble: &Pebble) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(pebble.authority.certificate()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
        Backend { address: pebble.address, tls: TlsConnector::from(Arc::new(config)) }
    }

    /// With the `Host` of the client, so that all URLs of the answer lead here.
    async fn send(&self, request: Request<Full<Bytes>>) -> Response<Bytes> {
        let stream = TcpStream::connect(self.address).await.expect("Pebble listens");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = self.tls.connect(name, stream).await.expect("TLS");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await.expect("a response").into_parts();
        Response::from_parts(head, body.collect().await.expect("a body").to_bytes())
    }
}

async fn respond(backend: &Backend, state: &State, request: Request<Incoming>) -> Response<Bytes> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let path = head.uri.path().to_owned();
    let host = head.headers[header::HOST].to_str().expect("ASCII").to_owned();
    let is_silent = state.silent.lock().expect("unpoisoned").is_some_and(|silent| path.starts_with(silent));
    if is_silent && path.starts_with(CHALLENGE) {
        be_silent(state).await;
    }
    if state.takes_bad_nonce(&path) {
        return problem(StatusCode::BAD_REQUEST, "badNonce");
    }
    if state.is_deactivated(part_of(&body, "protected")["kid"].as_str()) {
        return problem(StatusCode::UNAUTHORIZED, "unauthorized");
    }
    let mut response = match path.strip_prefix("/renewal/") {
        Some(id) => renewal(state, id),
        None => backend.send(Request::from_parts(head, Full::new(body.clone()))).await,
    };
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    if path == "/sign-me-up" && state.is_deactivated(location) && !state.finds_deactivated.load(Ordering::SeqCst) {
        return problem(StatusCode::FORBIDDEN, "unauthorized");
    }
    if path == "/order-plz" {
        let (payload, protected) = (part(&body, "payload"), part(&body, "protected"));
        if response.status() == StatusCode::CREATED {
            // For one order in a hundred, Pebble takes a validation of before, whatever `PEBBLE_AUTHZREUSE` says: it
            // draws from 0 to 99, and only what is more than 0 is a new one. The gateway asks again.
            if serde_json::from_slice::<Value>(response.body()).is_ok_and(|order| order["status"] == "ready") {
                return problem(StatusCode::BAD_REQUEST, "badNonce");
            }
            let confirms = state.confirms.load(Ordering::SeqCst) && !payload["replaces"].is_null();
            if confirms {
                response = edited(response, |order| order["replaces"] = payload["replaces"].clone());
            }
            state.orders.lock().expect("unpoisoned").push(payload);
            state.accounts.lock().expect("unpoisoned").push(protected["kid"].clone());
        }
    }
    if path == "/dir" && state.window.lock().expect("unpoisoned").is_some() {
        response = edited(response, |directory| directory["renewalInfo"] = format!("https://{host}/renewal").into());
    }
    if is_silent {
        be_silent(state).await;
    }
    let wrong = *state.wrong.lock().expect("unpoisoned");
    // Pebble has rejected the nonce: the gateway sends the request again.
    let wrong = wrong.filter(|_| response.status() != StatusCode::BAD_REQUEST);
    match wrong.filter(|(prefix, _)| path.starts_with(prefix)) {
        Some((_, change)) => change(response),
        None => response,
    }
}

/// An error of RFC 8555 section 6.7.
pub(super) fn problem(status: StatusCode, kind: &str) -> Response<Bytes> {
    let body = json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": "as the test wants it" });
    Response::builder().status(status).body(body.to_string().into()).expect("a response")
}

async fn be_silent(state: &State) {
    state.silenced.fetch_add(1, Ordering::SeqCst);
    std::future::pending::<()>().await;
}

/// `Retry-After` is longer than what the gateway accepts.
fn renewal(state: &State, id: &str) -> Response<Bytes> {
    state.asked.lock().expect("unpoisoned").push(id.to_owned());
    let window = state.window.lock().expect("unpoisoned").clone().unwrap_or_default();
    let body = json!({ "suggestedWindow": { "start": window[0], "end": window[1] } }).to_string();
    Response::builder().header(header::RETRY_AFTER, "99999999").body(body.into()).expect("a response")
}

/// As [`part`]. Null if there is none, as in a request without a body.
fn part_of(body: &[u8], member: &str) -> Value {
    if body.is_empty() { Value::Null } else { part(body, member) }
}

/// The member of a JWS that is JSON in base64url.
fn part(body: &[u8], member: &str) -> Value {
    let jws: Value = serde_json::from_slice(body).expect("a JWS");
    let part = URL_SAFE_NO_PAD.decode(jws[member].as_str().expect("a part")).expect("base64url");
    serde_json::from_slice(&part).expect("JSON")
}

fn edited(response: Response<Bytes>, edit: impl FnOnce(&mut Value)) -> Response<Bytes> {
    let (mut head, body) = response.into_parts();
    let mut body: Value = serde_json::from_slice(&body).expect("JSON");
    edit(&mut body);
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, body.to_string().into())
}
