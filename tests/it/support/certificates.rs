//! A test certificate authority, the certificates that it signs, and TLS servers that present them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bearward::types::clock::{Clock, SystemClock};
use bearward::types::secret;
use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

const DAY: i64 = 24 * 60 * 60;

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With the default name of all certificates, OpenSSL takes those that it signs for self-signed ones.
        params.distinguished_name.push(DnType::CommonName, "authority of the tests");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        Authority(issuer.expect("a certificate"))
    }

    pub fn certificate(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Makes a new key, and signs a certificate for it.
    pub fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("parameters");
        Signed { certificate: params.signed_by(&key, &self.0).expect("a certificate"), key }
    }

    /// As [`Authority::sign`], with a certificate that ends `days` from now, or ended before.
    pub fn sign_until(&self, name: &str, days: i64) -> Signed {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([name.to_owned()]).expect("parameters");
        // Half a day from a change of the number of days that are left.
        let end = SystemClock.now().as_secs().saturating_add_signed(days * DAY) - DAY as u64 / 2;
        let since_1970 = |seconds: u64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        params.not_before = since_1970(end - 90 * DAY as u64);
        params.not_after = since_1970(end);
        Signed { certificate: params.signed_by(&key, &self.0).expect("a certificate"), key }
    }

    /// A TLS server with a certificate for `name`.
    pub fn server(&self, name: &str) -> TlsAcceptor {
        self.sign(name).server(None)
    }

    /// As [`Authority::server`]. It requires a client certificate of this authority.
    pub fn server_requiring_client_certificate(&self, name: &str) -> TlsAcceptor {
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

    /// Writes `name.pem` and `name.key`. Each file is replaced atomically.
    pub fn write(&self, folder: &Path, name: &str) {
        for (extension, content) in [("pem", self.certificate.pem()), ("key", self.key.serialize_pem())] {
            secret::write_private(&folder.join("new"), content.as_bytes()).expect("written");
            std::fs::rename(folder.join("new"), folder.join(format!("{name}.{extension}"))).expect("renamed");
        }
    }

    /// A TLS server with this certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.server(None)
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
