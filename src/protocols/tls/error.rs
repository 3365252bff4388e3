//! Errors of the setup of TLS.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use rustls::pki_types::pem;

use crate::types::pem::LostSections;
use crate::types::private_file::LaxFile;

/// Why a text is not PEM. The parser prints the bytes of a line, which can be those of a key, as numbers.
#[derive(Debug)]
pub struct NotPem(pub pem::Error);

impl fmt::Display for NotPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            pem::Error::MissingSectionEnd { .. } => {
                f.write_str("the last section has no END line: the file is cut off; copy it again")
            }
            pem::Error::IllegalSectionStart { .. } => f.write_str("a BEGIN line has no five dashes at its end"),
            error => error.fmt(f),
        }
    }
}

impl Error for NotPem {}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// `item`: what the file should contain.
    #[error("{file}: cannot read a {item} in PEM")]
    Unreadable { file: PathBuf, item: &'static str, source: NotPem },
    #[error(transparent)]
    Lax(LaxFile),
    // `r#` because the text contains the cause already: there is no further source to print.
    #[error("{file}: {source}")]
    LostSections { file: PathBuf, r#source: LostSections },
    #[error("{file}: there is no certificate in this file, expected BEGIN CERTIFICATE")]
    NoCertificate { file: PathBuf },
    #[error("no certificate is configured for this listener")]
    NoCertificateConfigured,
    /// The certificate or its key cannot be used.
    #[error("{file}: the certificate cannot be used")]
    Invalid { file: PathBuf, source: rustls::Error },
    /// The leaf certificate cannot be parsed or verified.
    #[error("{file}: the certificate cannot be used")]
    InvalidLeaf { file: PathBuf, source: webpki::Error },
    #[error("{file}: the certificate never expires")]
    NoExpiry { file: PathBuf },
    #[error("the key {key} does not belong to the certificate {certificate}")]
    KeyMismatch { key: PathBuf, certificate: PathBuf },
    #[error("no trusted CA certificates: install those of the system, or set ca_file")]
    NoTrustedRoots,
    /// Also a list without `nextUpdate`.
    #[error("{file}: there is no revocation list (CRL) with nextUpdate in this file")]
    InvalidRevocationList { file: PathBuf },
    #[error("client_ca and client_crl cannot be used: {0}")]
    ClientVerifier(String),
    #[error("cannot generate a self-signed certificate")]
    GenerateSelfSigned(#[source] rcgen::Error),
    /// A key, a request, or a certificate that validates a name.
    #[error("cannot generate a key or a certificate request")]
    Generate(#[source] rcgen::Error),
    #[error("cannot write a self-signed certificate to {folder}")]
    WriteSelfSigned { folder: PathBuf, source: io::Error },
    /// rustls rejects the settings. It should never happen.
    #[error("TLS cannot be set up")]
    Library(#[source] rustls::Error),
}
