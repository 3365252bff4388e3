//! The keys in force: of every issuer whose tokens are accepted, and our own that sign.
//!
//! A snapshot that is swapped whole. Each swap moves the **generation**; a token that was verified under another generation
//! is verified again, so a removed key stops working at once, also for tokens that are known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use serde_json::{Value, json};

use crate::token::sign::SigningKey;
use crate::token::verify::TrustedIssuer;

/// What is in force at one moment.
pub struct Keys {
    /// The gateway itself among them.
    pub issuers: Vec<TrustedIssuer>,
    /// The key that signs.
    pub signing: Arc<SigningKey>,
    /// The body of `/.well-known/jwks.json`.
    pub published: Value,
}

impl Keys {
    /// `retired`: keys of ours that sign no more, and whose tokens may still be about.
    pub fn new(issuers: Vec<TrustedIssuer>, signing: SigningKey, retired: &[SigningKey]) -> Self {
        let public: Vec<Value> = [&signing].into_iter().chain(retired).map(SigningKey::public_jwk).collect();
        Keys { issuers, signing: Arc::new(signing), published: json!({ "keys": public }) }
    }

    /// The same keys of our own, and these of others.
    pub fn with_others(&self, others: Vec<TrustedIssuer>) -> Self {
        let own = self.issuers.iter().filter(|issuer| issuer.policy.own).cloned();
        let issuers = own.chain(others).collect();
        Keys { issuers, signing: self.signing.clone(), published: self.published.clone() }
    }
}

pub struct Keyring {
    keys: ArcSwap<Keys>,
    generation: AtomicU64,
}

impl Keyring {
    pub fn new(keys: Keys) -> Self {
        Keyring { keys: ArcSwap::from_pointee(keys), generation: AtomicU64::new(1) }
    }

    pub fn keys(&self) -> Arc<Keys> {
        self.keys.load_full()
    }

    /// Read it before the keys: a swap in between then makes what was verified look old, never new.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub fn swap(&self, keys: Keys) {
        self.keys.store(Arc::new(keys));
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}
