//! The verified-token cache: a known token costs one hash and one compare instead of a signature.
//!
//! The key is the **whole** token: a cache keyed by a part of it was a bypass (fast-jwt GHSA-rp9m-7r4c-75qg). An entry
//! saves the signature check, the JSON and the base64. Time, revocation and the revision of keys are checked again on
//! every request. After a change of keys an entry stays valid if its own key and the policy of its issuer have not
//! changed.
//!
//! An evicted entry costs one verification. Tokens with a bad signature are cached as well, so that a client that
//! repeats one does not cost a signature check each time. Both caches are bounded by bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use http::{HeaderName, HeaderValue};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::auth::bearer::BearerToken;
use crate::auth::exchanged_tokens::ExchangedTokens;
use crate::auth::introspected_tokens::IntrospectedToken;
use crate::auth::proofs::TokenBinding;
use crate::auth::revocations::{RevocationKeys, Revocations};
use crate::tokens::credential_kind::CredentialKind;
use crate::tokens::dpop::KnownHeader;
use crate::tokens::jwt::replacement::Replacements;
use crate::tokens::jwt::{SignedInAt, Validity, VerifiedToken};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// A verified token, and what each of its requests needs. The fields that every request reads come first, in one cache
/// line with the reference count: with ten thousand tokens in use, the processor has none of them in its cache.
#[repr(C)]
pub struct CachedToken {
    not_before: UnixTime,
    expires: UnixTime,
    /// The revision of the keyring that the token was last accepted by.
    key_revision: AtomicU64,
    /// The epoch of the revocations at which the token was last found not revoked.
    checked_epoch: AtomicU64,
    pub token: Arc<VerifiedToken>,
    /// See [`VerifiedToken::kind`].
    pub kind: CredentialKind,
    /// If true, there is a `binding` or a certificate. Here, so that a token without one costs no other cache line.
    pub is_bound: bool,
    /// See [`VerifiedToken::provider`].
    pub provider: Option<Arc<SignedInAt>>,
    /// The token as sent. A stream verifies it again after a change of keys.
    pub text: Arc<str>,
    /// Identity headers for the upstream.
    pub identity: Vec<(HeaderName, HeaderValue)>,
    pub keys: RevocationKeys,
    /// Of an API key: when its last use was recorded, in milliseconds.
    use_recorded: AtomicU64,
    /// The tokens that upstreams get instead, on routes with `token = "replace"`.
    pub replacements: Replacements,
    /// The tokens that upstreams get instead, on routes with `token = "exchange"`.
    pub exchanged: ExchangedTokens,
    /// Of the identity headers, and of the claims of an opaque token.
    header_bytes: usize,
    /// Only for an opaque token: how long the newest answer about it holds for streams.
    pub introspected: Option<Arc<IntrospectedToken>>,
    /// [`IntrospectedToken::changes`] at the time of its answer. `None` if there was a newer one.
    rights_changes: Option<u64>,
    /// What proofs beside the token must fit. Their outcome is never cached.
    binding: Option<Arc<TokenBinding>>,
}

impl CachedToken {
    pub fn new(
        text: &str,
        token: impl Into<Arc<VerifiedToken>>,
        identity: Vec<(HeaderName, HeaderValue)>,
        key_revision: u64,
    ) -> Self {
        let token = token.into();
        let keys = RevocationKeys::of(&token);
        let header_bytes = header_bytes(&identity);
        let binding = TokenBinding::of(&token, text);
        CachedToken {
            not_before: token.not_before,
            expires: token.expires,
            key_revision: AtomicU64::new(key_revision),
            checked_epoch: AtomicU64::new(0),
            kind: token.kind,
            is_bound: binding.is_some() || token.bound_to_certificate.is_some(),
            provider: token.provider.clone(),
            token,
            text: text.into(),
            identity,
            keys,
            use_recorded: AtomicU64::new(0),
            replacements: Replacements::default(),
            exchanged: ExchangedTokens::default(),
            header_bytes,
            introspected: None,
            rights_changes: None,
            binding,
        }
    }

