//! Names that an ACME server certifies, as the listeners know them: their certificates, and the validations that wait
//! for a connection of the authority. `server/acme` fills it, on any thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::error::TlsError;
use super::issued::{Issued, validation_side};
use crate::types::clock::UnixTime;

/// How long a validation waits until this gateway knows what another one has begun.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is known of one name, for operators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AcmeState {
    /// When a new certificate is ordered. `None` if an order is in progress.
    pub next_order: Option<UnixTime>,
    /// Failed orders in a row.
    pub failures: u32,
    /// Why the last order failed.
    pub error: Option<String>,
}

/// A name of `acme`.
#[derive(Default)]
pub struct AcmeName {
    pub issued: Option<Arc<Issued>>,
    /// The digest of the key authorization (RFC 8737 section 3), while its validation is expected.
    pub validation: Option<[u8; 32]>,
    pub state: AcmeState,
}

struct Known {
    names: HashMap<String, Arc<AcmeName>>,
    validations: HashMap<String, ([u8; 32], Arc<ServerConfig>)>,
}

/// Shared by all listeners.
pub struct AcmeCertificates {
    known: ArcSwap<Known>,
    /// How often the certificates have changed.
    changes: watch::Sender<u64>,
    /// How often the store was read.
    reads: watch::Sender<u64>,
    asked: Notify,
    validated: AtomicU64,
}

impl Default for AcmeCertificates {
    fn default() -> Self {
        AcmeCertificates {
            known: ArcSwap::from_pointee(Known { names: HashMap::new(), validations: HashMap::new() }),
            changes: watch::Sender::default(),
            reads: watch::Sender::default(),
            asked: Notify::new(),
            validated: AtomicU64::new(0),
        }
    }
}

impl AcmeCertificates {
    pub fn name(&self, name: &str) -> Option<Arc<AcmeName>> {
        self.known.load().names.get(name).cloned()
    }

    /// Replaces what is known of all names.
    pub fn replace(&self, names: HashMap<String, Arc<AcmeName>>) -> Result<(), TlsError> {
        let known = self.known.load();
        let mut validations = HashMap::new();
        for (name, digest) in names.iter().filter_map(|(name, known)| Some((name, known.validation?))) {
            // Each validation has one key, however often the authority connects.
            let begun = known.validations.get(name).filter(|(begun, _)| *begun == digest);
            let side = begun.map_or_else(|| validation_side(name, &digest), |(_, side)| Ok(side.clone()))?;
            validations.insert(name.clone(), (digest, side));
        }
        let certificate = |names: &HashMap<String, Arc<AcmeName>>, name: &str| {
            names.get(name).and_then(|name| name.issued.as_ref()).map(|issued| Arc::as_ptr(&issued.certified))
        };
        let has_changed = names.len() != known.names.len()
            || names.keys().any(|name| certificate(&names, name) != certificate(&known.names, name));
        self.known.store(Arc::new(Known { names, validations }));
        self.reads.send_modify(|reads| *reads += 1);
        if has_changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
        Ok(())
    }

    /// Changes when a certificate is added, renewed or removed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns when the store is to be read at once.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Has the store read at once.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// The side of a connection that validates this name, if its validation is expected. Another gateway may have begun
    /// it a moment ago.
    pub async fn validation(&self, name: &str) -> Option<Arc<ServerConfig>> {
        let find = || self.known.load().validations.get(name).map(|(_, side)| side.clone());
        let mut reads = self.reads.subscribe();
        let deadline = Instant::now() + PATIENCE;
        loop {
            reads.borrow_and_update();
            if let Some(found) = find() {
                return Some(found);
            }
            self.ask();
            timeout_at(deadline, reads.changed()).await.ok()?.ok()?;
        }
    }

    pub fn count_validation(&self) {
        self.validated.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections by which an authority has validated a name.
    pub fn validations(&self) -> u64 {
        self.validated.load(Ordering::Relaxed)
    }
}

/// The names of one listener.
pub struct AcmeNames {
    /// In lower case.
    pub names: Vec<String>,
    pub certificates: Arc<AcmeCertificates>,
}

impl AcmeNames {
    /// As [`AcmeCertificates::validation`]. Names of other listeners, and unknown ones, are not looked for.
    pub async fn validation(&self, name: Option<&str>) -> Option<Arc<ServerConfig>> {
        let name = name?.to_ascii_lowercase();
        if !self.names.contains(&name) {
            return None;
        }
        self.certificates.validation(&name).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(validation: Option<[u8; 32]>) -> HashMap<String, Arc<AcmeName>> {
        let name = AcmeName { validation, ..AcmeName::default() };
        [("api.example".to_owned(), Arc::new(name))].into()
    }

    #[tokio::test]
    async fn a_validation_that_begins_meanwhile_is_found() {
        let certificates = Arc::new(AcmeCertificates::default());
        let listener = AcmeNames { names: vec!["api.example".into()], certificates: certificates.clone() };
        let reading = certificates.clone();
        let follower = tokio::spawn(async move {
            for validation in [None, Some([7; 32])] {
                reading.asked().await;
                reading.replace(names(validation)).expect("a certificate");
            }
        });
        assert!(listener.validation(Some("API.example")).await.is_some());
        follower.await.expect("no panic");
        for other in [None, Some("other.example"), Some("")] {
            assert!(listener.validation(other).await.is_none(), "{other:?}");
        }
    }

    #[tokio::test]
    async fn a_validation_has_one_key_until_another_begins() {
        let certificates = AcmeCertificates::default();
        let replaced = async |validation| {
            certificates.replace(names(validation)).expect("a certificate");
            certificates.validation("api.example").await
        };
        let first = replaced(Some([1; 32])).await.expect("expected");
        assert!(Arc::ptr_eq(&first, &replaced(Some([1; 32])).await.expect("expected")));
        assert!(!Arc::ptr_eq(&first, &replaced(Some([2; 32])).await.expect("expected")));
        assert!(replaced(None).await.is_none());
    }
}
