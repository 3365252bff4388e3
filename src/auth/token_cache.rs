//! The verified-token cache: a known token costs one hash and one compare instead of a signature.
//!
//! The key is the **whole** token: a cache keyed by less has been a bypass (fast-jwt GHSA-rp9m-7r4c-75qg). What an entry says
//! about time, revocation and key generation is asked again on every request; the entry only saves the signature, the
//! JSON and the base64. Where keys have moved, it stays as long as its own key and its issuer's terms are what they were.
//! Losing one costs one verification. Tokens whose signature failed are remembered as well, so that one bad token sent again and
//! again is cheap; both caches are bounded by bytes.

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

/// A token that was verified, and what each of its requests needs. What they ask first stands first, in one cache line with
/// the count of its users: of ten thousand tokens in turn, none is in the cache.
#[repr(C)]
pub struct CachedToken {
    not_before: UnixTime,
    expires: UnixTime,
    /// Of the keyring that it was last found good by.
    generation: AtomicU64,
    /// It was not revoked as of this epoch.
    checked: AtomicU64,
    pub token: Arc<VerifiedToken>,
    /// As it was sent: what outlives a change of keys is verified by them again.
    pub text: Arc<str>,
    /// Identity headers for the upstream.
    pub identity: Vec<(HeaderName, HeaderValue)>,
    pub keys: RevocationKeys,
    /// What upstreams see instead, where a route says so.
    pub replacements: Replacements,
    size: usize,
}

impl CachedToken {
    pub fn new(text: &str, token: VerifiedToken, identity: Vec<(HeaderName, HeaderValue)>, generation: u64) -> Self {
        let keys = RevocationKeys::of(&token);
        let headers: usize = identity.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum();
        CachedToken {
            not_before: token.not_before,
            expires: token.expires,
            generation: AtomicU64::new(generation),
            checked: AtomicU64::new(0),
            token: Arc::new(token),
            text: text.into(),
            identity,
            keys,
            replacements: Replacements::default(),
            size: headers,
        }
    }

    /// Of the keyring that it was last found good by.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Is it good by the keys of this generation? If keys have moved since, `still_holds` is asked, once.
    pub fn is_good_by(&self, generation: u64, still_holds: impl FnOnce(&VerifiedToken) -> bool) -> bool {
        if self.generation() == generation {
            return true;
        }
        let holds = still_holds(&self.token);
        if holds {
            self.generation.store(generation, Ordering::Release);
        }
        holds
    }

    /// Refuses a token whose time has passed, or not come.
    pub fn check_time(&self, now: UnixTime) -> Result<(), Reject> {
        if (self.not_before..self.expires).contains(&now) {
            return Ok(());
        }
        self.token.check_time(now, Validity::Live)
    }

    /// Refuses a revoked token. Looks it up only if something was revoked since it was looked up last.
    pub fn check_revocation(&self, revocations: &Revocations) -> Result<(), Reject> {
        let epoch = revocations.epoch();
        if self.checked.load(Ordering::Acquire) == epoch {
            return Ok(());
        }
        if revocations.is_revoked(&self.keys) {
            return Err(Reason::Revoked.into());
        }
        self.checked.store(epoch, Ordering::Release);
        Ok(())
    }
}

/// Bytes an entry takes, roughly: the token as key, its claims again as values (a JSON tree is about four times its text),
/// the cache's own bookkeeping, and what may come to stand in the token's place.
#[derive(Clone)]
struct Bytes {
    /// So many replacements a token may have: one for each audience. Weighed from the start, as an entry's weight must not
    /// change while it is kept.
    replacements: usize,
}

/// Beyond what it repeats of the token: another signature, issuer and audience, and its place in the list.
const REPLACEMENT: usize = 512;

impl Weighter<Arc<[u8]>, Arc<CachedToken>> for Bytes {
    fn weight(&self, token: &Arc<[u8]>, known: &Arc<CachedToken>) -> u64 {
        let replacements = self.replacements * (token.len() + REPLACEMENT);
        (token.len() * 5 + known.size + 512 + replacements) as u64
    }
}

impl Weighter<Box<[u8]>, u64> for Bytes {
    fn weight(&self, token: &Box<[u8]>, _generation: &u64) -> u64 {
        (token.len() + 96) as u64
    }
}

pub struct TokenCache {
    known: Cache<Arc<[u8]>, Arc<CachedToken>, Bytes, RandomState>,
    /// Tokens with a bad signature, and the keyring's generation at that time.
    forged: Cache<Box<[u8]>, u64, Bytes, RandomState>,
}

impl TokenCache {
    /// `capacity`: bytes for known tokens (`limits.token_cache_size`). Bad ones get a sixteenth of it on top.
    pub fn new(capacity: usize) -> Self {
        TokenCache::with_replacements(capacity, 0)
    }

    /// As [`TokenCache::new`], for tokens that have so many replacements each.
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

    /// The entry of this very token, if it is good by this generation of keys.
    pub fn find(
        &self,
        token: BearerToken<'_>,
        generation: u64,
        still_holds: impl FnOnce(&VerifiedToken) -> bool,
    ) -> Option<Arc<CachedToken>> {
        self.known.get(token.as_bytes()).filter(|known| known.is_good_by(generation, still_holds))
    }

    pub fn insert(&self, known: Arc<CachedToken>) {
        self.known.insert(known.text.clone().into(), known);
    }

    pub fn is_forged(&self, token: BearerToken<'_>, generation: u64) -> bool {
        self.forged.get(token.as_bytes()) == Some(generation)
    }

    pub fn insert_forged(&self, token: &str, generation: u64) {
        self.forged.insert(token.as_bytes().into(), generation);
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
