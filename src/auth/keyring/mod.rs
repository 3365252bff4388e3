//! The keys in force: of every issuer whose tokens are accepted, and our own that sign.
//!
//! A snapshot that is swapped whole. A swap that takes a key away, or changes an issuer's terms, moves the **generation**; a
//! token that was verified under another generation is asked about again, so a removed key stops working at once, also for
//! tokens that are known. That costs no signature where its own key and its issuer's terms are what they were: a rotation, which
//! adds a key and later takes another away, leaves known tokens known.
//!
//! Keys of others come from a [`Source`] each: a file, or the issuer itself ([`remote`]), kept up to date by a task
//! ([`watch`]) that refreshes them ahead of expiry ([`schedule`]) and for a token whose `kid` is unknown ([`refetch`]). Our
//! own ([`Own`]) come from the store, where the broker rotates them, or from a file.

mod fetch;
mod own;
mod refetch;
mod remote;
mod schedule;
mod settings;
mod source;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::tokens::jwt::verify::TrustedIssuer;
use crate::types::clock::UnixTime;

pub use own::Own;
pub use refetch::RefetchOutcome;
pub use settings::{KeyFile, KeySource, Location, OnStale, Remote, Startup};
pub use source::{Counts, Source};
pub use watch::watch;

/// What is in force at one moment.
pub struct Keys {
    /// The gateway itself, which is the first, and the others.
    pub issuers: Vec<TrustedIssuer>,
    /// What only the gateway has, besides its place among the issuers.
    own: Own,
    /// Where the keys of the others come from.
    sources: Vec<Arc<Source>>,
}

impl Keys {
    /// Our own alone.
    pub fn new(own: Own) -> Self {
        Keys { issuers: vec![own.trusted.clone()], own, sources: Vec::new() }
    }

    /// The key that signs, the keys that are published, and for how long others may keep those.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// Who may have signed the Bearer of a refresh.
    pub fn issuers_at_refresh(&self) -> Vec<TrustedIssuer> {
        let mut issuers = self.issuers.clone();
        if let Some(own) = issuers.first_mut() {
            own.keys = self.own.at_refresh.clone();
        }
        issuers
    }

    pub fn sources(&self) -> &[Arc<Source>] {
        &self.sources
    }

    /// The same, with these sources and the keys that they have now.
    fn with_sources(&self, sources: Vec<Arc<Source>>) -> Keys {
        let own = [self.own.trusted.clone()];
        let issuers = own.into_iter().chain(sources.iter().map(|source| source.trusted())).collect();
        Keys { issuers, own: self.own.clone(), sources }
    }

    /// The same, with other keys of our own.
    fn with_own(&self, own: Own) -> Keys {
        let others = self.issuers.iter().skip(1).cloned();
        let issuers = [own.trusted.clone()].into_iter().chain(others).collect();
        Keys { issuers, own, sources: self.sources.clone() }
    }

    /// Is every key of `earlier` still here, on the same terms?
    fn keep(&self, earlier: &Keys) -> bool {
        earlier
            .issuers
            .iter()
            .all(|before| self.issuers.iter().any(|now| now.policy == before.policy && now.keys.has_all(&before.keys)))
    }
}

pub struct Keyring {
    keys: ArcSwap<Keys>,
    generation: AtomicU64,
    /// Held while a snapshot is made from the one before, so that no two are made from the same.
    swapping: Mutex<()>,
}

impl Keyring {
    pub fn new(keys: Keys) -> Self {
        Keyring { keys: ArcSwap::from_pointee(keys), generation: AtomicU64::new(1), swapping: Mutex::new(()) }
    }

    pub fn keys(&self) -> Arc<Keys> {
        self.keys.load_full()
    }

    /// Read it before the keys: a swap in between then makes what was verified look old, never new.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Makes the next snapshot from the one that is in force.
    pub fn swap(&self, next: impl FnOnce(&Keys) -> Keys) {
        let _alone = self.swapping.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.keys.load_full();
        let next = next(&before);
        let keeps = next.keep(&before);
        self.keys.store(Arc::new(next));
        if !keeps {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Other issuers than before, or the same ones from other sources.
    pub fn replace_sources(&self, sources: Vec<Arc<Source>>) {
        self.swap(|keys| keys.with_sources(sources));
    }

    /// Other keys of the gateway itself.
    pub fn replace_own(&self, own: Own) {
        self.swap(|keys| keys.with_own(own));
    }

    /// Puts in force what the sources have now.
    pub fn publish(&self) {
        self.swap(|keys| keys.with_sources(keys.sources.clone()));
    }

    /// Where the keys of this issuer come from, if it is one of the others.
    pub fn source_of(&self, issuer: &str) -> Option<Arc<Source>> {
        self.keys.load().sources.iter().find(|source| *source.policy.issuer == *issuer).cloned()
    }

    /// Why the gateway is not ready, as far as keys go.
    pub fn unready(&self, now: UnixTime) -> Option<String> {
        self.keys.load().sources.iter().find_map(|source| source.unready(now))
    }
}

#[cfg(test)]
mod tests;
