//! The entries of the store as this gateway knows them, and what the listeners make of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;

use super::failure::Failure;
use super::settings::AcmeSettings;
use super::state::{self, Account, NameState, account_entry, name_entry};
use crate::protocols::tls::{AcmeCertificates, AcmeName, AcmeState, Issued};
use crate::store::{AcmeEntry, Store, StoreError};
use crate::tokens::family::refresh_token::Roots;
use crate::types::clock::UnixTime;
use crate::types::reject::with_causes;
use crate::types::secret::Secret;

/// Which names this gateway serves, and how it gets certificates for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// In lower case, each once.
    pub names: Vec<String>,
    pub settings: Arc<AcmeSettings>,
}

/// What happened, for the metrics.
#[derive(Default)]
pub struct AcmeCounts {
    pub issued: AtomicU64,
    pub failed: AtomicU64,
}

/// Cheap to read; a change goes to the store first.
pub struct Entries {
    pub(super) store: Arc<dyn Store>,
    roots: Arc<Roots>,
    /// `timeouts.store`
    patience: Duration,
    pub certificates: Arc<AcmeCertificates>,
    pub(super) wanted: watch::Sender<Wanted>,
    pub counts: AcmeCounts,
    /// The operator wants failed orders repeated now.
    repeats: AtomicBool,
    known: Mutex<HashMap<String, Known>>,
}

/// An entry, opened.
struct Known {
    version: u64,
    root: u8,
    content: Content,
}

enum Content {
    Account(Account),
    Name {
        state: Box<NameState>,
        issued: Option<Arc<Issued>>,
    },
    /// It cannot be opened, and is written anew.
    Unreadable,
}

impl Entries {
    pub fn new(store: Arc<dyn Store>, roots: Arc<Roots>, patience: Duration, wanted: Wanted) -> Self {
        Entries {
            store,
            roots,
            patience,
            certificates: Arc::default(),
            wanted: watch::Sender::new(wanted),
            counts: AcmeCounts::default(),
            repeats: AtomicBool::new(false),
            known: Mutex::default(),
        }
    }

    /// Applies names and settings of a reload. What has failed is tried again now: the operator may have repaired it.
    pub fn set_wanted(&self, wanted: Wanted) {
        self.repeats.store(true, Ordering::Relaxed);
        self.wanted.send_replace(wanted);
        self.publish();
        self.certificates.ask();
    }

    /// The names that are wanted now.
    pub fn names(&self) -> Vec<String> {
        self.wanted.borrow().names.clone()
    }

    /// Returns true if failed orders are to be repeated now. The next call returns false.
    pub(super) fn take_repeats(&self) -> bool {
        self.repeats.swap(false, Ordering::Relaxed)
    }

    /// Reads what has changed in the store since the last call.
    pub async fn read(&self) -> Result<(), StoreError> {
        let versions = self.known.lock().iter().map(|(name, known)| (name.clone(), known.version)).collect();
        let changed = self.within_patience(self.store.acme_entries(versions)).await?;
        for entry in changed {
            self.learn(&entry);
        }
        self.publish();
        Ok(())
    }

