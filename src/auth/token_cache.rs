//! The verified-token cache: a known token costs one hash and one compare instead of a signature.
//!
//! The key is the **whole** token: a cache keyed by a part of it was a bypass (fast-jwt GHSA-rp9m-7r4c-75qg). An entry
//! saves the signature check, the JSON and the base64. Time, revocation and key generation are checked again on every
//! request. After a change of keys an entry stays valid if its own key and the policy of its issuer have not changed.
//!
//! An evicted entry costs one verification. Tokens with a bad signature are cached as well, so that a client that
//! repeats one does not cost a signature check each time. Both caches are bounded by bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use http::{HeaderName, HeaderValue};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::auth::bearer::BearerToken;
use crate::auth::revocations::{RevocationKeys, Revocations};
use crate::tokens::jwt::replacement::Replacements;
use crate::tokens::jwt::{Validity, VerifiedToken};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// A verified token, and what each of its requests needs. The fields that every request reads come first, in one cache
/// line with the reference count: with ten thousand tokens in use, the processor has none of them in its cache.
#[repr(C)]
pub struct CachedToken {
    not_before: UnixTime,
    expires: UnixTime,
    /// The generation of the keyring that the token was last accepted by.
    generation: AtomicU64,
    /// The epoch of the revocations at which the token was last found not revoked.
    checked_epoch: AtomicU64,
    pub token: Arc<VerifiedToken>,
    /// The token as sent. A stream verifies it again after a change of keys.
    pub text: Arc<str>,
    /// Identity headers for the upstream.
    pub identity: Vec<(HeaderName, HeaderValue)>,
    pub keys: RevocationKeys,
    /// The tokens that upstreams get instead, on routes with `token = "replace"`.
    pub replacements: Replacements,
    header_bytes: usize,
}

impl CachedToken {
    pub fn new(text: &str, token: VerifiedToken, identity: Vec<(HeaderName, HeaderValue)>, generation: u64) -> Self {
        let keys = RevocationKeys::of(&token);
        let header_bytes: usize = identity.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum();
        CachedToken {
            not_before: token.not_before,
            expires: token.expires,
            generation: AtomicU64::new(generation),
            checked_epoch: AtomicU64::new(0),
            token: Arc::new(token),
            text: text.into(),
            identity,
            keys,
            replacements: Replacements::default(),
            header_bytes,
        }
    }

    /// The generation of the keyring that the token was last accepted by.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns true if the token is valid with the keys of this generation. Calls `still_holds` only if the generation
    /// has changed since the last call.
    pub fn is_valid_in(&self, generation: u64, still_holds: impl FnOnce(&VerifiedToken) -> bool) -> bool {
        if self.generation() == generation {
            return true;
        }
        let holds = still_holds(&self.token);
        if holds {
            self.generation.store(generation, Ordering::Release);
        }
        holds
    }

    /// Rejects a token that has expired or is not valid yet.
    pub fn check_time(&self, now: UnixTime) -> Result<(), Reject> {
        if (self.not_before..self.expires).contains(&now) {
            return Ok(());
        }
        self.token.check_time(now, Validity::Live)
    }

    /// Rejects a revoked token. Looks it up only if something was revoked since the last look-up.
    pub fn check_revocation(&self, revocations: &Revocations) -> Result<(), Reject> {
        let epoch = revocations.epoch();
        if self.checked_epoch.load(Ordering::Acquire) == epoch {
            return Ok(());
        }
        if revocations.is_revoked(&self.keys) {
            return Err(Reason::Revoked.into());
        }
        self.checked_epoch.store(epoch, Ordering::Release);
        Ok(())
    }
}

/// The approximate size of an entry: the token as key, its claims as values (a JSON tree takes about four times its
/// text), the cache's own bookkeeping, and the tokens that may replace this one.
#[derive(Clone)]
struct Bytes {
    /// Maximum number of replacements of a token: one for each audience. Counted from the start, because the weight of
    /// an entry must not change while it is in the cache.
    replacements: usize,
}

/// What a replacement adds to the size of the token: another signature, issuer and audience, and its entry in the list.
const REPLACEMENT: usize = 512;

impl Weighter<Arc<[u8]>, Arc<CachedToken>> for Bytes {
    fn weight(&self, token: &Arc<[u8]>, known: &Arc<CachedToken>) -> u64 {
        let replacements = self.replacements * (token.len() + REPLACEMENT);
        (token.len() * 5 + known.header_bytes + 512 + replacements) as u64
    }
}

impl Weighter<Box<[u8]>, u64> for Bytes {
    fn weight(&self, token: &Box<[u8]>, _generation: &u64) -> u64 {
        (token.len() + 96) as u64
    }
}

pub struct TokenCache {
    known: Cache<Arc<[u8]>, Arc<CachedToken>, Bytes, RandomState>,
    /// Tokens with a bad signature, with the keyring's generation at that time.
    forged: Cache<Box<[u8]>, u64, Bytes, RandomState>,
}

impl TokenCache {
    /// `capacity`: bytes for verified tokens (`limits.token_cache_size`). Tokens with a bad signature get a sixteenth
    /// more.
    pub fn new(capacity: usize) -> Self {
        TokenCache::with_replacements(capacity, 0)
    }

    /// As [`TokenCache::new`]. `replacements`: maximum number of replacements of each token.
    pub fn with_replacements(capacity: usize, replacements: usize) -> Self {
        let weighter = Bytes { replacements };
        let cache = |bytes: usize| (bytes / 2048 + 16, bytes as u64);
        let (items, bytes) = cache(capacity);
        let (bad_items, bad_bytes) = cache(capacity / 16);
        TokenCache {
            known: Cache::with(items, bytes, weighter.clone(), RandomState::default(), Default::default()),
            forged: Cache::with(bad_items, bad_bytes, weighter, RandomState::default(), Default::default()),
        }
    }

    /// The entry of exactly this token, if it is valid with this generation of keys.
    pub fn find(
        &self,
        token: BearerToken<'_>,
        generation: u64,
        still_holds: impl FnOnce(&VerifiedToken) -> bool,
    ) -> Option<Arc<CachedToken>> {
        self.known.get(token.as_bytes()).filter(|known| known.is_valid_in(generation, still_holds))
    }

    pub fn insert(&self, known: Arc<CachedToken>) {
        self.known.insert(known.text.clone().into(), known);
    }

    pub fn has_bad_signature(&self, token: BearerToken<'_>, generation: u64) -> bool {
        self.forged.get(token.as_bytes()) == Some(generation)
    }

    pub fn insert_bad_signature(&self, token: &str, generation: u64) {
        self.forged.insert(token.as_bytes().into(), generation);
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
