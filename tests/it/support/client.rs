//! Clients. Each answer is checked as it comes: no header that only upstreams may see, and every refusal of the gateway's own
//! in the one shape.

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

/// One request at a time, each on a connection of its own.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    version: Version,
    tls: Option<rustls::pki_types::CertificateDer<'static>>,
    /// What a TLS handshake asks for.
    server_name: String,
    /// `Host`, unless a header says otherwise, or `:authority`.
    host: String,
    headers: Vec<(String, String)>,
}

/// A whole answer.
pub struct Answer {
    pub status: StatusCode,
    pub version: Version,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl fmt::Debug for Answer {
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
        }
    }

    /// HTTP/2 by prior knowledge.
    pub fn http2(address: SocketAddr) -> Client {
        Client { version: Version::HTTP_2, ..Client::http1(address) }
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Over TLS, trusting one certificate.
    pub fn over_tls(mut self, certificate: &Path) -> Client {
        use rustls::pki_types::pem::PemObject;
        let read = rustls::pki_types::CertificateDer::from_pem_file(certificate);
        self.tls = Some(read.expect("the test's certificate"));
        self
    }

    /// For another host than `gateway.test`.
    pub fn host(mut self, name: &str) -> Client {
        name.clone_into(&mut self.host);
        self
    }

    /// Asks for another name in its handshake; for an address, there is none in it.
    pub fn asking_for(mut self, name: &str) -> Client {
        name.clone_into(&mut self.server_name);
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Client {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn bearer(self, token: &str) -> Client {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        let body = Bytes::from(body.to_string());
        self.clone().header("content-type", "application/json").send(Method::POST, path, body).await
    }

    pub async fn send(&self, method: Method, path: &str, body: Bytes) -> Answer {
        // Boxed, or each story would be as large as all its requests.
        Box::pin(self.try_send(method, path, body)).await.expect("an answer")
    }

    pub async fn try_send(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, hyper::Error> {
        let stream = TcpStream::connect(self.address).await.expect("the gateway listens");
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

    async fn exchange<S>(&self, stream: S, method: Method, path: &str, body: Bytes) -> Result<Answer, hyper::Error>
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
        // Not left open behind the test's back: a gateway that drains would wait for its end.
        let _ = connection.await;
        let answer = Answer { status: head.status, version: head.version, headers: head.headers, body };
        answer.check();
        super::secrets::remember_all(&answer.body);
        Ok(answer)
    }
}

/// A connection that stays open: it goes on being served by the worker that accepted it.
pub struct Kept(http1::SendRequest<Full<Bytes>>);

impl Kept {
    /// HTTP/1.1 in cleartext.
    pub async fn open(address: SocketAddr) -> Kept {
        let stream = TcpStream::connect(address).await.expect("the gateway listens");
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        Kept(sender)
    }

    /// What a request with this access token is answered.
    pub async fn status_of(&mut self, access: &str) -> u16 {
        let request = Request::get("/").header("host", "gateway.test");
        let request = request.header("authorization", format!("Bearer {access}")).body(Full::default());
        self.0.ready().await.expect("it is kept open");
        let response = self.0.send_request(request.expect("a request")).await.expect("an answer");
        let status = response.status().as_u16();
        response.into_body().collect().await.expect("the whole answer");
        status
    }
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// The refusal's public code; panics if this is none.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("no refusal: {self:?}")).to_owned()
    }

    /// Asserts a refusal of the gateway's own.
    pub fn refused(&self, status: u16, error: &str) {
        assert_eq!((self.status.as_u16(), self.error().as_str()), (status, error), "{self:?}");
    }

    /// What must hold for every answer, whatever the test is about.
    fn check(&self) {
        for (name, _) in &self.headers {
            let internal =
                ["x-auth-", "x-bearward-", "x-forwarded-"].iter().any(|ours| name.as_str().starts_with(ours));
            assert!(!internal, "an internal header leaked: {self:?}");
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

/// A TLS connection that trusts one certificate.
pub async fn tls_connect(
    stream: TcpStream,
    certificate: rustls::pki_types::CertificateDer<'static>,
    alpn: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    tls_connect_for("localhost", stream, certificate, alpn).await
}

/// As [`tls_connect`], and asks for this name.
pub async fn tls_connect_for(
    server_name: &str,
    stream: TcpStream,
    certificate: rustls::pki_types::CertificateDer<'static>,
    alpn: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
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

/// Sends bytes as they are and reads until the other side closes or is silent for a while.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the gateway listens");
    stream.write_all(bytes).await.expect("written");
    let mut answer = Vec::new();
    let reading = async {
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut chunk).await {
            answer.extend_from_slice(&chunk[..read]);
        }
    };
    // A gateway that keeps the connection open has answered by then.
    let _ = tokio::time::timeout(std::time::Duration::from_millis(500), reading).await;
    String::from_utf8_lossy(&answer).into_owned()
}
