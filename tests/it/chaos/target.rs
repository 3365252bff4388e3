//! The addresses of a replica, for the tasks that send load.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Client, TokenPair};

/// How long a client waits for a response.
const CLIENT_PATIENCE: Duration = Duration::from_secs(8);

/// `None` as a response: there was none, or it was not complete.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) public: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) admin_token: String,
}

impl Target {
    /// The status of a request with this access token.
    pub(super) async fn get(&self, token: &str) -> Option<StatusCode> {
        self.send(self.public, Method::GET, "/", token, None).await.map(|(status, _)| status)
    }

    pub(super) async fn refresh(&self, pair: &TokenPair) -> Option<(StatusCode, Value)> {
        let body = json!({ "refreshToken": pair.refresh });
        self.send(self.public, Method::POST, "/user/refresh", &pair.access, Some(body)).await
    }

    pub(super) async fn login(&self, subject: &str) -> Result<TokenPair, String> {
        let login = json!({ "subject": subject, "scope": "a" });
        match self.call_admin(Method::POST, "/admin/v1/tokens", Some(login)).await {
            Some((StatusCode::CREATED, body)) => Ok(TokenPair::from_json(&body)),
            other => Err(format!("{other:?}")),
        }
    }

    pub(super) async fn revoke(&self, what: Value) -> Option<StatusCode> {
        self.call_admin(Method::POST, "/admin/v1/revocations", Some(what)).await.map(|(status, _)| status)
    }

    pub(super) async fn log_out_everywhere(&self, subject: &str) -> Option<StatusCode> {
        let path = format!("/admin/v1/subjects/{subject}/tokens");
        self.call_admin(Method::DELETE, &path, None).await.map(|(status, _)| status)
    }

    /// Makes the next signing key. If `now` is true, it signs at once.
    pub(super) async fn rotate_keys(&self, now: bool) -> Option<StatusCode> {
        let body = json!({ "now": now });
        self.call_admin(Method::POST, "/admin/v1/keys/rotate", Some(body)).await.map(|(status, _)| status)
    }

    /// The ids of the signing keys that this gateway knows, sorted.
    pub(super) async fn keys(&self) -> Vec<String> {
        let listed = self.call_admin(Method::GET, "/admin/v1/keys", None).await.map(|(_, body)| body);
        let keys = listed.and_then(|body| Some(body["keys"].as_array()?.clone())).unwrap_or_default();
        let mut keys: Vec<String> = keys.iter().filter_map(|key| Some(key["kid"].as_str()?.to_owned())).collect();
        keys.sort();
        keys
    }

    pub(super) async fn wait_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.is_ready().await {
            assert!(Instant::now() < deadline, "the replica does not become ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The value of a metric. Fails if there is none.
    pub(super) async fn metric(&self, name: &str) -> f64 {
        let text = Client::http1(self.admin).host("localhost").get("/metrics").await.text();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name}"))
    }

    pub(super) async fn is_ready(&self) -> bool {
        self.call_admin(Method::GET, "/readyz", None).await.is_some_and(|(status, _)| status == StatusCode::OK)
    }

    async fn call_admin(&self, method: Method, path: &str, body: Option<Value>) -> Option<(StatusCode, Value)> {
        self.send(self.admin, method, path, &self.admin_token, body).await
    }

    async fn send(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        token: &str,
        body: Option<Value>,
    ) -> Option<(StatusCode, Value)> {
        let (head, body) = self.exchange(address, method, path, token, body).await?.into_parts();
        Some((head.status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// The whole response to a refresh, with its headers.
    pub(super) async fn refresh_response(&self, pair: &TokenPair) -> Option<Response<Bytes>> {
        let body = json!({ "refreshToken": pair.refresh });
        self.exchange(self.public, Method::POST, "/user/refresh", &pair.access, Some(body)).await
    }

    async fn exchange(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        token: &str,
        body: Option<Value>,
    ) -> Option<Response<Bytes>> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(HOST, "localhost");
        let request = request.header(AUTHORIZATION, format!("Bearer {token}")).header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(body)).expect("a request");
        timeout(CLIENT_PATIENCE, exchange(address, request)).await.ok()?
    }
}

/// `None`: the replica is away, or its response is not complete.
async fn exchange(address: SocketAddr, request: Request<Full<Bytes>>) -> Option<Response<Bytes>> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let connection = tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await.ok()?.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    connection.abort();
    Some(Response::from_parts(head, body))
}
