//! The operators' listener: health, readiness, metrics, and the API of tokens, keys and upstreams.
//!
//! `/healthz`, `/readyz` and `/metrics` are open, as probes and scrapers have no token; they name no subject. `/admin/v1` asks
//! for the admin token. The listener has its own thread: it answers while the workers are busy.

mod keys;
mod reload;
mod revocations;
mod tokens;
mod upstreams;

use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::auth::bearer;
use crate::broker::{BODY_LIMIT, Broker};
use crate::protocols::http::body::{self, Body};
use crate::protocols::http::respond;
use crate::protocols::tls::{self, ServerTls};
use crate::telemetry::metrics::Metrics;
use crate::tokens::audit_event::EventContext;
use crate::tokens::jwt::json::object;
use crate::types::clock::Clock;
use crate::types::ids::RequestIds;
use crate::types::reject::{Reason, Reject};
use crate::types::secret::Secret;
use crate::upstream::Upstream;

pub use reload::{ReloadError, ReloadReply, Reloaded};

/// `[admin]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub address: SocketAddr,
    pub tls: tls::Settings,
    pub token: SecretSource,
}

/// Where a secret comes from: never from the configuration itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// Made on first start with mode 0600.
    File(PathBuf),
    Environment(String),
}

/// For messages.
impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "{}", path.display()),
            SecretSource::Environment(name) => write!(f, "the environment variable {name}"),
        }
    }
}

/// Bytes of an admin token.
pub const MOST_TOKEN: usize = 1024;

/// Longest wait for a handshake, a request head.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Admin {
    pub broker: Arc<Broker>,
    /// Those in force.
    pub upstreams: Arc<ArcSwap<Vec<Arc<Upstream>>>>,
    pub metrics: Arc<Metrics>,
    pub clock: Arc<dyn Clock>,
    pub token: Secret,
    /// Set once everything is loaded and listening; unset when the process drains.
    pub serving: Arc<AtomicBool>,
    /// Where to ask for a reload.
    pub reloads: Option<Sender<ReloadReply>>,
    pub request_ids: RequestIds,
}

/// Accepts until the task is dropped.
pub async fn serve(listener: TcpListener, tls: Option<Arc<ArcSwap<ServerTls>>>, admin: Arc<Admin>) {
    loop {
        match listener.accept().await {
            Ok((stream, caller)) => {
                let tls = tls.as_ref().map(|tls| tls.load_full());
                tokio::spawn(serve_connection(stream, caller.ip(), tls, admin.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "accepting an admin connection failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, caller: IpAddr, tls: Option<Arc<ServerTls>>, admin: Arc<Admin>) {
    match tls {
        None => serve_http(stream, caller, admin).await,
        Some(side) => {
            let handshake = TlsAcceptor::from(side.config.clone()).accept(stream);
            if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, handshake).await {
                serve_http(stream, caller, admin).await;
            }
        }
    }
}

async fn serve_http<S>(stream: S, caller: IpAddr, admin: Arc<Admin>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let admin = admin.clone();
        async move { Ok::<_, Infallible>(admin.handle(request, caller).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // A connection that breaks off is the caller's affair.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

impl Admin {
    async fn handle(&self, request: Request<Incoming>, caller: IpAddr) -> Response<Body> {
        let wants_problem = respond::wants_problem(request.headers());
        let request_id = self.request_ids.next();
        let occasion = EventContext::new(self.clock.now(), caller, request_id);
        self.answer(request, occasion).await.unwrap_or_else(|refusal| {
            tracing::debug!(reason = refusal.reason.code(), detail = %refusal.detail, "admin request refused");
            // Whoever has the admin token is told what is wrong; a refusal before that has no detail.
            respond::reject_with_detail(&refusal, request_id, wants_problem)
        })
    }

    async fn answer(&self, request: Request<Incoming>, occasion: EventContext) -> Result<Response<Body>, Reject> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/healthz") => Ok(respond::json(StatusCode::OK, &json!({ "status": "alive" }))),
            (&Method::GET, "/readyz") => Ok(self.readiness().await),
            (&Method::GET, "/metrics") => Ok(self.show_metrics()),
            (_, "/healthz" | "/readyz" | "/metrics") => Err(Reject::from(Reason::MethodNotAllowed).allow("GET")),
            _ => {
                self.check_token(request.headers())?;
                match request.uri().path() {
                    upstreams::PATH => upstreams::answer(self, request.method()),
                    reload::PATH => reload::answer(self, &request).await,
                    path if keys::is_here(path) => keys::answer(self, request, occasion).await,
                    _ => tokens::answer(self, request, occasion).await,
                }
            }
        }
    }

    /// Exactly one token, as at every door; which rule another one breaks is nobody's business.
    fn check_token(&self, headers: &HeaderMap) -> Result<(), Reject> {
        match bearer::find(headers, MOST_TOKEN) {
            Ok(sent) if self.token.matches(sent.as_bytes()) => Ok(()),
            _ => Err(Reason::AdminTokenWrong.into()),
        }
    }

    /// Ready means: a request sent now would be served, and a revocation would be durable. Backends have no say in it: a
    /// balancer that took every gateway out because one backend is down would take the others' requests with it.
    async fn readiness(&self) -> Response<Body> {
        let fault = if !self.serving.load(Ordering::Acquire) {
            Some("starting or draining".to_owned())
        } else if let Some(fault) = self.broker.keyring.not_ready(self.clock.now()) {
            Some(fault)
        } else {
            let checked = self.broker.with_timeout(self.broker.store.check()).await;
            checked.err().map(|error| format!("store: {error}"))
        };
        match fault {
            None => respond::json(StatusCode::OK, &json!({ "status": "ready" })),
            Some(fault) => {
                respond::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "not ready", "reason": fault }))
            }
        }
    }

    fn show_metrics(&self) -> Response<Body> {
        let mut response = Response::new(Body::full(self.metrics.render()));
        let format = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, format);
        response
    }
}

/// The JSON object that a call of the API brings. Strict, as claims in it end up in tokens: what is refused in one must not
/// get in here.
async fn read_object<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Reject> {
    let incoming = Body::incoming(request.into_body()).with_idle_timeout(PATIENCE);
    let content = body::read(incoming, BODY_LIMIT).await?;
    let bad = |fault: String| Reject::new(Reason::BadParameter, fault);
    let object = object(&content).map_err(|error| bad(error.to_string()))?;
    serde_json::from_value(object.into()).map_err(|error| bad(error.to_string()))
}
