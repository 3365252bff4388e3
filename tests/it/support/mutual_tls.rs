//! Clients that show certificates, and a gateway that asks for them.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, SignatureScheme, SupportedProtocolVersion};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::certificates::Authority;
use super::clock::ManualClock;
use super::{Gateway, Upstream};

impl Gateway {
    /// Its second listener asks for the certificates of `authority`: with these keys beside `client_ca`. `more` is as
    /// in [`Gateway::with_config`].
    pub fn with_clients(upstream: &Upstream, authority: &Authority, keys: &str, more: &str) -> Gateway {
        let folder = Arc::new(TempDir::new().expect("a temporary folder"));
        std::fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
        Self::with_clients_in(folder, upstream, &format!("client_ca = \"clients.pem\"\n{keys}"), more)
    }

    /// As [`Gateway::with_clients`], with a revocation list in `clients.crl`.
    pub fn with_revocation_list(upstream: &Upstream, authority: &Authority, list: &str, more: &str) -> Gateway {
        let folder = Arc::new(TempDir::new().expect("a temporary folder"));
        std::fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
        std::fs::write(folder.path().join("clients.crl"), list).expect("written");
        let keys = "client_certificate = \"optional\"\nclient_ca = \"clients.pem\"\nclient_crl = [\"clients.crl\"]";
        Self::with_clients_in(folder, upstream, keys, more)
    }

    /// As [`Gateway::with_clients`], with the keys alone.
    pub fn with_clients_in(folder: Arc<TempDir>, upstream: &Upstream, keys: &str, more: &str) -> Gateway {
        let tls = "tls = \"self-signed\"";
        let text = Self::config_text(&upstream.address.to_string(), more).replacen(tls, &format!("{tls}\n{keys}"), 1);
        Self::in_folder(text, folder, Arc::new(ManualClock::new()))
    }
}

/// What a client shows in its handshakes. All handshakes share their session tickets.
#[derive(Clone)]
pub struct MutualClient {
    config: Arc<ClientConfig>,
    address: SocketAddr,
}

type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl MutualClient {
    pub fn new(gateway: &Gateway, shown: Option<Shown>) -> MutualClient {
        Self::of(gateway, rustls::ALL_VERSIONS, shown)
    }

    /// With this version of TLS.
    pub fn of(gateway: &Gateway, versions: &[&'static SupportedProtocolVersion], shown: Option<Shown>) -> MutualClient {
        Self::to(gateway.tls_address(), &gateway.certificate(), versions, shown)
    }

    /// Of a listener with this certificate.
    pub fn to(
        address: SocketAddr,
        certificate: &Path,
        versions: &[&'static SupportedProtocolVersion],
        shown: Option<Shown>,
    ) -> MutualClient {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate).expect("a certificate")).expect("a root");
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).expect("versions");
        let builder = builder.with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            // Whatever the gateway asks for: a thief does not mind.
            Some((chain, key)) => builder.with_client_cert_resolver(Arc::new(Always(certified(chain, &key)))),
        };
        MutualClient { config: Arc::new(config), address }
    }

    /// To another listener.
    pub fn at(&self, address: SocketAddr) -> MutualClient {
        MutualClient { config: self.config.clone(), address }
    }

    pub async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").expect("a name");
        tokio_rustls::TlsConnector::from(self.config.clone()).connect(name, stream).await
    }

    /// The whole response to a GET on a new connection. Fails with the handshake.
    pub async fn get(&self, path: &str, fields: &str) -> io::Result<String> {
        self.send("GET", path, fields, "").await
    }

    /// As [`MutualClient::get`], for another method.
    pub async fn send(&self, method: &str, path: &str, fields: &str, body: &str) -> io::Result<String> {
        let mut stream = self.connect().await?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut response = Vec::new();
        // With TLS 1.3, a client learns only now that its certificate was rejected.
        stream.read_to_end(&mut response).await?;
        Ok(String::from_utf8_lossy(&response).into_owned())
    }

    /// The status of the response to a GET; 0 if the handshake fails.
    pub async fn status(&self, path: &str, fields: &str) -> u16 {
        let response = self.get(path, fields).await.unwrap_or_default();
        response.get(9..12).map_or(0, |status| status.parse().expect("a status"))
    }
}

impl MutualClient {
    /// The status and the body of the response to a POST.
    pub async fn post(&self, path: &str, fields: &str, body: &str) -> (u16, Value) {
        let fields = format!("Content-Length: {}\r\n{fields}", body.len());
        let response = self.send("POST", path, &fields, body).await.expect("a response");
        let status = response[9..12].parse().expect("a status");
        let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// Posts a form. The values in these tests need no escaping.
    pub async fn post_form(&self, path: &str, form: &[(&str, &str)]) -> (u16, Value) {
        let body: Vec<String> = form.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.post(path, "Content-Type: application/x-www-form-urlencoded\r\n", &body.join("&")).await
    }
}

/// Also for a key of another certificate.
fn certified(chain: Vec<CertificateDer<'static>>, key: &PrivateKeyDer<'_>) -> Arc<rustls::sign::CertifiedKey> {
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(key).expect("a key");
    Arc::new(rustls::sign::CertifiedKey::new(chain, key))
}

#[derive(Debug)]
struct Always(Arc<rustls::sign::CertifiedKey>);

impl ResolvesClientCert for Always {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
