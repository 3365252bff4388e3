//! TLS and cleartext listeners.

mod certificates;
mod clients;
mod closed;
mod handshakes;
mod listeners;
mod manual_client;
mod records;
mod session_tickets;
mod slow_readers;

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::support::Gateway;

#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

async fn handshake(
    gateway: &Gateway,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    handshake_at(gateway.tls_address(), name, versions, alpn).await
}

pub(crate) async fn handshake_at(
    address: SocketAddr,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    handshake_with(address, name, versions, alpn, |_| {}).await
}

pub(crate) async fn handshake_with(
    address: SocketAddr,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
    alpn: &[&str],
    edit: impl FnOnce(&mut ClientConfig),
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).expect("versions");
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate)).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    edit(&mut config);
    let stream = TcpStream::connect(address).await.expect("the gateway listens");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

pub(crate) const TLS13: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
pub(crate) const TLS12: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];
