//! The memory of used proofs, as this configuration wants it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::auth::proofs::{HandedOver, Nonces, Proofs, SharedProofs, UsedProofs};
use crate::config::Config;
use crate::protocols::socket_handover;
use crate::store::Store;
use crate::types::clock::{Clock, UnixTime};

/// For a process that begins now, or takes over from another one. If the store knows what was used before, earlier
/// proofs are good, too.
pub(super) fn of_store(
    config: &Config,
    store: &Arc<dyn Store>,
    predecessor: Option<&UnixStream>,
    clock: &dyn Clock,
) -> Proofs {
    let shared = || SharedProofs { store: store.clone(), timeout: config.store.timeout };
    let shared = config.shares_proofs().then(|| Arc::new(shared()));
    let has_nonces = config.tokens.proof_nonce;
    // A process that had the store beside it did not remember what was used before it began.
    let knows_all = |known: &HandedOver| shared.is_some() || known.of_requests.began > 0;
    let known = predecessor.and_then(handed_over).filter(knows_all);
    if let Some(proofs) = known.and_then(|known| Proofs::taken_over(&known, has_nonces)) {
        return Proofs { shared, ..proofs };
    }
    // Not before: until it has ended its message, the other process accepts proofs.
    let now = clock.now();
    let began = match (&shared, has_nonces) {
        (Some(_), _) => UnixTime::default(),
        // Its nonces are of this process alone.
        (None, true) => now,
        // `iat` is in whole seconds: of a proof of this one, it is not known whether it was used before.
        (None, false) => now.to_next_second(),
    };
    let used = || Arc::new(UsedProofs::new(began));
    let nonces = has_nonces.then(|| Arc::new(Nonces::new(now)));
    Proofs { used: used(), used_for_grants: used(), shared, nonces, only_checks: false }
}

/// `None` if the other process does not tell: then this one accepts no proof of before, as after a restart.
fn handed_over(predecessor: &UnixStream) -> Option<HandedOver> {
    let message = socket_handover::read_message(predecessor);
    let message = message.inspect_err(|error| {
        tracing::warn!(%error, "cannot read which proofs the other gateway has accepted: older ones are rejected");
    });
    HandedOver::from_bytes(&message.ok()?)
}
