//! The client side: towards `https://` servers.

use std::path::Path;
use std::sync::Arc;

use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use super::certificates::{CertificateFiles, load, provider, read_certificates};
use super::error::TlsError;
use super::record_size::MAX_FRAGMENT;

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
    config.max_fragment_size = MAX_FRAGMENT;
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
