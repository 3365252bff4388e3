//! Client certificates of a listener: who has to show one, and which are accepted.
//!
//! One policy holds for a whole listener. Chosen by SNI or Host, a client could reach a host under the policy of
//! another one (Traefik GHSA-5r4w-85f3-pw66).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime as PkiTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::certificates::{provider, read_certificates};
use super::client_certificate::ClientCertificate;
use super::coverage::{Coverage, coverage};
use super::error::TlsError;
use super::revocation::OverlappingLists;
use super::revocation_lists::read_revocation_lists;
use crate::types::clock::UnixTime;
use crate::types::pem::check_count;
use crate::types::reject::with_causes;

/// A longer chain costs the gateway more signatures than an honest client has (Go CVE-2018-16875).
const MAX_CHAIN: usize = 8;
const MAX_CHAIN_SIZE: usize = 16 * 1024;

/// `listener.client_certificate`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPolicy {
    /// A client may show any certificate, also a self-signed one. It proves only that the client has its key.
    Any,
    /// A client may show a certificate of `client_ca`. With any other one, its handshake fails.
    Optional,
    /// A client must show a certificate of `client_ca`.
    Required,
}

/// The keys of a listener about the certificates of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientAuthSettings {
    pub policy: ClientPolicy,
    /// `listener.client_ca`. `None` only for [`ClientPolicy::Any`].
    pub ca: Option<PathBuf>,
    /// `listener.client_crl`
    pub lists: Vec<PathBuf>,
}

/// What a client shows in a handshake, the leaf first.
pub type ClientChain = Vec<CertificateDer<'static>>;

/// The chain in a text of PEM. `None` if it has no certificate, or one that cannot be read.
pub fn client_chain(text: &[u8]) -> Option<ClientChain> {
    let chain: Option<ClientChain> = CertificateDer::pem_slice_iter(text).map(Result::ok).collect();
    chain.filter(|chain| !chain.is_empty() && check_count(text, "CERTIFICATE", chain.len()).is_ok())
}

/// The certificate of a client that shows this chain at a listener with these settings. Fails as the handshake would.
pub fn accept_client(
    settings: &ClientAuthSettings,
    chain: &ClientChain,
    now: UnixTime,
) -> Result<ClientCertificate, String> {
    let clients = ClientAuth::read(settings).map_err(|error| with_causes(&error))?;
    let since_epoch = PkiTime::since_unix_epoch(Duration::from_millis(now.as_millis()));
    clients.verify(chain, since_epoch).map_err(|error| error.to_string())?;
    let leaf = chain.first().and_then(|leaf| ClientCertificate::parse(leaf, clients.is_verified()));
    leaf.ok_or_else(|| "there is no certificate".to_owned())
}

fn sha256(content: &[u8]) -> Vec<u8> {
    digest(&SHA256, content).as_ref().to_vec()
}

/// Verifies the certificates of clients.
#[derive(Debug)]
pub(super) struct ClientAuth {
    pub(super) policy: ClientPolicy,
    /// `None`: the client only has to prove that it has the key.
    chains: Option<Arc<dyn ClientCertVerifier>>,
    /// `None`: `chains` checks the revocation lists.
    revocation: Option<OverlappingLists>,
    algorithms: WebPkiSupportedAlgorithms,
    /// SHA-256 of what was read from each file.
    contents: Vec<Vec<u8>>,
    pub(super) coverage: Vec<Coverage>,
    /// When each list ends.
    pub(super) list_ends: Vec<UnixTime>,
}

impl ClientAuth {
    /// Reads the files.
    pub(super) fn read(settings: &ClientAuthSettings) -> Result<Self, TlsError> {
        let algorithms = provider().signature_verification_algorithms;
        let policy = settings.policy;
        let Some(ca) = &settings.ca else {
            return Ok(ClientAuth {
                policy,
                chains: None,
                revocation: None,
                algorithms,
                contents: Vec::new(),
                coverage: Vec::new(),
                list_ends: Vec::new(),
            });
        };
        let authorities = read_certificates(ca)?;
        let mut contents: Vec<_> = authorities.iter().map(|certificate| sha256(certificate)).collect();
        let files: Vec<_> = settings.lists.iter().map(|file| read_revocation_lists(file)).collect::<Result<_, _>>()?;
        // Without any list, nothing is revoked.
        let coverage = if files.is_empty() { Vec::new() } else { coverage(&authorities, &files) };
        let mut roots = RootCertStore::empty();
        for certificate in authorities {
            roots.add(certificate).map_err(|source| TlsError::Invalid { file: ca.clone(), source })?;
        }
        let roots = Arc::new(roots);
        let lists: Vec<_> = files.into_iter().flat_map(|read| read.lists).collect();
        contents.extend(lists.iter().map(|list| sha256(&list.der)));
        let list_ends = lists.iter().map(|list| list.end).collect();
        let crls: Vec<_> = lists.into_iter().map(|list| list.der).collect();
        let unreadable = |error: webpki::Error| TlsError::ClientVerifier(error.to_string());
        let revocation = OverlappingLists::read(&crls, &roots, algorithms).map_err(unreadable)?;
        let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
        if revocation.is_none() {
            builder = builder.with_crls(crls);
        }
        // By default, rustls ignores that a list has ended.
        builder = builder.enforce_revocation_expiration();
        let chains = builder.build().map_err(|source| TlsError::ClientVerifier(source.to_string()))?;
        Ok(ClientAuth { policy, chains: Some(chains), revocation, algorithms, contents, coverage, list_ends })
    }

    /// Returns true if `client_ca` has signed the certificates of clients.
    pub(super) fn is_verified(&self) -> bool {
        self.chains.is_some()
    }

    pub(super) fn has_files_of(&self, other: &ClientAuth) -> bool {
        self.contents == other.contents
    }

    /// Verifies a chain, the leaf first.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>], now: PkiTime) -> Result<(), Error> {
        let (leaf, others) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        self.verify_client_cert(leaf, others, now).map(|_| ())
    }
}

impl ClientCertVerifier for ClientAuth {
    fn client_auth_mandatory(&self) -> bool {
        self.policy == ClientPolicy::Required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.as_ref().map_or(&[], |chains| chains.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: PkiTime,
    ) -> Result<ClientCertVerified, Error> {
        let size = leaf.len() + others.iter().map(|certificate| certificate.len()).sum::<usize>();
        if others.len() >= MAX_CHAIN || size > MAX_CHAIN_SIZE {
            return Err(Error::General("the chain of the client is too long".to_owned()));
        }
        // Whatever signed it: the gateway must be able to read its dates and names.
        let Some(read) = ClientCertificate::parse(leaf, false) else {
            return Err(CertificateError::BadEncoding.into());
        };
        match &self.chains {
            Some(chains) => {
                let verified = chains.verify_client_cert(leaf, others, now)?;
                let checked = self.revocation.as_ref().map_or(Ok(()), |lists| lists.check(leaf, others, now));
                checked.map(|()| verified)
            }
            None if read.is_in_time(UnixTime::from_secs(now.as_secs())) => Ok(ClientCertVerified::assertion()),
            None => Err(CertificateError::Expired.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
