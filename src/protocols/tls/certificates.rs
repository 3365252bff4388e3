//! Certificates and their keys: read from PEM files, or self-signed at the first start.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;

use super::description::{Description, issuer, names};
use super::error::{NotPem, TlsError};
use super::validity::validity_of;
use crate::types::pem::{check_count, has_private_key};
use crate::types::private_file::{self, FileCreator};
use crate::types::regular_file;
use crate::types::secret;

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

/// The one provider of this process.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Reads a certificate chain and its key, and checks that they belong together.
pub fn load(files: &CertificateFiles) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(&files.certificate)?;
    private_file::check(&files.key, FileCreator::Operator).map_err(TlsError::Lax)?;
    let key = read(&files.key).and_then(|pem| PrivateKeyDer::from_pem_slice(&pem)).map_err(|error| {
        TlsError::Unreadable { file: files.key.clone(), item: "private key", source: NotPem(error) }
    })?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::KeyMismatch { key: files.key.clone(), certificate: files.certificate.clone() }
        }
        source => TlsError::Invalid { file: files.certificate.clone(), source },
    })
}

/// The certificates in a PEM file; at least one. A file that also has a private key is a secret.
pub(super) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    private_file::check_trusted(path).map_err(TlsError::Lax)?;
    let unreadable = |error| TlsError::Unreadable { file: path.to_owned(), item: "certificate", source: NotPem(error) };
    let file = read(path).map_err(unreadable)?;
    if has_private_key(&file) {
        private_file::check(path, FileCreator::Operator).map_err(TlsError::Lax)?;
    }
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&file).collect::<Result<_, _>>().map_err(unreadable)?;
    let counted = check_count(&file, "CERTIFICATE", certificates.len());
    counted.map_err(|source| TlsError::LostSections { file: path.to_owned(), source })?;
    if certificates.is_empty() { Err(TlsError::NoCertificate { file: path.to_owned() }) } else { Ok(certificates) }
}

fn read(path: &Path) -> Result<Vec<u8>, pem::Error> {
    regular_file::read(path).map_err(pem::Error::Io)
}

/// The names of a self-signed certificate.
pub(super) const SELF_SIGNED: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Generates a P-256 certificate for [`SELF_SIGNED`]. The key file gets mode 0600.
pub(super) fn generate_self_signed(files: &CertificateFiles) -> Result<(), TlsError> {
    let names = SELF_SIGNED.map(str::to_owned);
    let generated = rcgen::generate_simple_self_signed(names).map_err(TlsError::GenerateSelfSigned)?;
    let folder = files.key.parent().unwrap_or(Path::new("."));
    let failed = |source| TlsError::WriteSelfSigned { folder: folder.to_owned(), source };
    fs::create_dir_all(folder).map_err(failed)?;
    secret::write_private(&files.key, generated.signing_key.serialize_pem().as_bytes()).map_err(failed)?;
    fs::write(&files.certificate, generated.cert.pem()).map_err(failed)?;
    tracing::warn!(
        certificate = %files.certificate.display(),
        "made a self-signed certificate for localhost; configure clients to trust it"
    );
    Ok(())
}

/// The DNS names and addresses in the leaf of this file. None if it cannot be read.
pub(super) fn names_in(file: &Path) -> Vec<String> {
    let chain = read_certificates(file).unwrap_or_default();
    let names = chain.first().map(|leaf| names(leaf)).unwrap_or_default();
    let is_uri = |name: &String| name.contains(':') && name.parse::<IpAddr>().is_err();
    names.into_iter().filter(|name| !is_uri(name)).collect()
}

/// The DNS names of the leaf, in lower case.
pub(super) fn dns_names(certificate: &CertifiedKey, file: &Path) -> Result<Vec<String>, TlsError> {
    Ok(parse_leaf(certificate, file)?.valid_dns_names().map(str::to_ascii_lowercase).collect())
}

/// What operators see of the leaf.
pub(super) fn describe(certificate: &CertifiedKey, file: &Path) -> Result<Description, TlsError> {
    let leaf = certificate.end_entity_cert().map_err(|source| TlsError::Invalid { file: file.to_owned(), source })?;
    Ok(Description {
        file: file.to_owned(),
        names: names(leaf),
        issuer: issuer(leaf),
        not_before: validity_of(leaf).map_or(0, |valid| valid.start().as_secs()),
        not_after: not_after(certificate, file)?,
    })
}

/// `notAfter` of the leaf (RFC 5280 section 4.1.2.5), in Unix seconds. webpki reports it only as the error of an
/// expired certificate, which it checks first: so this verifies the leaf at the end of time.
fn not_after(certificate: &CertifiedKey, file: &Path) -> Result<u64, TlsError> {
    let leaf = parse_leaf(certificate, file)?;
    let end_of_time = UnixTime::since_unix_epoch(Duration::MAX);
    let usage = webpki::KeyUsage::server_auth();
    match leaf.verify_for_usage(&[], &[], &[], end_of_time, usage, None, None).err() {
        Some(webpki::Error::CertExpired { not_after, .. }) => Ok(not_after.as_secs()),
        Some(source) => Err(TlsError::InvalidLeaf { file: file.to_owned(), source }),
        None => Err(TlsError::NoExpiry { file: file.to_owned() }),
    }
}

fn parse_leaf<'c>(certificate: &'c CertifiedKey, file: &Path) -> Result<webpki::EndEntityCert<'c>, TlsError> {
    let leaf = certificate.end_entity_cert().map_err(|source| TlsError::Invalid { file: file.to_owned(), source })?;
    webpki::EndEntityCert::try_from(leaf).map_err(|source| TlsError::InvalidLeaf { file: file.to_owned(), source })
}
