//! The certificate that a client has shown, and whether it is still accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConnection;
use rustls::pki_types::{CertificateDer, UnixTime as PkiTime};

use super::client_certificate::ClientCertificate;
use super::server::ServerTls;
use crate::types::clock::UnixTime;

/// How often a reload has replaced the certificates, authorities and lists of listeners.
static RELOADS: AtomicU64 = AtomicU64::new(0);

/// To be called after a reload has replaced them.
pub fn note_reload() {
    RELOADS.fetch_add(1, Ordering::Release);
}

/// Changes with each reload: certificates may have been revoked.
pub fn reloads() -> u64 {
    RELOADS.load(Ordering::Acquire)
}

/// The certificate of a client.
///
/// A connection can live for long after its handshake. So each request compares the end of the certificate with the
/// time. The chain is verified again if the authorities or revocation lists of the listener were read again, and when
/// a list has ended: the certificate may be in no other one.
pub struct PeerCertificate {
    pub certificate: ClientCertificate,
    /// `None` if a proxy has named it.
    listener: Option<Handshake>,
}

struct Handshake {
    /// The leaf first.
    chain: Vec<CertificateDer<'static>>,
    /// Of the listener: a reload replaces it.
    active: Arc<ArcSwap<ServerTls>>,
    /// What verified the chain last.
    verified_by: ArcSwap<ServerTls>,
    /// When the next list of it ends, in milliseconds.
    verified_until: AtomicU64,
}

impl PeerCertificate {
    /// After a handshake with `side`. `None` if the client has shown no certificate.
    pub fn of(session: &ServerConnection, side: &Arc<ServerTls>, active: &Arc<ArcSwap<ServerTls>>) -> Option<Self> {
        let shown = session.peer_certificates()?;
        let chain: Vec<_> = shown.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let certificate = ClientCertificate::parse(chain.first()?, side.verifies_clients())?;
        let handshake = Handshake {
            chain,
            active: active.clone(),
            verified_by: ArcSwap::new(side.clone()),
            verified_until: AtomicU64::new(side.next_list_end(UnixTime::default()).as_millis()),
        };
        Some(PeerCertificate { certificate, listener: Some(handshake) })
    }

    /// A trusted proxy has named it, and may know that it was revoked.
    pub fn named_by_proxy(certificate: ClientCertificate) -> Self {
        PeerCertificate { certificate, listener: None }
    }

    /// From when on the certificate is not accepted.
    pub fn end(&self) -> UnixTime {
        self.certificate.not_after + Duration::from_secs(1)
    }

    /// Checks that the certificate is still accepted. Fails with what is wrong.
    pub fn check(&self, now: UnixTime) -> Result<(), String> {
        if !self.certificate.is_in_time(now) {
            return Err("the certificate has expired".to_owned());
        }
        self.listener.as_ref().map_or(Ok(()), |handshake| handshake.check(now))
    }
}

impl Handshake {
    fn check(&self, now: UnixTime) -> Result<(), String> {
        let active = self.active.load();
        let has_ended = now.as_millis() >= self.verified_until.load(Ordering::Relaxed);
        if !has_ended && Arc::ptr_eq(&active, &self.verified_by.load()) {
            return Ok(());
        }
        let since_epoch = PkiTime::since_unix_epoch(Duration::from_millis(now.as_millis()));
        active.verify_client(&self.chain, since_epoch).map_err(|error| error.to_string())?;
        self.verified_by.store(active.clone());
        self.verified_until.store(active.next_list_end(now).as_millis(), Ordering::Relaxed);
        Ok(())
    }
}