    pub(super) async fn within_patience<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let late = |_| Err(StoreError::new(format!("the store did not respond within {:?}", self.patience)));
        timeout(self.patience, call).await.unwrap_or_else(late)
    }

    /// The state of a name, and the version of its entry.
    pub(super) fn state(&self, name: &str) -> (u64, NameState) {
        match self.known.lock().get(&name_entry(name)) {
            Some(Known { version, content: Content::Name { state, .. }, .. }) => (*version, NameState::clone(state)),
            other => (other.map_or(0, |known| known.version), NameState::default()),
        }
    }

    /// The certificate of a name.
    pub(super) fn issued(&self, name: &str) -> Option<Arc<Issued>> {
        match &self.known.lock().get(&name_entry(name))?.content {
            Content::Name { issued, .. } => issued.clone(),
            _ => None,
        }
    }

    /// The key of an account in PKCS#8, and the version of its entry.
    pub(super) fn account(&self, directory: &str) -> (u64, Option<Secret>) {
        match self.known.lock().get(&account_entry(directory)) {
            None => (0, None),
            Some(Known { version, content: Content::Account(account), .. }) => {
                (*version, Some(Secret::new(account.key.clone())))
            }
            Some(known) => (known.version, None),
        }
    }

    /// Orders of all names, also of those that are no longer wanted.
    pub(super) fn begun_since_an_hour(&self, now: UnixTime) -> usize {
        let begun = |known: &Known| match &known.content {
            Content::Name { state, .. } => state.begun_since_an_hour(now),
            _ => 0,
        };
        self.known.lock().values().map(begun).sum()
    }

    /// Names with an entry that an older root secret seals.
    pub(super) fn is_sealed_before(&self, name: &str) -> bool {
        self.known.lock().get(&name_entry(name)).is_some_and(|known| known.root != self.roots.newest())
    }

    /// The directories of accounts with an entry that an older root secret seals.
    pub(super) fn accounts_sealed_before(&self) -> Vec<String> {
        let newest = self.roots.newest();
        let directory = |(entry, known): (&String, &Known)| match known.content {
            Content::Account(_) if known.root != newest => Some(entry.split_once(' ')?.1.to_owned()),
            _ => None,
        };
        self.known.lock().iter().filter_map(directory).collect()
    }

    /// Seals an account with the newest root secret: without it, the next order would need a new account, which a CAA
    /// record (RFC 8657) can forbid.
    pub(super) async fn seal_account_again(&self, directory: &str) -> Result<(), Failure> {
        let (version, Some(key)) = self.account(directory) else { return Ok(()) };
        self.save_account(directory, version + 1, key.expose().to_vec()).await
    }

    /// Entries of names that no listener wants any more: their certificate has ended.
    pub(super) fn outdated(&self, now: UnixTime) -> Vec<(String, u64)> {
        let wanted = self.wanted.borrow();
        let is_outdated = |(entry, known): &(&String, &Known)| {
            let Content::Name { state, .. } = &known.content else { return false };
            let ends = state.certificate.as_ref().map_or(0, |certificate| certificate.life.1);
            let last = state.begun.last().copied().unwrap_or_default().max(state.retry_at).max(ends);
            now > UnixTime::from_secs(last) + Duration::from_hours(7 * 24)
                && !wanted.names.iter().any(|name| name_entry(name) == **entry)
        };
        self.known.lock().iter().filter(is_outdated).map(|(entry, known)| (entry.clone(), known.version)).collect()
    }

    pub(super) async fn forget(&self, name: String, version: u64) -> Result<(), StoreError> {
        let deleted = AcmeEntry { name: name.clone(), version: version + 1, root: 0, sealed: Vec::new() };
        if self.within_patience(self.store.save_acme_entry(deleted)).await? {
            self.known.lock().remove(&name);
        }
        Ok(())
    }

    pub(super) async fn save_state(&self, name: &str, version: u64, state: &NameState) -> Result<(), Failure> {
        self.save(name_entry(name), version, state).await
    }

    pub(super) async fn save_account(&self, directory: &str, version: u64, key: Vec<u8>) -> Result<(), Failure> {
        self.save(account_entry(directory), version, &Account { key }).await
    }

    /// Fails if another gateway was faster.
    async fn save(&self, name: String, version: u64, content: &impl Serialize) -> Result<(), Failure> {
        let entry = state::seal(name, version, content, &self.roots).ok_or(Failure::NoRootSecret)?;
        if self.within_patience(self.store.save_acme_entry(entry.clone())).await? {
            self.learn(&entry)
        } else {
            return Err(Failure::Overtaken);
        }
        self.publish();
        Ok(())
    }

    fn learn(&self, entry: &AcmeEntry) {
        let mut all = self.known.lock();
        let content = self.open(entry, all.get(&entry.name));
        let known = Known { version: entry.version, root: entry.root, content };
        // An answer of the store may be older than what was written meanwhile.
        if all.get(&entry.name).is_none_or(|before| before.version < known.version) {
            all.insert(entry.name.clone(), known);
        }
    }

    fn open(&self, entry: &AcmeEntry, before: Option<&Known>) -> Content {
        let content = match entry.name.split_once(' ') {
            Some(("account", _)) => state::open(entry, &self.roots).map(Content::Account),
            Some(("name", name)) => state::open(entry, &self.roots)
                .map(|state| Content::name(name, state, before.map(|known| &known.content))),
            _ => None,
        };
        content.unwrap_or_else(|| {
            tracing::warn!(
                entry = entry.name,
                "cannot open an entry of ACME in the store: its root secret is missing, or it was changed; the gateway \
                 makes a new one"
            );
            Content::Unreadable
        })
    }

    /// Hands the wanted names to the listeners.
    pub(super) fn publish(&self) {
        let names = self.wanted.borrow().names.clone();
        let directory = self.wanted.borrow().settings.directory.text();
        let named = names.into_iter().map(|name| (name.clone(), Arc::new(self.name(&name, &directory)))).collect();
        if let Err(error) = self.certificates.replace(named) {
            tracing::error!(error = with_causes(&error), "cannot make a certificate for a validation");
        }
    }

    fn name(&self, name: &str, directory: &str) -> AcmeName {
        let (_, state) = self.state(name);
        let validation = state.order.as_ref().and_then(|order| order.validation);
        let next_order = (validation.is_none()).then(|| state.order_at(directory));
        AcmeName {
            issued: self.issued(name),
            validation,
            state: AcmeState { next_order, failures: state.failures, error: state.error },
        }
    }
}

impl Content {
    /// A certificate that stays is not read again: the listeners notice only new ones.
    fn name(name: &str, state: NameState, before: Option<&Content>) -> Self {
        let of_before = match before {
            Some(Content::Name { state, issued: Some(issued) }) => state.certificate.as_ref().zip(Some(issued)),
            _ => None,
        };
        let issued = state.certificate.as_ref().and_then(|certificate| {
            if let Some((_, issued)) = of_before.filter(|(before, _)| before.chain == certificate.chain) {
                return Some(issued.clone());
            }
            let issued = Issued::read(name, &certificate.chain, &Secret::new(certificate.key.clone()));
            let error = |error| tracing::error!(name, error = with_causes(&error), "cannot use a stored certificate");
            issued.map_err(error).ok().map(Arc::new)
        });
        Content::Name { state: Box::new(state), issued }
    }
}

impl AcmeCounts {
    pub(super) fn count(&self, is_issued: bool) {
        let counter = if is_issued { &self.issued } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
