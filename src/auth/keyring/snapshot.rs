//! The keys in force at one moment, and the swap to the next snapshot.
//!
//! A swap that removes a key, or changes the policy of an issuer, increments the **revision**. A token that was
//! verified under another revision is checked again, so a removed key stops working at once, also for known tokens.
//! The check costs no signature if the token's own key and the policy of its issuer are unchanged: a rotation, which
//! adds a key and later removes another one, leaves the other known tokens valid.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::own_issuer::OwnIssuer;
use super::own_refetch::OwnRefetch;
use super::refetch::RefetchOutcome;
use super::source::Source;
use crate::tokens::jwt::verify::TrustedIssuer;
use crate::types::clock::Uptime;

pub struct Keys {
    /// The gateway itself, which is the first one, and the other issuers.
    pub issuers: Vec<TrustedIssuer>,
    /// What the gateway has as an issuer besides its entry in `issuers`.
    own: OwnIssuer,
    /// Where the keys of the other issuers come from.
    sources: Vec<Arc<Source>>,
}

impl Keys {
    /// The gateway as the only issuer.
    pub fn new(own: OwnIssuer) -> Self {
        Keys { issuers: vec![own.trusted.clone()], own, sources: Vec::new() }
    }

    /// The key that signs, the keys that are published, and how long services may cache them.
    pub fn own(&self) -> &OwnIssuer {
        &self.own
    }

    /// The issuers that are accepted for the bearer token of a refresh.
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

    /// A copy with these sources and the keys that they have now.
    fn with_sources(&self, sources: Vec<Arc<Source>>) -> Keys {
        let own = [self.own.trusted.clone()];
        let issuers = own.into_iter().chain(sources.iter().map(|source| source.trusted())).collect();
        Keys { issuers, own: self.own.clone(), sources }
    }

    /// Returns true if every key of `earlier` is still here, under the same policy.
    fn has_all(&self, earlier: &Keys) -> bool {
        earlier
            .issuers
            .iter()
            .all(|before| self.issuers.iter().any(|now| now.policy == before.policy && now.keys.has_all(&before.keys)))
    }
}

/// What came of a question for the keys of an issuer.
pub struct Refetched {
    pub outcome: RefetchOutcome,
    /// The last question failed. Then a token with an unknown key may still be valid.
    pub is_failing: bool,
}

/// What uses the keys of sources.
pub trait KeyUser: Send + Sync {
    fn sources(&self) -> Vec<Arc<Source>>;

    fn replace_sources(&self, sources: Vec<Arc<Source>>);

    /// Puts in force the keys that the sources have now.
    fn publish(&self);
}

impl KeyUser for Keyring {
    fn sources(&self) -> Vec<Arc<Source>> {
        self.keys.load().sources.clone()
    }

    fn replace_sources(&self, sources: Vec<Arc<Source>>) {
        self.swap(|keys| keys.with_sources(sources));
    }

    fn publish(&self) {
        self.swap(|keys| keys.with_sources(keys.sources.clone()));
    }
}

pub struct Keyring {
    keys: ArcSwap<Keys>,
    revision: AtomicU64,
    /// Held during a swap, so that no two snapshots are made from the same one.
    swapping: Mutex<()>,
    /// `None`: all keys of the gateway itself are known here.
    own_refetch: Option<Arc<OwnRefetch>>,
}

impl Keyring {
    pub fn new(keys: Keys) -> Self {
        Keyring {
            keys: ArcSwap::from_pointee(keys),
            revision: AtomicU64::new(1),
            swapping: Mutex::new(()),
            own_refetch: None,
        }
    }

    /// Other gateways change the keys of the gateway itself, too. [`OwnRefetch::answer`] must then be called.
    pub fn with_own_refetch(self) -> Self {
        Keyring { own_refetch: Some(Arc::default()), ..self }
    }

    pub fn own_refetch(&self) -> Option<&Arc<OwnRefetch>> {
        self.own_refetch.as_ref()
    }

    pub fn keys(&self) -> Arc<Keys> {
        self.keys.load_full()
    }

    /// Read it before the keys: after a swap in between, a verified token counts as older than it is, never as newer.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Makes the next snapshot from the current one.
    pub fn swap(&self, next: impl FnOnce(&Keys) -> Keys) {
        let _guard = self.swapping.lock();
        let before = self.keys.load_full();
        let next = next(&before);
        let has_all = next.has_all(&before);
        self.keys.store(Arc::new(next));
        if !has_all {
            self.revision.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Replaces the keys of the gateway itself.
    pub fn replace_own(&self, own: OwnIssuer) {
        self.swap(|keys| {
            let others = keys.issuers.iter().skip(1).cloned();
            let issuers = [own.trusted.clone()].into_iter().chain(others).collect();
            Keys { issuers, own, sources: keys.sources.clone() }
        });
    }

    /// The source of this issuer's keys. `None` for the gateway itself and for unknown issuers.
    fn source_of(&self, issuer: &str) -> Option<Arc<Source>> {
        self.keys.load().sources.iter().find(|source| *source.policy.issuer == *issuer).cloned()
    }

    /// Why the last fetch of this issuer's keys failed. `None` if it succeeded.
    pub fn fetch_error(&self, issuer: &str) -> Option<String> {
        self.source_of(issuer)?.last_error()
    }

    /// Waits until the keys of this issuer were asked for, because of a token with an unknown key. `None` if all of its
    /// keys are known here, or the issuer is not.
    pub async fn refetch(&self, issuer: &str, now: Uptime) -> Option<Refetched> {
        if let Some(source) = self.source_of(issuer) {
            let outcome = source.refetch(now).await;
            return Some(Refetched { outcome, is_failing: source.is_failing() });
        }
        let own = self.own_refetch.as_ref()?;
        if !self.is_own(issuer) {
            return None;
        }
        let outcome = own.wait(now).await;
        Some(Refetched { outcome, is_failing: own.is_unknown(outcome) })
    }

    /// Returns true for the issuer of the gateway's own tokens.
    pub fn is_own(&self, issuer: &str) -> bool {
        *self.keys.load().own.trusted.policy.issuer == *issuer
    }

    /// Why the gateway is not ready because of its keys. `None` if it is.
    pub fn not_ready(&self, now: Uptime) -> Option<String> {
        self.keys.load().sources.iter().find_map(|source| source.not_ready(now))
    }
}

#[cfg(test)]
impl Keyring {
    /// The gateway with one key, for tests of other modules.
    pub(crate) fn with_a_new_key() -> Self {
        use crate::tokens::jwt::sign::{SigningKey, generate_pem, verifying_keys};
        use crate::tokens::jwt::{Algorithm, Audience, Confirmation, Issuer};
        let policy = Issuer {
            issuer: "https://gateway.example".into(),
            audience: Audience::Any,
            resources: Vec::new(),
            algorithms: vec![Algorithm::ES256],
            types: vec!["at+jwt".into()],
            clock_skew: std::time::Duration::ZERO,
            max_lifetime: std::time::Duration::from_hours(1),
            require_subject: true,
            confirmation: Confirmation::Reject,
            own: true,
        };
        let pem = generate_pem(Algorithm::ES256).expect("a key");
        let signing = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("its own key");
        let keys = Arc::new(verifying_keys([&signing]).expect("a strong key"));
        Keyring::new(Keys::new(OwnIssuer::single_key(TrustedIssuer { policy: Arc::new(policy), keys }, signing)))
    }
}
