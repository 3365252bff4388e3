//! A test certificate authority, the certificates that it signs, and TLS servers that present them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bearward::types::clock::{Clock, SystemClock};
use bearward::types::secret;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, PublicKeyData, RevokedCertParams,
    SerialNumber, SignatureAlgorithm,
};
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

    /// A certificate in PEM for these names and the P-256 key of another certificate, edited.
    pub fn sign_key_of(&self, other: &[u8], names: &[&str], edit: impl FnOnce(&mut CertificateParams)) -> String {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("parameters");
        edit(&mut params);
        params.signed_by(&Point::in_certificate(other), &self.0).expect("a certificate").pem()
    }

    /// As [`Authority::sign`], with a certificate that ends `days` from now, or ended before.
    pub fn sign_until(&self, name: &str, days: i64) -> Signed {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([name.to_owned()]).expect("parameters");
        // Half a day from a change of the number of days that are left.
        let end = SystemClock.now().as_secs().saturating_add_signed(days * DAY) - DAY as u64 / 2;
        set_validity(&mut params, end - 90 * DAY as u64, end);
        Signed { certificate: params.signed_by(&key, &self.0).expect("a certificate"), key }
    }

    /// An authority below this one. Its certificate has this serial number.
    pub fn authority(&self, serial: u64) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.serial_number = Some(SerialNumber::from(serial));
        params.distinguished_name.push(DnType::CommonName, format!("authority {serial} of the tests"));
        let issuer = CertifiedIssuer::signed_by(params, KeyPair::generate().expect("a key"), &self.0);
        Authority(issuer.expect("a certificate"))
    }

    /// A certificate for the client `CN=orders,O=Example`, edited.
    pub fn client(&self, edit: impl FnOnce(&mut CertificateParams)) -> Signed {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.distinguished_name.push(DnType::CommonName, "orders");
        edit(&mut params);
        Signed { certificate: params.signed_by(&key, &self.0).expect("a certificate"), key }
    }

    /// A revocation list in PEM that ends at `next_update`, in seconds since 1970.
    pub fn revocation_list(&self, revoked: &[u64], next_update: u64) -> String {
        let since_1970 = |seconds: u64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        let entry = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: since_1970(next_update - 2 * DAY as u64),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: since_1970(next_update - 2 * DAY as u64),
            next_update: since_1970(next_update),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).expect("a list").pem().expect("PEM")
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

/// A public key on P-256.
struct Point(Vec<u8>);

impl Point {
    fn in_certificate(der: &[u8]) -> Point {
        // A BIT STRING of 66 bytes, with all bits of the last one, and an uncompressed point.
        let begin = der.windows(4).position(|part| part == [3, 66, 0, 4]).expect("a key on P-256") + 3;
        Point(der[begin..begin + 65].to_vec())
    }
}

impl PublicKeyData for Point {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// From when until when a certificate is valid, in seconds since 1970.
pub fn set_validity(params: &mut CertificateParams, from: u64, until: u64) {
    let since_1970 = |seconds: u64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    (params.not_before, params.not_after) = (since_1970(from), since_1970(until));
}

pub struct Signed {
    certificate: Certificate,
    key: KeyPair,
}

impl Signed {
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// The certificate and its key, for a client. `others`: the rest of its chain.
    pub fn pair(&self, others: &[CertificateDer<'static>]) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        ([&[self.certificate()], others].concat(), key)
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
