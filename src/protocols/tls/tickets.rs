//! TLS session tickets that every gateway on one store can open.
//!
//! A ticket is the name of its key, a nonce, and the state of the session, encrypted with AES-256-GCM. The keys are
//! random, one for each window of time, and are deleted after the next one: a recorded ticket can then be opened by no
//! one (RFC 9325 section 3.4). A ticket is only good for the listener that issued it, because another one may ask its
//! clients for more.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::server::ProducesTickets;

use crate::types::secret::{self, Secret};

/// For how long one key encrypts tickets. It opens them during the next window, too.
pub const WINDOW: Duration = Duration::from_hours(6);

const NAME_LEN: usize = 16;

/// One key. Its name is derived from it, and tells nothing about it.
#[derive(Clone)]
pub struct TicketKey {
    /// The number of its window since 1970.
    period: u64,
    name: [u8; NAME_LEN],
    key: Arc<Secret>,
}

impl TicketKey {
    pub fn new(period: u64, key: &Secret) -> Self {
        let mut name = [0; NAME_LEN];
        name.copy_from_slice(&secret::derive(key, b"", "bearward ticket name v1").expose()[..NAME_LEN]);
        TicketKey { period, name, key: Arc::new(secret::derive(key, b"", "bearward ticket key v1")) }
    }
}

/// The keys of all listeners, the newest first. While there are none, no tickets are issued.
#[derive(Default)]
pub struct TicketKeys(ArcSwap<Vec<TicketKey>>);

impl TicketKeys {
    pub fn replace(&self, keys: Vec<TicketKey>) {
        self.0.store(Arc::new(keys));
    }

    /// Deletes the keys of windows before this one, also if no newer ones can be read.
    pub fn forget_before(&self, period: u64) {
        self.0.rcu(|keys| keys.iter().filter(|key| key.period >= period).cloned().collect::<Vec<_>>());
    }
}

/// The tickets of one listener.
pub(super) struct Tickets {
    pub(super) keys: Arc<TicketKeys>,
    /// The same at every gateway.
    pub(super) listener: String,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        !self.keys.0.load().is_empty()
    }

    /// A ticket from the end of a window can be opened for one more.
    fn lifetime(&self) -> u32 {
        u32::try_from(WINDOW.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys.0.load();
        let newest = keys.first()?;
        let sealed = secret::seal(&newest.key, &self.listener, plain)?;
        Some([newest.name.as_slice(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, sealed) = ticket.split_at_checked(NAME_LEN)?;
        let keys = self.keys.0.load();
        let key = keys.iter().find(|key| key.name == name)?;
        Some(secret::unseal(&key.key, &self.listener, sealed)?.expose().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(keys: &[u8], listener: &str) -> Tickets {
        let shared = TicketKeys::default();
        shared
            .replace(keys.iter().map(|byte| TicketKey::new(u64::from(*byte), &Secret::new(vec![*byte; 32]))).collect());
        Tickets { keys: Arc::new(shared), listener: listener.into() }
    }

    #[test]
    fn each_gateway_with_the_key_opens_the_ticket_of_its_listener() {
        let ticket = tickets(&[1], "a").encrypt(b"state").expect("there is a key");
        assert_eq!(tickets(&[2, 1], "a").decrypt(&ticket).as_deref(), Some(&b"state"[..]));
        for (keys, listener) in [(&[2, 1][..], "b"), (&[2, 3], "a"), (&[], "a")] {
            assert_eq!(tickets(keys, listener).decrypt(&ticket), None, "{keys:?} {listener}");
        }
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(tickets(&[1], "a").decrypt(&changed), None, "byte {place}");
        }
        assert_eq!(tickets(&[1], "a").decrypt(&ticket[..15]), None);
        let old = tickets(&[2, 1], "a");
        old.keys.forget_before(2);
        assert_eq!(old.decrypt(&ticket), None, "its key is deleted");
        assert!(old.enabled());
        assert!(!tickets(&[], "a").enabled() && tickets(&[], "a").encrypt(b"state").is_none());
    }
}
