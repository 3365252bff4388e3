//! Certificates and rustls: everything between a PEM file and a `ServerConfig`.

use std::path::PathBuf;

/// `listener.tls`.
#[derive(Clone, Debug, PartialEq)]
pub enum Settings {
    /// Said outright: cleartext, for those behind a TLS balancer.
    Off,
    /// A certificate for `localhost` that the gateway makes on first start and keeps in this folder.
    SelfSigned { folder: PathBuf },
    /// Chosen by SNI; the first is the default.
    Certificates(Vec<CertificateFiles>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM, the leaf first.
    pub certificate: PathBuf,
    /// PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}
