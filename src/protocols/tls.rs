//! Certificates and rustls: everything between a PEM file and a `ServerConfig`.
//!
//! TLS 1.3 and 1.2 by rustls on aws-lc-rs, X25519MLKEM768 offered first. The provider is named at each builder, so that no
//! process-wide default can decide otherwise.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

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

impl CertificateFiles {
    /// The two files of a self-signed certificate.
    pub fn self_signed(folder: &Path) -> Self {
        CertificateFiles { certificate: folder.join("self-signed.pem"), key: folder.join("self-signed.key") }
    }
}

/// The server side of a listener.
pub struct ServerSide {
    pub config: Arc<ServerConfig>,
    certificates: Arc<BySni>,
    /// By the file of each certificate, its notAfter (RFC 5280 section 4.1.2.5): Unix seconds.
    pub not_after: BTreeMap<PathBuf, u64>,
}

/// The name that a client asked for in its handshake, and who answered.
pub struct Sni {
    pub name: String,
    pub side: Arc<ServerSide>,
}

impl Sni {
    /// Would the client have been shown the same certificate, had it asked for this host?
    pub fn same_certificate(&self, host: &str) -> bool {
        let certificates = &self.side.certificates;
        Arc::ptr_eq(certificates.choose(&self.name), certificates.choose(host))
    }
}

/// The server side of a listener; `None` for cleartext. A self-signed certificate is made if it is not there yet.
pub fn server_side(settings: &Settings) -> Result<Option<Arc<ServerSide>>, String> {
    let files = match settings {
        Settings::Off => return Ok(None),
        Settings::SelfSigned { folder } => {
            let files = CertificateFiles::self_signed(folder);
            if !files.certificate.exists() || !files.key.exists() {
                make_self_signed(&files)?;
            }
            vec![files]
        }
        Settings::Certificates(files) => files.clone(),
    };
    let certificates: Vec<_> = files.iter().map(load).collect::<Result<_, _>>()?;
    let ends = certificates.iter().map(not_after).collect::<Result<Vec<_>, _>>()?;
    let not_after = files.into_iter().map(|files| files.certificate).zip(ends).collect();
    let certificates = Arc::new(BySni::new(certificates)?);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_cert_resolver(certificates.clone());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Tickets keep resumption state with the client: no memory here, and they survive the loss of a worker.
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(|error| error.to_string())?;
    // Each ticket costs the client one line of memory and us 1 µs; one is enough to resume.
    config.send_tls13_tickets = 1;
    Ok(Some(Arc::new(ServerSide { config: Arc::new(config), certificates, not_after })))
}

/// The client side, towards an `https://` server: the roots in `ca_file`, or the system's.
pub fn client_config(ca_file: Option<&Path>, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, String> {
    client_config_as(None, ca_file, alpn)
}

/// As [`client_config`], and shows this certificate to servers that ask for one.
pub fn client_config_as(
    client: Option<&CertificateFiles>,
    ca_file: Option<&Path>,
    alpn: &[&[u8]],
) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in read_certificates(path)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        None => {
            // Some systems carry a broken root or two; what matters is that there are good ones.
            let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err("there are no trusted roots; name some with ca_file".into());
    }
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(files) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(load(files)?))),
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// The client side, towards a listener of which the certificate is known: that one is trusted, whatever name it bears, and
/// no other.
pub fn client_config_for(certificate: &Path) -> Result<Arc<ClientConfig>, String> {
    let expected = read_certificates(certificate)?.swap_remove(0);
    let verifier = Arc::new(Pinned { expected, file: certificate.to_owned(), provider: provider() });
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// One certificate, byte for byte. That the other side has its key is checked as always.
#[derive(Debug)]
struct Pinned {
    expected: CertificateDer<'static>,
    file: PathBuf,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match *shown == self.expected {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::General(format!("it shows another certificate than {}", self.file.display()))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Reads a certificate chain and its key, and checks that they belong together.
pub fn load(files: &CertificateFiles) -> Result<CertifiedKey, String> {
    let chain = read_certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("{}: no private key can be read: {error}", files.key.display()))?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            format!(
                "the key {} does not belong to the certificate {}",
                files.key.display(),
                files.certificate.display()
            )
        }
        other => format!("{}: {other}", files.certificate.display()),
    })
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fault = |error| format!("{}: no certificate can be read: {error}", path.display());
    let chain: Vec<_> = CertificateDer::pem_file_iter(path).map_err(fault)?.collect::<Result<_, _>>().map_err(fault)?;
    if chain.is_empty() {
        return Err(format!("{}: there is no certificate in this file", path.display()));
    }
    Ok(chain)
}

