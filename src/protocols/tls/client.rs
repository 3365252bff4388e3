//! The client side: towards `https://` servers and towards the gateway's own admin listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::certificates::{CertificateFiles, load, provider, read_certificates};
use super::error::TlsError;

/// Trusts the CA certificates in `ca_file`, or else those of the system.
pub fn client_config(ca_file: Option<&Path>, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
    client_config_with(None, ca_file, alpn)
}

/// As [`client_config`], with a client certificate for servers that request one.
pub fn client_config_with(
    client: Option<&CertificateFiles>,
    ca_file: Option<&Path>,
    alpn: &[&[u8]],
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Library)?
        .with_root_certificates(trusted_roots(ca_file)?);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(files) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(load(files)?))),
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

fn trusted_roots(ca_file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in read_certificates(path)? {
                let invalid = |source| TlsError::Invalid { file: path.to_owned(), source };
                roots.add(certificate).map_err(invalid)?;
            }
        }
        None => {
            // Some systems have a few invalid certificates among the valid ones: skip them.
            let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() { Err(TlsError::NoTrustedRoots) } else { Ok(roots) }
}

/// Trusts exactly this certificate, whatever its names.
pub fn client_config_pinned_to(certificate: &Path) -> Result<Arc<ClientConfig>, TlsError> {
    let expected = read_certificates(certificate)?.swap_remove(0);
    let verifier = Arc::new(PinnedVerifier { expected, file: certificate.to_owned(), provider: provider() });
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Library)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Accepts one certificate, byte for byte. The signature of the handshake is verified as usual.
#[derive(Debug)]
struct PinnedVerifier {
    expected: CertificateDer<'static>,
    file: PathBuf,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        received: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match *received == self.expected {
            true => Ok(ServerCertVerified::assertion()),
            false => {
                let file = self.file.display();
                Err(rustls::Error::General(format!("the server sent another certificate than {file}")))
            }
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
