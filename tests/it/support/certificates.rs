//! An authority of the test's own, what it signs, and servers that show it.

use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let made = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        Authority(made.expect("a certificate"))
    }

    pub fn certificate(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Another key and certificate each time.
    pub fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("parameters");
        Signed { certificate: params.signed_by(&key, &self.0).expect("a certificate"), key }
    }

    /// A server that calls itself so.
    pub fn server(&self, name: &str) -> TlsAcceptor {
        self.sign(name).server(None)
    }

    /// As [`Authority::server`], and talks only to those whose certificate is of this authority.
    pub fn server_for_its_own(&self, name: &str) -> TlsAcceptor {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).expect("a root");
        self.sign(name).server(Some(roots))
    }
}

pub struct Signed {
    certificate: Certificate,
    key: KeyPair,
}

impl Signed {
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    /// To `name.pem` and `name.key`. No file is there half: both are swapped.
    pub fn write(&self, folder: &Path, name: &str) {
        for (end, content) in [("pem", self.certificate.pem()), ("key", self.key.serialize_pem())] {
            std::fs::write(folder.join("new"), content).expect("written");
            std::fs::rename(folder.join("new"), folder.join(format!("{name}.{end}"))).expect("renamed");
        }
    }

    fn server(&self, clients: Option<RootCertStore>) -> TlsAcceptor {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        let config = builder.with_single_cert(vec![self.certificate()], key).expect("a pair");
        TlsAcceptor::from(Arc::new(config))
    }
}
