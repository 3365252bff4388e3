//! Creates, seals and loads the gateway's own signing keys.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::key_error::KeysError;
use super::key_file::KeyFile;
use crate::auth::keyring::{OwnIssuer, OwnKeysError};
use crate::store::{DecideKeys, KeysChanged, Store, StoreError};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::jwt::sign::{SigningKey, generate_pem};
use crate::tokens::jwt::{Algorithm, Issuer, algorithm_name};
use crate::tokens::signing::file_key::{self, Due};
use crate::tokens::signing::schedule::{Use, use_of};
use crate::tokens::signing::seal::{self, SealError};
use crate::tokens::signing::{KeyLifetimes, StoredKey, schedule};
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
    /// `None`: the gateway makes its keys.
    pub file: Option<KeyFile>,
}

impl KeyTools {
    /// Loads the keys at a start. Creates the first one, makes the changes that are due, and seals again under the
    /// newest root secret what an older one seals.
    pub async fn load(&self, now: UnixTime) -> Result<Vec<StoredKey>, KeysError> {
        let found = self.with_timeout(self.change(Box::new(|keys| keys), now.into())).await?.after;
        let resealed = self.reseal(&found)?;
        let with_new_seals =
            move |keys: Vec<StoredKey>| keys.into_iter().map(|key| with_new_seal(key, &resealed)).collect();
        let lifetimes = self.lifetimes;
        let advance: DecideKeys = match &self.file {
            Some(file) => {
                let own = self.row_of(&file.current(), now)?;
                if file_key::due(&own.kid, true, &found, now) == Due::Revoked {
                    return Err(KeysError::FileKeyRevoked { kid: own.kid });
                }
                Box::new(move |keys| file_key::adopt(with_new_seals(keys), &lifetimes, &own, now))
            }
            None => {
                let must_replace = self.is_in_a_file(&found);
                let created = if must_replace || schedule::needs_new_key(&found, &lifetimes, now) {
                    Some(self.create(now).await?)
                } else {
                    None
                };
                Box::new(move |keys| match created.as_ref() {
                    Some(created) if must_replace => {
                        schedule::rotate(with_new_seals(keys), &lifetimes, created, true, now)
                    }
                    created => schedule::advance(with_new_seals(keys), &lifetimes, created, now),
                })
            }
        };
        Ok(self.with_timeout(self.change(advance, now.into())).await?.after)
    }

    /// Returns true if the key that signs was in a file until now, so that the store cannot sign with it.
    fn is_in_a_file(&self, keys: &[StoredKey]) -> bool {
        schedule::active(keys).is_some_and(|key| matches!(seal::open(key, &self.roots), Err(SealError::InFile { .. })))
    }

    /// The row of a key in `tokens.signing_key_file`: only its public half.
    pub(super) fn row_of(&self, key: &SigningKey, now: UnixTime) -> Result<StoredKey, KeysError> {
        let jwk = Secret::new(key.public_jwk().to_string().into_bytes());
        let (root, sealed) = seal::seal(&key.kid, &jwk, &self.roots).map_err(KeysError::key)?;
        Ok(new_row(key.kid.clone(), key.algorithm, (root, sealed), now))
    }

    /// The gateway as an issuer, with these keys at `now`.
    pub fn own_issuer(&self, keys: &[StoredKey], now: UnixTime) -> Result<OwnIssuer, OwnKeysError> {
        let in_file = self.file.as_ref().map(KeyFile::current);
        OwnIssuer::from_stored(&self.policy, keys, &self.roots, &self.lifetimes, in_file, now)
    }

    /// What this gateway uses the key for.
    pub(super) fn use_of(&self, key: &StoredKey, now: UnixTime) -> Use {
        match &self.file {
            Some(file) => file_key::use_beside(&file.current().kid, key, &self.lifetimes, now),
            None => use_of(key, &self.lifetimes, now),
        }
    }

    /// The keys that can be opened. A running gateway continues without the others: one damaged row must not prevent
    /// the revocation of another key.
    pub(super) fn usable(&self, keys: &[StoredKey]) -> Vec<StoredKey> {
        let is_usable = |key: &&StoredKey| key.sealed.is_empty() || seal::open_public(key, &self.roots).is_ok();
        keys.iter().filter(is_usable).cloned().collect()
    }

    /// Waits for at most `timeouts.store`.
    pub(super) async fn with_timeout<T>(
        &self,
        call: impl Future<Output = Result<T, KeysError>>,
    ) -> Result<T, KeysError> {
        let limit = self.store_timeout;
        timeout(limit, call).await.unwrap_or_else(|_| Err(StoreError::timeout(limit).into()))
    }

    pub(super) async fn change(&self, decide: DecideKeys, context: EventContext) -> Result<KeysChanged, KeysError> {
        Ok(self.store.change_signing_keys(decide, context).await?)
    }

    /// Creates a key that is not in the store yet. On a blocking thread, because an RSA key takes a while.
    pub(super) async fn create(&self, now: UnixTime) -> Result<StoredKey, KeysError> {
        let algorithm = self.lifetimes.algorithm;
        let (kid, pem) = tokio::task::spawn_blocking(move || create_pem(algorithm)).await??;
        let sealed = seal::seal(&kid, &pem, &self.roots).map_err(KeysError::key)?;
        Ok(new_row(kid, algorithm, sealed, now))
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

/// `sealed`: the number of the root secret, and the sealed key.
fn new_row(kid: String, algorithm: Algorithm, sealed: (u8, Vec<u8>), now: UnixTime) -> StoredKey {
    let (root, sealed) = sealed;
    StoredKey {
        kid,
        algorithm: algorithm_name(algorithm).into(),
        root,
        sealed,
        created_at: now,
        activated_at: None,
        retired_at: None,
        revoked_at: None,
        token_life: Duration::ZERO,
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