    /// An opaque token of which its issuer says that it is active.
    pub fn of_answer(
        text: Arc<str>,
        token: Arc<VerifiedToken>,
        identity: Vec<(HeaderName, HeaderValue)>,
        key_revision: u64,
        introspected: Arc<IntrospectedToken>,
    ) -> Self {
        // A JWT brings its claims along. Those of an opaque token come from its issuer.
        let claims = serde_json::to_vec(&token.claims).map_or(0, |claims| 4 * claims.len());
        let cached = CachedToken::new(&text, token, identity, key_revision);
        let header_bytes = cached.header_bytes + claims;
        let rights_changes = introspected.changes_until(&cached.token);
        CachedToken { text, header_bytes, introspected: Some(introspected), rights_changes, ..cached }
    }

    /// The revision of the keyring that the token was last accepted by.
    pub fn key_revision(&self) -> u64 {
        self.key_revision.load(Ordering::Acquire)
    }

    /// Returns true if the token is valid with the keys of this revision. Calls `still_holds` only if the revision
    /// has changed since the last call.
    pub fn is_valid_in(&self, key_revision: u64, still_holds: impl FnOnce(&VerifiedToken) -> bool) -> bool {
        if self.key_revision() == key_revision {
            return true;
        }
        let holds = still_holds(&self.token);
        if holds {
            self.key_revision.store(key_revision, Ordering::Release);
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

    /// The same, to be used by requests until `time` only.
    pub fn usable_until(self, time: UnixTime) -> Self {
        CachedToken { expires: self.expires.min(time), ..self }
    }

    /// Until when requests use it.
    pub fn read_again_at(&self) -> UnixTime {
        self.expires
    }

    /// Of an API key: when its last use was recorded.
    pub fn last_used_at(self, time: UnixTime) -> Self {
        CachedToken { use_recorded: AtomicU64::new(time.as_millis()), ..self }
    }

    /// Returns true if no use of this API key was recorded for `resolution`. To one caller only: the others that ask at
    /// the same time are the same use.
    pub fn is_use_due(&self, now: UnixTime, resolution: Duration) -> bool {
        let recorded = self.use_recorded.load(Ordering::Relaxed);
        UnixTime::from_millis(recorded) + resolution <= now
            && self
                .use_recorded
                .compare_exchange(recorded, now.as_millis(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// The same API key for a gateway with another configuration.
    pub fn with_identity(&self, identity: Vec<(HeaderName, HeaderValue)>) -> Self {
        let header_bytes = header_bytes(&identity);
        CachedToken {
            not_before: self.not_before,
            expires: self.expires,
            key_revision: AtomicU64::new(self.key_revision()),
            checked_epoch: AtomicU64::new(0),
            kind: self.kind,
            is_bound: self.is_bound,
            provider: self.provider.clone(),
            token: self.token.clone(),
            text: self.text.clone(),
            identity,
            keys: self.keys.clone(),
            use_recorded: AtomicU64::new(self.use_recorded.load(Ordering::Relaxed)),
            replacements: Replacements::default(),
            exchanged: ExchangedTokens::default(),
            header_bytes,
            introspected: self.introspected.clone(),
            rights_changes: self.rights_changes,
            binding: self.binding.clone(),
        }
    }

    /// What proofs beside the token must fit. `None` for a token that needs none.
    pub fn binding(&self) -> Option<&TokenBinding> {
        if self.is_bound { self.binding.as_deref() } else { None }
    }

    /// Returns true if this is of a kind that the route does not accept, or must be looked up again: in the store, or
    /// at the issuer of an opaque token. `accepts_api_keys`, `accepts_logins_at`: what the route says.
    pub fn must_be_read(&self, now: UnixTime, accepts_api_keys: bool, accepts_logins_at: Option<&str>) -> bool {
        match self.kind {
            CredentialKind::Jwt => false,
            CredentialKind::ApiKey => !(accepts_api_keys && now < self.expires),
            CredentialKind::Handle => {
                let provider = self.provider.as_ref().map(|at| &*at.provider);
                !(provider.is_some() && accepts_logins_at == provider && now < self.expires)
            }
            CredentialKind::Opaque => !self.is_as_answered(now),
        }
    }

    /// Returns true if the answer about an opaque token still holds. A stream may have learned of other rights.
    fn is_as_answered(&self, now: UnixTime) -> bool {
        let Some(introspected) = &self.introspected else { return false };
        now < self.expires && introspected.is_live() && self.rights_changes == Some(introspected.changes())
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

fn header_bytes(identity: &[(HeaderName, HeaderValue)]) -> usize {
    identity.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum()
}

/// The approximate size of an entry: the token as key, its claims as values (a JSON tree takes about four times its
/// text), the cache's own bookkeeping, and the tokens that may replace this one.
#[derive(Clone)]
struct Bytes {
    /// Maximum number of other tokens that replace a token: one for each audience, and for each exchange. Counted from
    /// the start, because the weight of an entry must not change while it is in the cache.
    replacements: usize,
}

/// What a replacement adds to the size of the token: another signature, issuer and audience, and its entry in the list.
const REPLACEMENT: usize = 512;

impl Weighter<Arc<[u8]>, Arc<CachedToken>> for Bytes {
    fn weight(&self, token: &Arc<[u8]>, known: &Arc<CachedToken>) -> u64 {
        let replacements = self.replacements * (token.len() + REPLACEMENT);
        let proof = if known.binding.is_some() { KnownHeader::MAX_MEMORY } else { 0 };
        (token.len() * 5 + known.header_bytes + 512 + replacements + proof) as u64
    }
}

impl Weighter<Box<[u8]>, u64> for Bytes {
    fn weight(&self, token: &Box<[u8]>, _key_revision: &u64) -> u64 {
        (token.len() + 96) as u64
    }
}

pub struct TokenCache {
    known: Cache<Arc<[u8]>, Arc<CachedToken>, Bytes, RandomState>,
    /// Tokens with a bad signature, with the keyring's revision at that time.
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
        // How many entries a cache has room for at first, and its bytes.
        let cache = |bytes: usize| (bytes / 2048 + 16, bytes as u64);
        let (items, bytes) = cache(capacity);
        let (bad_items, bad_bytes) = cache(capacity / 16);
        TokenCache {
            known: Cache::with(items, bytes, weighter.clone(), RandomState::default(), Default::default()),
            forged: Cache::with(bad_items, bad_bytes, weighter, RandomState::default(), Default::default()),
        }
    }

    /// The entry of exactly this token, if it is valid with this revision of keys.
    pub fn find(
        &self,
        token: BearerToken<'_>,
        key_revision: u64,
        still_holds: impl FnOnce(&VerifiedToken) -> bool,
    ) -> Option<Arc<CachedToken>> {
        self.known.get(token.as_bytes()).filter(|known| known.is_valid_in(key_revision, still_holds))
    }

    pub fn insert(&self, known: Arc<CachedToken>) {
        self.known.insert(known.text.clone().into(), known);
    }

    /// The API keys in the cache.
    pub fn api_keys(&self) -> impl Iterator<Item = Arc<CachedToken>> + '_ {
        self.known.iter().map(|(_, known)| known).filter(|known| known.kind == CredentialKind::ApiKey)
    }

    /// Forgets the tokens of these families: they are looked up again.
    pub fn forget_families(&self, families: &[TokenId]) {
        if !families.is_empty() {
            let is_of_them = |known: &CachedToken| known.token.family.is_some_and(|id| families.contains(&id));
            self.known.retain(|_, known| !is_of_them(known));
        }
    }

    /// Forgets a token that is not good any more.
    pub fn remove(&self, token: &str) {
        self.known.remove(token.as_bytes());
    }

    pub fn has_bad_signature(&self, token: BearerToken<'_>, key_revision: u64) -> bool {
        self.forged.get(token.as_bytes()) == Some(key_revision)
    }

    pub fn insert_bad_signature(&self, token: &str, key_revision: u64) {
        self.forged.insert(token.as_bytes().into(), key_revision);
    }

    pub fn count(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests;
