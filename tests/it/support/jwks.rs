//! An issuer's own server: a JWKS, discovery documents, and whatever can go wrong with them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::tokens::Mint;

/// What is served. A test changes it while the gateway runs.
pub struct Pages {
    pub keys: Vec<Value>,
    /// `Cache-Control` of the keys.
    pub cache: Option<&'static str>,
    /// Of every answer; anything but 200 has no page.
    pub status: StatusCode,
    /// Before every answer.
    pub delay: Duration,
    /// Path and page; `/keys` is made of `keys`.
    pub documents: Vec<(String, String)>,
    /// Path, and whether the answer was "not modified".
    pub seen: Vec<(String, bool)>,
}

pub struct KeyServer {
    pub address: SocketAddr,
    pages: Arc<Mutex<Pages>>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl KeyServer {
    pub fn start(mints: &[&Mint]) -> KeyServer {
        Self::launch(mints, None)
    }

    /// With TLS, as `localhost`. Its certificate is written to `file`.
    pub fn start_tls(mints: &[&Mint], file: &Path) -> KeyServer {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        std::fs::write(file, made.cert.pem()).expect("written");
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .expect("a pair");
        Self::launch(mints, Some(TlsAcceptor::from(Arc::new(config))))
    }

    fn launch(mints: &[&Mint], tls: Option<TlsAcceptor>) -> KeyServer {
        let pages = Arc::new(Mutex::new(Pages {
            keys: mints.iter().map(|mint| mint.jwk()).collect(),
            cache: None,
            status: StatusCode::OK,
            delay: Duration::ZERO,
            documents: Vec::new(),
            seen: Vec::new(),
        }));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("an address");
        socket.set_nonblocking(true).expect("nonblocking");
        let served = pages.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(socket).expect("a listener");
                tokio::select! { _ = stopped => {}, () = accept(listener, tls, served) => {} }
            });
        });
        KeyServer { address, pages, _stop: stop }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().expect("unpoisoned")
    }

    /// Other keys than before.
    pub fn publish(&self, mints: &[&Mint]) {
        self.pages().keys = mints.iter().map(|mint| mint.jwk()).collect();
    }

    pub fn fail_with(&self, status: u16) {
        self.pages().status = StatusCode::from_u16(status).expect("a status");
    }

    /// How often the keys were asked for.
    pub fn visits(&self) -> usize {
        self.pages().seen.iter().filter(|(path, _)| path == "/keys").count()
    }

    pub fn describe(&self, path: &str, issuer: &str) {
        let document = json!({ "issuer": issuer, "jwks_uri": self.url("/keys") });
        self.pages().documents.push((path.to_owned(), document.to_string()));
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, pages: Arc<Mutex<Pages>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, pages) = (tls.clone(), pages.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(stream, pages).await,
                Some(tls) => {
                    // A client that does not trust it goes away.
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, pages).await;
                    }
                }
            }
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, pages: Arc<Mutex<Pages>>) {
    let service = service_fn(move |request| answer(request, pages.clone()));
    // A test that ends leaves its connections as they are.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    pages: Arc<Mutex<Pages>>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    // What is true when the request arrives: an answer on its way does not change.
    let (delay, response) = {
        let mut pages = pages.lock().expect("unpoisoned");
        let response = respond(request.uri().path(), request.headers(), &pages);
        pages.seen.push((request.uri().path().to_owned(), response.status() == StatusCode::NOT_MODIFIED));
        (pages.delay, response)
    };
    tokio::time::sleep(delay).await;
    Ok(response)
}

fn respond(path: &str, headers: &HeaderMap, pages: &Pages) -> Response<Full<Bytes>> {
    let page = match path {
        "/keys" => Some(json!({ "keys": pages.keys }).to_string()),
        path => pages.documents.iter().find(|(known, _)| known == path).map(|(_, page)| page.clone()),
    };
    let (status, page) = match page {
        Some(page) if pages.status == StatusCode::OK => (StatusCode::OK, page),
        Some(_) => (pages.status, String::new()),
        None => (StatusCode::NOT_FOUND, String::new()),
    };
    let mut hasher = DefaultHasher::new();
    page.hash(&mut hasher);
    let etag = format!("\"{:x}\"", hasher.finish());
    let mut response = Response::builder().status(status).header("etag", &etag);
    if let Some(cache) = pages.cache {
        response = response.header("cache-control", cache);
    }
    let known = headers.get("if-none-match").is_some_and(|known| *known == *etag);
    let (response, page) = match known && status == StatusCode::OK {
        true => (response.status(StatusCode::NOT_MODIFIED), String::new()),
        false => (response, page),
    };
    response.body(Full::new(Bytes::from(page))).expect("a response")
}
