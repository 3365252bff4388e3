//! Authentication of a client by the certificate of its TLS handshake (RFC 8705 section 2). Pure.

use std::fmt;

use crate::protocols::tls::{ClientCertificate, Name};
use crate::types::thumbprint::Thumbprint;

/// Which certificate a client of `[[oauth.client]]` authenticates with.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpectedCertificate {
    /// `tls_client_auth` (section 2.1): one that an authority of the operator has signed, with this name.
    Named(ExpectedName),
    /// `self_signed_tls_client_auth` (section 2.2): one of these. Who signed it does not count.
    OneOf(Vec<Thumbprint>),
}

/// The one name that a client is registered with (section 2.1.2).
#[derive(Clone, Debug, PartialEq)]
pub enum ExpectedName {
    /// The whole subject, as [`ClientCertificate::subject`] has it.
    Subject(String),
    /// A name in `subjectAltName`. A certificate may have others beside it.
    Alternative(Name),
}

impl ExpectedCertificate {
    /// Checks the certificate of the request's own connection, or the one that a trusted proxy names. Its dates, and
    /// whether it was revoked, were checked before. Fails with what is wrong.
    pub fn check(&self, shown: Option<&ClientCertificate>) -> Result<(), String> {
        let shown = shown.ok_or("the client has shown no certificate")?;
        let text = shown.thumbprint_text();
        match self {
            // Without an authority, its holder has chosen the names.
            ExpectedCertificate::Named(_) if !shown.is_verified => Err(format!("no authority has verified {text}")),
            ExpectedCertificate::Named(name) if !name.is_of(shown) => Err(format!("{text} has not the name {name}")),
            ExpectedCertificate::OneOf(known) if !known.contains(&Thumbprint::from_bytes(shown.thumbprint)) => {
                Err(format!("{text} is not registered"))
            }
            ExpectedCertificate::Named(_) | ExpectedCertificate::OneOf(_) => Ok(()),
        }
    }

    /// The name in `token_endpoint_auth_methods_supported` (sections 2.1.1 and 2.2.1).
    pub fn method(&self) -> &'static str {
        match self {
            ExpectedCertificate::Named(_) => "tls_client_auth",
            ExpectedCertificate::OneOf(_) => "self_signed_tls_client_auth",
        }
    }
}

impl ExpectedName {
    fn is_of(&self, shown: &ClientCertificate) -> bool {
        match self {
            ExpectedName::Subject(subject) => *subject == shown.subject,
            ExpectedName::Alternative(name) => shown.names.contains(name),
        }
    }
}

impl fmt::Display for ExpectedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpectedName::Subject(subject) => write!(f, "subject:{subject}"),
            ExpectedName::Alternative(name) => name.fmt(f),
        }
    }
}
