//! The key in `tokens.signing_key_file`, which another key can replace while the gateway runs.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::tokens::jwt::sign::SigningKey;

#[derive(Clone)]
pub struct KeyFile {
    /// The key that signs. The store has its public half.
    current: Arc<ArcSwap<SigningKey>>,
    /// The key that was read last. It signs as soon as the store has its public half.
    read: Arc<ArcSwap<SigningKey>>,
}

impl KeyFile {
    pub fn new(key: SigningKey) -> Self {
        let key = Arc::new(key);
        KeyFile { current: Arc::new(ArcSwap::new(key.clone())), read: Arc::new(ArcSwap::new(key)) }
    }

    pub(super) fn current(&self) -> Arc<SigningKey> {
        self.current.load_full()
    }

    pub(super) fn read(&self) -> Arc<SigningKey> {
        self.read.load_full()
    }

    /// Another key is in the file.
    pub(super) fn replace(&self, key: SigningKey) {
        self.read.store(Arc::new(key));
    }

    pub(super) fn sign_with(&self, key: Arc<SigningKey>) {
        self.current.store(key);
    }
}
