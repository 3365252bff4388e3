//! Certificates that the gateway gets from an ACME server (RFC 8555): keys, requests, and what comes back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::certificates::{describe, provider};
use super::description::{Description, extension, serial, validity};
use super::error::TlsError;
use super::validity::time;
use crate::types::clock::UnixTime;
use crate::types::der::{SEQUENCE, element, elements};
use crate::types::pem::check_count;
use crate::types::secret::Secret;

/// The protocol of a connection that validates a name (RFC 8737 section 6.2).
pub const VALIDATION_PROTOCOL: &[u8] = b"acme-tls/1";

/// 2.5.29.35 (RFC 5280 section 4.2.1.1).
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];
/// The tag of `keyIdentifier` there.
const KEY_IDENTIFIER: u8 = 0x80;

/// Maximum certificates of a chain, and bytes of it. An authority sends two or three.
const MAX_CHAIN: usize = 8;
const MAX_CHAIN_SIZE: usize = 64 * 1024;

/// A certificate of an ACME server.
pub struct Issued {
    pub certified: Arc<CertifiedKey>,
    pub description: Description,
    pub not_before: UnixTime,
    pub not_after: UnixTime,
    /// How the authority names it for renewal information (RFC 9773 section 4.1). `None` if its issuer has no key
    /// identifier.
    pub id: Option<String>,
}

/// Why a certificate of an authority is not used.
#[derive(Debug, thiserror::Error)]
pub enum IssuedError {
    /// It is for another name, or its key is another one.
    #[error("the certificate cannot be used")]
    Unusable(#[source] TlsError),
    #[error("this is not a certificate chain in PEM")]
    NotPem,
    #[error("the certificate chain is too large")]
    TooLarge,
    #[error("the certificate has other names")]
    WrongNames,
    #[error("the certificate is not valid now; is the clock of this machine right?")]
    WrongTime,
}

impl Issued {
    /// Reads the chain, the leaf first, and checks that it fits the key and is for this name.
    pub fn read(name: &str, chain: &str, key: &Secret) -> Result<Self, IssuedError> {
        if chain.len() > MAX_CHAIN_SIZE {
            return Err(IssuedError::TooLarge);
        }
        let certificates = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|_| IssuedError::NotPem)?;
        check_count(chain.as_bytes(), "CERTIFICATE", certificates.len()).map_err(|_| IssuedError::NotPem)?;
        let leaf = certificates.first().cloned().ok_or(IssuedError::NotPem)?;
        if certificates.len() > MAX_CHAIN {
            return Err(IssuedError::TooLarge);
        }
        let file = PathBuf::from(format!("acme:{name}"));
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.expose().to_vec()));
        let certified = CertifiedKey::from_der(certificates, key, &provider());
        let unusable = |source| IssuedError::Unusable(TlsError::Invalid { file: file.clone(), source });
        let certified = certified.map_err(unusable)?;
        let description = describe(&certified, &file).map_err(IssuedError::Unusable)?;
        match &*description.names {
            [only] if only.eq_ignore_ascii_case(name) => {}
            _ => return Err(IssuedError::WrongNames),
        }
        let (tag, begin) = validity(&leaf).next().ok_or(IssuedError::WrongTime)?;
        let not_before = time(tag, begin).ok_or(IssuedError::WrongTime)?;
        Ok(Issued {
            not_before,
            not_after: UnixTime::from_secs(description.not_after),
            id: id(&leaf),
            certified: Arc::new(certified),
            description,
        })
    }

    /// Fails if the certificate has not begun, or has ended.
    pub fn check_time(&self, now: UnixTime) -> Result<(), IssuedError> {
        // Clocks differ by some minutes, and most authorities date a certificate back by an hour.
        let begins_soon = self.not_before.since(now) <= Duration::from_mins(10);
        if begins_soon && now < self.not_after { Ok(()) } else { Err(IssuedError::WrongTime) }
    }
}

/// A new P-256 key in PKCS#8.
pub fn new_key() -> Result<Secret, TlsError> {
    let key = KeyPair::generate().map_err(TlsError::Generate)?;
    Ok(Secret::new(key.serialize_der()))
}

/// A certificate signing request for this name, in DER.
pub fn signing_request(name: &str, key: &Secret) -> Result<Vec<u8>, TlsError> {
    let key = KeyPair::try_from(key.expose()).map_err(TlsError::Generate)?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(TlsError::Generate)?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(&key).map_err(TlsError::Generate)?.der().to_vec())
}

/// The side of a connection that validates `name`: a certificate with this digest of the key authorization (RFC 8737
/// section 3). It asks for no certificate, issues no tickets, and speaks no other protocol.
pub(super) fn validation_side(name: &str, digest: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    let key = KeyPair::generate().map_err(TlsError::Generate)?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(TlsError::Generate)?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key).map_err(TlsError::Generate)?;
    let key_der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signer = provider().key_provider.load_private_key(key_der).map_err(TlsError::Library)?;
    // Not by `from_der`: its comparison with the key rejects critical extensions that it does not know.
    let certified = CertifiedKey::new(vec![certificate.der().clone()], signer);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Library)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![VALIDATION_PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The key identifier of the issuer and the serial number, each with its leading zeros.
fn id(leaf: &[u8]) -> Option<String> {
    let (identifier, _) = element(extension(leaf, AUTHORITY_KEY_IDENTIFIER)?, SEQUENCE)?;
    let (_, key) = elements(identifier).find(|(tag, _)| *tag == KEY_IDENTIFIER)?;
    Some(format!("{}.{}", URL_SAFE_NO_PAD.encode(key), URL_SAFE_NO_PAD.encode(serial(leaf)?)))
}

#[cfg(test)]
mod tests {
    use rcgen::{Issuer, KeyIdMethod, SerialNumber};

    use super::*;

    /// The example in RFC 9773 section 4.1.
    #[test]
    fn a_certificate_is_named_by_its_issuer_and_serial_number() {
        let identifier = b"\x69\x88\x5b\x6b\x87\x46\x40\x41\xe1\xb3\x7b\x84\x7b\xa0\xae\x2c\xde\x01\xc8\xd4";
        let key = || KeyPair::generate().expect("a key");
        let mut authority = CertificateParams::default();
        authority.key_identifier_method = KeyIdMethod::PreSpecified(identifier.to_vec());
        let issuer = Issuer::new(authority, key());
        let leaf = |has_issuer: bool| {
            let mut params = CertificateParams::default();
            params.serial_number = Some(SerialNumber::from_slice(&[0x87, 0x65, 0x43, 0x21]));
            params.use_authority_key_identifier_extension = has_issuer;
            params.signed_by(&key(), &issuer).expect("a certificate")
        };
        assert_eq!(id(leaf(true).der()).as_deref(), Some("aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE"));
        assert_eq!(id(leaf(false).der()), None);
    }
}
