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

#[derive(Debug)]
pub enum TlsError {
    /// `item`: what the file should contain.
    Unreadable {
        file: PathBuf,
        item: &'static str,
        source: NotPem,
    },
    Lax(LaxFile),
    LostSections {
        file: PathBuf,
        source: LostSections,
    },
    NoCertificate {
        file: PathBuf,
    },
    NoCertificateConfigured,
    /// The certificate or its key cannot be used.
    Invalid {
        file: PathBuf,
        source: rustls::Error,
    },
    /// The leaf certificate cannot be parsed or verified.
    InvalidLeaf {
        file: PathBuf,
        source: webpki::Error,
    },
    NoExpiry {
        file: PathBuf,
    },
    KeyMismatch {
        key: PathBuf,
        certificate: PathBuf,
    },
    NoTrustedRoots,
    /// Also a list without `nextUpdate`.
    InvalidRevocationList {
        file: PathBuf,
    },
    ClientVerifier(String),
    GenerateSelfSigned(rcgen::Error),
    /// A key, a request, or a certificate that validates a name.
    Generate(rcgen::Error),
    WriteSelfSigned {
        folder: PathBuf,
        source: io::Error,
    },
    /// rustls rejects the settings. It should never happen.
    Library(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::Unreadable { file, item, .. } => write!(f, "{}: cannot read a {item} in PEM", file.display()),
            TlsError::Lax(lax) => lax.fmt(f),
            TlsError::LostSections { file, source } => write!(f, "{}: {source}", file.display()),
            TlsError::NoCertificate { file } => {
                write!(f, "{}: there is no certificate in this file, expected BEGIN CERTIFICATE", file.display())
            }
            TlsError::NoCertificateConfigured => f.write_str("no certificate is configured for this listener"),
            TlsError::Invalid { file, .. } | TlsError::InvalidLeaf { file, .. } => {
                write!(f, "{}: the certificate cannot be used", file.display())
            }
            TlsError::NoExpiry { file } => write!(f, "{}: the certificate never expires", file.display()),
            TlsError::KeyMismatch { key, certificate } => {
                write!(f, "the key {} does not belong to the certificate {}", key.display(), certificate.display())
            }
            TlsError::InvalidRevocationList { file } => {
                write!(f, "{}: there is no revocation list (CRL) with nextUpdate in this file", file.display())
            }
            TlsError::ClientVerifier(problem) => write!(f, "client_ca and client_crl cannot be used: {problem}"),
            TlsError::NoTrustedRoots => {
                f.write_str("no trusted CA certificates: install those of the system, or set ca_file")
            }
            TlsError::GenerateSelfSigned(_) => f.write_str("cannot generate a self-signed certificate"),
            TlsError::Generate(_) => f.write_str("cannot generate a key or a certificate request"),
            TlsError::WriteSelfSigned { folder, .. } => {
                write!(f, "cannot write a self-signed certificate to {}", folder.display())
            }
            TlsError::Library(_) => f.write_str("TLS cannot be set up"),
        }
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TlsError::Unreadable { source, .. } => Some(source),
            TlsError::Invalid { source, .. } | TlsError::Library(source) => Some(source),
            TlsError::InvalidLeaf { source, .. } => Some(source),
            TlsError::GenerateSelfSigned(source) | TlsError::Generate(source) => Some(source),
            TlsError::WriteSelfSigned { source, .. } => Some(source),
            TlsError::Lax(_)
            | TlsError::LostSections { .. }
            | TlsError::NoCertificate { .. }
            | TlsError::NoCertificateConfigured
            | TlsError::NoExpiry { .. }
            | TlsError::KeyMismatch { .. }
            | TlsError::InvalidRevocationList { .. }
            | TlsError::ClientVerifier(_)
            | TlsError::NoTrustedRoots => None,
        }
    }
}
