//! The server of an issuer: a JWKS and discovery documents. It can also fail, or respond slowly.

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

use super::gzip::gzip;
use super::tokens::Mint;

/// What the server serves. A test can change it while the gateway runs.
pub struct Pages {
    pub keys: Vec<Value>,
    /// The `Cache-Control` header of each response.
    pub cache: Option<&'static str>,
    /// The status of each response. Any status but 200 has an empty body.
    pub status: StatusCode,
    /// How long to wait before each response.
    pub delay: Duration,
    /// If true, each body is in gzip, whatever the request accepts.
    pub is_compressed: bool,
    /// Path and body of each document besides `/keys`.
    pub documents: Vec<(String, String)>,
    /// The path of each request, and whether the response was `304 Not Modified`.
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

    /// With TLS, as `localhost`. Writes its certificate to `file`.
    pub fn start_tls(mints: &[&Mint], file: &Path) -> KeyServer {
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        std::fs::write(file, certified.cert.pem()).expect("written");
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key.into())
            .expect("a pair");
        Self::launch(mints, Some(TlsAcceptor::from(Arc::new(config))))
    }

    fn launch(mints: &[&Mint], tls: Option<TlsAcceptor>) -> KeyServer {
        let pages = Arc::new(Mutex::new(Pages {
            keys: mints.iter().map(|mint| mint.jwk()).collect(),
            cache: None,
            status: StatusCode::OK,
            delay: Duration::ZERO,
            is_compressed: false,
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

    /// Replaces the published keys.
    pub fn publish(&self, mints: &[&Mint]) {
        self.pages().keys = mints.iter().map(|mint| mint.jwk()).collect();
    }

    pub fn fail_with(&self, status: u16) {
        self.pages().status = StatusCode::from_u16(status).expect("a status");
    }

    /// Number of requests for the keys.
    pub fn key_requests(&self) -> usize {
        self.pages().seen.iter().filter(|(path, _)| path == "/keys").count()
    }

    /// Publishes a discovery document at `path`.
    pub fn publish_discovery(&self, path: &str, issuer: &str) {
        let document = json!({ "issuer": issuer, "jwks_uri": self.url("/keys") });
        self.pages().documents.push((path.to_owned(), document.to_string()));
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, pages: Arc<Mutex<Pages>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, pages) = (tls.clone(), pages.clone());
        stream.set_nodelay(true).expect("a socket");
        tokio::spawn(async move {
            match tls {
                None => serve(stream, pages).await,
                Some(tls) => {
                    // The handshake fails if the client does not trust the certificate.
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, pages).await;
                    }
                }
            }
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, pages: Arc<Mutex<Pages>>) {
    let service = service_fn(move |request| respond(request, pages.clone()));
    // How the connection ends does not matter to a test.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(
    request: Request<Incoming>,
    pages: Arc<Mutex<Pages>>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    // The response is made when the request arrives, so that a later change of the pages does not affect it.
    let (delay, response) = {
        let mut pages = pages.lock().expect("unpoisoned");
        let response = response_for(request.uri().path(), request.headers(), &pages);
        pages.seen.push((request.uri().path().to_owned(), response.status() == StatusCode::NOT_MODIFIED));
        (pages.delay, response)
    };
    // The delay that the test set.
    tokio::time::sleep(delay).await;
    Ok(response)
}

fn response_for(path: &str, headers: &HeaderMap, pages: &Pages) -> Response<Full<Bytes>> {
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
    let mut response =
        Response::builder().status(status).header("etag", &etag).header("content-type", "application/json");
    if let Some(cache) = pages.cache {
        response = response.header("cache-control", cache);
    }
    let known = headers.get("if-none-match").is_some_and(|known| *known == *etag);
    let (mut response, page) = if known && status == StatusCode::OK {
        (response.status(StatusCode::NOT_MODIFIED), String::new())
    } else {
        (response, page)
    };
    let body = if pages.is_compressed && !page.is_empty() {
        response = response.header("content-encoding", "gzip");
        gzip(page.as_bytes())
    } else {
        page.into_bytes()
    };
    response.body(Full::new(Bytes::from(body))).expect("a response")
}
