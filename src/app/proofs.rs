//! How this configuration remembers proofs.

use std::sync::Arc;

use crate::auth::proofs::{Nonces, Proofs, SharedProofs, UsedProofs};
use crate::config::Config;
use crate::store::Store;
use crate::types::clock::UnixTime;

/// For a process that begins now. If the store knows what was used before, earlier proofs are good, too.
pub(super) fn of_store(config: &Config, store: &Arc<dyn Store>, now: UnixTime) -> Proofs {
    let shared = || SharedProofs { store: store.clone(), timeout: config.store.timeout };
    let shared = config.shares_proofs().then(|| Arc::new(shared()));
    let began = if shared.is_some() { UnixTime::default() } else { now };
    let nonces = config.tokens.proof_nonce.then(|| Arc::new(Nonces::new(now)));
    Proofs { used: Arc::new(UsedProofs::new(began)), shared, nonces }
}