/// Makes a P-256 certificate for `localhost`, 127.0.0.1 and ::1, and its key with mode 0600.
fn make_self_signed(files: &CertificateFiles) -> Result<(), String> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| error.to_string())?;
    let folder = files.key.parent().unwrap_or(Path::new("."));
    let fault = |error| format!("a self-signed certificate cannot be written to {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(fault)?;
    crate::types::secret::write_private(&files.key, made.signing_key.serialize_pem().as_bytes()).map_err(fault)?;
    fs::write(&files.certificate, made.cert.pem()).map_err(fault)?;
    tracing::warn!(
        certificate = %files.certificate.display(),
        "made a self-signed certificate for localhost; clients have to be told to trust it"
    );
    Ok(())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The certificate whose names hold the host that the client asks for; the first one otherwise.
#[derive(Debug)]
struct BySni {
    first: Arc<CertifiedKey>,
    /// Lower case; `*.example.com` under its own spelling.
    named: HashMap<String, Arc<CertifiedKey>>,
}

impl BySni {
    fn new(certificates: Vec<CertifiedKey>) -> Result<Self, String> {
        let certificates: Vec<_> = certificates.into_iter().map(Arc::new).collect();
        let first = certificates.first().cloned().ok_or("there is no certificate")?;
        let mut named = HashMap::new();
        for certificate in &certificates {
            for name in names_of(certificate)? {
                named.entry(name).or_insert_with(|| certificate.clone());
            }
        }
        Ok(BySni { first, named })
    }

    fn choose(&self, host: &str) -> &Arc<CertifiedKey> {
        let host = host.to_ascii_lowercase();
        let by_name = self.named.get(&host).or_else(|| {
            let (_, parent) = host.split_once('.')?;
            self.named.get(&format!("*.{parent}"))
        });
        by_name.unwrap_or(&self.first)
    }
}

impl ResolvesServerCert for BySni {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(hello.server_name().map_or(&self.first, |host| self.choose(host)).clone())
    }
}

fn names_of(certificate: &CertifiedKey) -> Result<Vec<String>, String> {
    Ok(leaf_of(certificate)?.valid_dns_names().map(str::to_ascii_lowercase).collect())
}

/// webpki tells it to those alone who come too late, before it looks at anything else: so we come at the end of time.
fn not_after(certificate: &CertifiedKey) -> Result<u64, String> {
    let leaf = leaf_of(certificate)?;
    let the_end = UnixTime::since_unix_epoch(Duration::MAX);
    let usage = webpki::KeyUsage::server_auth();
    match leaf.verify_for_usage(&[], &[], &[], the_end, usage, None, None).err() {
        Some(webpki::Error::CertExpired { not_after, .. }) => Ok(not_after.as_secs()),
        Some(error) => Err(format!("the certificate: {error}")),
        None => Err("the certificate never ends".into()),
    }
}

fn leaf_of(certificate: &CertifiedKey) -> Result<webpki::EndEntityCert<'_>, String> {
    let leaf = certificate.end_entity_cert().map_err(|error| error.to_string())?;
    webpki::EndEntityCert::try_from(leaf).map_err(|error| format!("the certificate: {error}"))
}
