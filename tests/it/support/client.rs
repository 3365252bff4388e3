//! HTTP clients. They check each response: it has no header that is meant for backends only, and an error of the
//! gateway has the one documented JSON format.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends each request on a new connection.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    version: Version,
    tls: Option<rustls::pki_types::CertificateDer<'static>>,
    /// Server name in the TLS handshake.
    server_name: String,
    /// `Host`, unless `headers` has one, or `:authority`.
    host: String,
    headers: Vec<(String, String)>,
    /// It calls `forward_auth.path`, and gets what backends get.
    is_proxy: bool,
}

/// A complete response.
pub struct TestResponse {
    pub status: StatusCode,
    pub version: Version,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl fmt::Debug for TestResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {:?} {}", self.version, self.status, self.headers, self.text())
    }
}

impl Client {
    pub fn http1(address: SocketAddr) -> Client {
        Client {
            address,
            version: Version::HTTP_11,
            tls: None,
            server_name: "localhost".into(),
            host: "gateway.test".into(),
            headers: Vec::new(),
            is_proxy: false,
        }
    }

    /// HTTP/2 by prior knowledge.
    pub fn http2(address: SocketAddr) -> Client {
        Client { version: Version::HTTP_2, ..Client::http1(address) }
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Over TLS. Trusts one certificate.
    pub fn over_tls(mut self, certificate: &Path) -> Client {
        use rustls::pki_types::pem::PemObject;
        let certificate = rustls::pki_types::CertificateDer::from_pem_file(certificate);
        self.tls = Some(certificate.expect("the test's certificate"));
        self
    }

    /// Sets the host. Default: `gateway.test`.
    pub fn host(mut self, name: &str) -> Client {
        name.clone_into(&mut self.host);
        self
    }

    /// Sets the server name of the TLS handshake. An IP address is not sent.
    pub fn server_name(mut self, name: &str) -> Client {
        name.clone_into(&mut self.server_name);
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Client {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// It is a proxy that asks about the requests of its clients.
    pub fn proxy(self) -> Client {
        Client { is_proxy: true, ..self }
    }

    pub fn bearer(self, token: &str) -> Client {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub async fn get(&self, path: &str) -> TestResponse {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub async fn delete(&self, path: &str) -> TestResponse {
        self.send(Method::DELETE, path, Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> TestResponse {
        let body = Bytes::from(body.to_string());
        self.clone().header("content-type", "application/json").send(Method::POST, path, body).await
    }

    pub async fn send(&self, method: Method, path: &str, body: Bytes) -> TestResponse {
        // Boxed, because the future of a test would otherwise contain those of all its requests.
        Box::pin(self.try_send(method, path, body)).await.expect("a response")
    }

    pub async fn try_send(&self, method: Method, path: &str, body: Bytes) -> Result<TestResponse, hyper::Error> {
        let stream = TcpStream::connect(self.address).await.expect("the gateway listens");
        stream.set_nodelay(true).expect("a socket");
        match &self.tls {
            None => Box::pin(self.exchange(stream, method, path, body)).await,
            Some(certificate) => {
                let alpn = if self.version == Version::HTTP_2 { "h2" } else { "http/1.1" };
                let stream = tls_connect_for(&self.server_name, stream, certificate.clone(), alpn)
                    .await
                    .expect("a TLS handshake");
                Box::pin(self.exchange(stream, method, path, body)).await
            }
        }
    }

    async fn exchange<S>(
        &self,
        stream: S,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<TestResponse, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut request = Request::builder().method(method);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let (response, connection) = if self.version == Version::HTTP_2 {
            let request = request.uri(format!("{scheme}://{}{path}", self.host)).body(Full::new(body));
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
            let connection = tokio::spawn(connection);
            (sender.send_request(request.expect("a request")).await?, connection)
        } else {
            let has_host = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
            let request = if has_host { request } else { request.header("host", &self.host) };
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            let connection = tokio::spawn(connection);
            let request = request.uri(path).body(Full::new(body));
            (sender.send_request(request.expect("a request")).await?, connection)
        };
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        // Waits until the connection is closed, because a draining gateway waits for open connections.
        let _ = connection.await;
        let response = TestResponse { status: head.status, version: head.version, headers: head.headers, body };
        response.check(self.is_proxy);
        super::secrets::remember_all(&response.body);
        Ok(response)
    }
}

/// A client that keeps its connection open, so that one worker serves all its requests.
pub struct KeepAliveClient(http1::SendRequest<Full<Bytes>>);

impl KeepAliveClient {
    /// HTTP/1.1 in cleartext.
    pub async fn open(address: SocketAddr) -> KeepAliveClient {
        let stream = TcpStream::connect(address).await.expect("the gateway listens");
        stream.set_nodelay(true).expect("a socket");
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        KeepAliveClient(sender)
    }

    /// The status of the response to a request with this access token.
    pub async fn status_of(&mut self, access: &str) -> u16 {
        let request = Request::get("/").header("host", "gateway.test");
        let request = request.header("authorization", format!("Bearer {access}")).body(Full::default());
        self.0.ready().await.expect("the connection is open");
        let response = self.0.send_request(request.expect("a request")).await.expect("a response");
        let status = response.status().as_u16();
        response.into_body().collect().await.expect("the complete response");
        status
    }
}

impl TestResponse {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// The error code. Panics if the response is no error of the gateway.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("no error response: {self:?}")).to_owned()
    }

    /// Asserts that the gateway rejected the request with this status and error code.
    pub fn assert_rejected(&self, status: u16, error: &str) {
        assert_eq!((self.status.as_u16(), self.error().as_str()), (status, error), "{self:?}");
    }

    /// Checks what holds for each response in each test.
    fn check(&self, is_proxy: bool) {
        for (name, _) in &self.headers {
            let internal =
                ["x-auth-", "x-bearward-", "x-forwarded-"].iter().any(|prefix| name.as_str().starts_with(prefix));
            let is_for_backend = is_proxy && self.status == 200;
            assert!(!internal || is_for_backend, "an internal header leaked: {self:?}");
        }
        let is_json = self.header("content-type").is_some_and(|kind| kind.contains("json"));
        if !self.status.is_client_error() && !self.status.is_server_error() || !is_json {
            return;
        }
        let Ok(body) = serde_json::from_slice::<Value>(&self.body) else { return };
        if body["success"] == Value::Bool(false) {
            assert_eq!(body["status"], self.status.as_u16(), "{self:?}");
            assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
            assert!(body["requestId"].as_str().is_some_and(|id| id.len() == 32), "{self:?}");
            let challenged = self.headers.contains_key("www-authenticate");
            let expected = self.status == 401 || body["error"] == "insufficient_scope";
            assert_eq!(challenged, expected, "{self:?}");
        }
    }
}

/// Opens a TLS connection to `localhost`. Trusts one certificate.
pub async fn tls_connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    certificate: rustls::pki_types::CertificateDer<'static>,
    alpn: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<S>> {
    tls_connect_for("localhost", stream, certificate, alpn).await
}

/// As [`tls_connect`], to another server name.
pub async fn tls_connect_for<S: AsyncRead + AsyncWrite + Unpin>(
    server_name: &str,
    stream: S,
    certificate: rustls::pki_types::CertificateDer<'static>,
    alpn: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<S>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let name = rustls::pki_types::ServerName::try_from(server_name.to_owned()).expect("a name");
    tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await
}

/// Sends raw bytes. Reads until the gateway closes the connection or sends nothing for half a second.
pub async fn send_raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the gateway listens");
    stream.write_all(bytes).await.expect("written");
    let mut response = Vec::new();
    let reading = async {
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut chunk).await {
            response.extend_from_slice(&chunk[..read]);
        }
    };
    // The connection may stay open. The response has arrived by then.
    let _ = tokio::time::timeout(std::time::Duration::from_millis(500), reading).await;
    String::from_utf8_lossy(&response).into_owned()
}
