//! Creates, seals and loads the gateway's own signing keys.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::key_error::KeysError;
use super::store_error::timeout_error;
use crate::auth::keyring::{OwnIssuer, OwnKeysError};
use crate::store::{DecideKeys, KeysChanged, Store};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::jwt::sign::{SigningKey, generate_pem};
use crate::tokens::jwt::{Algorithm, Issuer, algorithm_name};
use crate::tokens::signing::{KeyLifetimes, StoredKey, schedule, seal};
use crate::types::clock::UnixTime;
use crate::types::secret::Secret;

#[derive(Clone)]
pub struct KeyTools {
    pub store: Arc<dyn Store>,
    /// `timeouts.store`
    pub store_timeout: Duration,
    pub roots: Arc<Roots>,
    pub lifetimes: KeyLifetimes,
    /// The policy for the gateway's own tokens, with every algorithm that a key may have.
    pub policy: Issuer,
}

impl KeyTools {
    /// Loads the keys at a start. Creates the first one, makes the changes that are due, and seals again under the
    /// newest root secret what an older one seals.
    pub async fn load(&self, now: UnixTime) -> Result<Vec<StoredKey>, KeysError> {
        let found = self.with_timeout(self.change(Box::new(|keys| keys), now.into())).await?.after;
        let resealed = self.reseal(&found)?;
        let created = match schedule::needs_new_key(&found, &self.lifetimes, now) {
            true => Some(self.create(now).await?),
            false => None,
        };
        let lifetimes = self.lifetimes;
        let advance = move |keys: Vec<StoredKey>| {
            let keys = keys.into_iter().map(|key| with_new_seal(key, &resealed)).collect();
            schedule::advance(keys, &lifetimes, created.as_ref(), now)
        };
        Ok(self.with_timeout(self.change(Box::new(advance), now.into())).await?.after)
    }

    /// The gateway as an issuer, with these keys at `now`.
    pub fn own_issuer(&self, keys: &[StoredKey], now: UnixTime) -> Result<OwnIssuer, OwnKeysError> {
        OwnIssuer::from_stored(&self.policy, keys, &self.roots, &self.lifetimes, now)
    }

    /// The keys that can be opened. A running gateway continues without the others: one damaged row must not prevent
    /// the revocation of another key.
    pub(super) fn usable(&self, keys: &[StoredKey]) -> Vec<StoredKey> {
        let is_usable = |key: &&StoredKey| key.sealed.is_empty() || seal::open(key, &self.roots).is_ok();
        keys.iter().filter(is_usable).cloned().collect()
    }

    /// Waits for at most `timeouts.store`.
    pub(super) async fn with_timeout<T>(
        &self,
        call: impl Future<Output = Result<T, KeysError>>,
    ) -> Result<T, KeysError> {
        let limit = self.store_timeout;
        timeout(limit, call).await.unwrap_or_else(|_| Err(timeout_error(limit).into()))
    }

    pub(super) async fn change(&self, decide: DecideKeys, context: EventContext) -> Result<KeysChanged, KeysError> {
        Ok(self.store.change_signing_keys(decide, context).await?)
    }

    /// Creates a key that is not in the store yet. On a blocking thread, because an RSA key takes a while.
    pub(super) async fn create(&self, now: UnixTime) -> Result<StoredKey, KeysError> {
        let algorithm = self.lifetimes.algorithm;
        let (kid, pem) = tokio::task::spawn_blocking(move || create_pem(algorithm)).await??;
        let (root, sealed) = seal::seal(&kid, &pem, &self.roots).map_err(KeysError::key)?;
        Ok(StoredKey {
            kid,
            algorithm: algorithm_name(algorithm).into(),
            root,
            sealed,
            created_at: now,
            activated_at: None,
            retired_at: None,
            revoked_at: None,
            token_life: Duration::ZERO,
        })
    }

    fn reseal(&self, keys: &[StoredKey]) -> Result<Vec<StoredKey>, KeysError> {
        let older = keys.iter().filter(|key| needs_new_seal(key, self.roots.newest()));
        let resealed = older.map(|key| {
            let pem = seal::unseal(key, &self.roots).map_err(KeysError::key)?;
            let (root, sealed) = seal::seal(&key.kid, &pem, &self.roots).map_err(KeysError::key)?;
            tracing::info!(kid = key.kid, from = key.root, to = root, "sealed a signing key under another root secret");
            Ok(StoredKey { root, sealed, ..key.clone() })
        });
        resealed.collect()
    }
}

fn create_pem(algorithm: Algorithm) -> Result<(String, Secret), KeysError> {
    let pem = generate_pem(algorithm).map_err(KeysError::key)?;
    let key = SigningKey::from_pem(pem.expose(), algorithm).map_err(KeysError::key)?;
    Ok((key.kid, pem))
}

/// A key that was revoked for good has no seal.
fn needs_new_seal(key: &StoredKey, newest_root: u8) -> bool {
    key.root != newest_root && !key.sealed.is_empty()
}

fn with_new_seal(key: StoredKey, resealed: &[StoredKey]) -> StoredKey {
    match resealed.iter().find(|other| other.kid == key.kid && !key.sealed.is_empty()) {
        Some(other) => StoredKey { root: other.root, sealed: other.sealed.clone(), ..key },
        None => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kid: &str, root: u8, sealed: &[u8]) -> StoredKey {
        StoredKey {
            kid: kid.into(),
            algorithm: "ES256".into(),
            root,
            sealed: sealed.into(),
            created_at: UnixTime::from_secs(1),
            activated_at: None,
            retired_at: None,
            revoked_at: None,
            token_life: Duration::ZERO,
        }
    }

    #[test]
    fn only_a_seal_of_an_older_root_secret_is_replaced() {
        for (root, sealed, expected) in [(1, &b"x"[..], true), (2, b"x", false), (1, b"", false), (2, b"", false)] {
            assert_eq!(needs_new_seal(&key("a", root, sealed), 2), expected, "{root} {sealed:?}");
        }
    }

    #[test]
    fn each_key_gets_its_own_new_seal() {
        let resealed = [key("a", 2, b"new a"), key("b", 2, b"new b")];
        for (before, after) in [
            (key("a", 1, b"old a"), key("a", 2, b"new a")),
            (key("b", 1, b"old b"), key("b", 2, b"new b")),
            (key("c", 1, b"old c"), key("c", 1, b"old c")),
            // Revoked for good in the meantime.
            (key("a", 1, b""), key("a", 1, b"")),
        ] {
            assert_eq!(with_new_seal(before, &resealed), after);
        }
    }
}
