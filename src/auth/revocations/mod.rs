//! The revocation set: exact, in memory, consulted on the hot path.
//!
//! The store holds the truth; this holds all of it that matters, loaded before a listener opens. The moka caches have **no
//! capacity**: a bounded one drops new entries when it is full, and a revocation would be forgotten. Entries go when no
//! token that they concern can be alive any more. Mass revocations are watermarks, not a million entries.
//!
//! Most look-ups end at a [`filter`], which says that a name is certainly not here.
//!
//! The **epoch** counts revocations. A token that was found unrevoked at an epoch need not be looked up again before the
//! epoch moves: with nothing revoked, a known token costs one atomic load here. A revocation is in the set before the epoch
//! moves, and the epoch is read before the look-up, so a look-up can be too fresh for its epoch, never too old.

mod filter;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use filter::Filter;
use foldhash::fast::RandomState;
use moka::Expiry;
use moka::sync::Cache;

use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::secret;

/// Under which names a token may be revoked, computed once when it is verified.
#[derive(Clone, Debug)]
pub struct RevocationKeys {
    family: Option<u128>,
    token: Option<u128>,
    subject: u128,
    issuer: u128,
    issued_at: UnixTime,
}

impl RevocationKeys {
    pub fn of(token: &VerifiedToken) -> Self {
        RevocationKeys {
            family: token.family.map(TokenId::as_u128),
            token: token.jti.as_ref().map(|jti| name(b"jti", &token.issuer, jti)),
            subject: name(b"sub", &token.issuer, &token.subject),
            issuer: name(b"iss", &token.issuer, ""),
            issued_at: token.issued_at,
        }
    }
}

/// 128 bits of SHA-256: two names do not meet, also when a hostile issuer chooses one of them.
fn name(kind: &[u8], issuer: &str, id: &str) -> u128 {
    let len = (issuer.len() as u64).to_be_bytes();
    let digest = secret::digest(&[kind, &len, issuer.as_bytes(), id.as_bytes()]);
    u128::from_be_bytes(std::array::from_fn(|place| digest[place]))
}

/// moka's clock is another than ours: an entry that is to last 200 ms was once gone 198 ns before.
const CLOCKS: Duration = Duration::from_millis(1);

/// How long an entry stays.
#[derive(Clone, Copy)]
struct Life(Duration);

struct ByLife;

/// Always `Some`; and an entry that is written again with a longer life gets it (the default keeps the old one).
impl<V: Copy + Into<Life>> Expiry<u128, V> for ByLife {
    fn expire_after_create(&self, _key: &u128, value: &V, _at: Instant) -> Option<Duration> {
        let Life(life) = (*value).into();
        Some(life)
    }

    fn expire_after_update(&self, _key: &u128, value: &V, _at: Instant, left: Option<Duration>) -> Option<Duration> {
        let Life(life) = (*value).into();
        Some(life.max(left.unwrap_or_default()))
    }
}

/// Tokens of a subject or an issuer, issued at or before `not_after` are void.
#[derive(Clone, Copy)]
struct Watermark {
    not_after: UnixTime,
    life: Life,
}

impl From<Watermark> for Life {
    fn from(mark: Watermark) -> Life {
        mark.life
    }
}

pub struct Revocations {
    entries: Cache<u128, Life, RandomState>,
    /// Of subjects and of whole issuers.
    watermarks: Cache<u128, Watermark, RandomState>,
    /// Over the names of both.
    filter: Filter,
    /// Everything issued at or before this is void. Milliseconds; 0 for nothing.
    everything: AtomicU64,
    epoch: AtomicU64,
    /// The newest entry of the store's log that is enforced.
    sequence: AtomicU64,
}

impl Revocations {
    pub fn new() -> Self {
        Revocations {
            entries: Cache::builder().expire_after(ByLife).build_with_hasher(RandomState::default()),
            watermarks: Cache::builder().expire_after(ByLife).build_with_hasher(RandomState::default()),
            filter: Filter::new(),
            everything: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            sequence: AtomicU64::new(0),
        }
    }

    /// Enforces a revocation from the next look-up on, on every worker.
    pub fn enforce(&self, revocation: &Revocation, now: UnixTime) {
        let left = revocation.until.since(now);
        let life = Life(if left.is_zero() { left } else { left.saturating_add(CLOCKS) });
        match &revocation.what {
            Revoked::Family(id) => self.insert(id.as_u128(), life),
            Revoked::Token { issuer, jti } => self.insert(name(b"jti", issuer, jti), life),
            Revoked::Subject { issuer, subject, not_after } => {
                self.raise(name(b"sub", issuer, subject), *not_after, life)
            }
            Revoked::Issuer { issuer, not_after } => self.raise(name(b"iss", issuer, ""), *not_after, life),
            Revoked::Everything { not_after } => {
                self.everything.fetch_max(not_after.as_millis(), Ordering::AcqRel);
            }
        }
        self.sequence.fetch_max(revocation.sequence, Ordering::AcqRel);
        // Last: whoever sees the new epoch finds the entry.
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    fn insert(&self, name: u128, life: Life) {
        self.entries.insert(name, life);
        self.filter.add(name, || self.names());
    }

    /// Every name there is something about.
    fn names(&self) -> impl Iterator<Item = u128> + '_ {
        let entries = self.entries.iter().map(|(name, _)| *name);
        entries.chain(self.watermarks.iter().map(|(name, _)| *name))
    }

    /// A watermark only rises: an older one that arrives late must not bring tokens back.
    fn raise(&self, whose: u128, not_after: UnixTime, life: Life) {
        let known = self.watermarks.get(&whose).map(|mark| mark.not_after);
        let not_after = known.map_or(not_after, |known| known.max(not_after));
        self.watermarks.insert(whose, Watermark { not_after, life });
        self.filter.add(whose, || self.names());
    }

    /// Moves with each revocation and with nothing else.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Is a token with these names void?
    pub fn is_revoked(&self, keys: &RevocationKeys) -> bool {
        let filter = self.filter.look();
        let named = |name: &u128| filter.may_have(*name);
        // `contains_key`, not `get`: it records nothing and never does maintenance in the caller.
        let has = |name: &u128| named(name) && self.entries.contains_key(name);
        keys.family.as_ref().is_some_and(has)
            || keys.token.as_ref().is_some_and(has)
            || self.is_before_everything(keys.issued_at)
            || (named(&keys.subject) && self.is_before_watermark(keys.subject, keys.issued_at))
            || (named(&keys.issuer) && self.is_before_watermark(keys.issuer, keys.issued_at))
    }

    fn is_before_watermark(&self, whose: u128, issued_at: UnixTime) -> bool {
        self.watermarks.contains_key(&whose)
            && self.watermarks.get(&whose).is_some_and(|mark| issued_at <= mark.not_after)
    }

    /// A token that does not say when it was issued counts as issued in 1970: any watermark voids it, but none does not.
    fn is_before_everything(&self, issued_at: UnixTime) -> bool {
        let mark = self.everything.load(Ordering::Acquire);
        mark > 0 && issued_at.as_millis() <= mark
    }

    /// Is this one token void, whatever its family and subject?
    pub fn is_token_revoked(&self, keys: &RevocationKeys) -> bool {
        keys.token.is_some_and(|token| self.entries.contains_key(&token))
    }

    /// Lets go of what has expired. moka does this only when somebody calls it.
    pub fn tidy(&self) {
        self.entries.run_pending_tasks();
        self.watermarks.run_pending_tasks();
        self.filter.tidy(self.len() as usize, || self.names());
    }

    /// Entries and watermarks held, expired ones included until [`Revocations::tidy`].
    pub fn len(&self) -> u64 {
        self.entries.entry_count() + self.watermarks.entry_count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }
}

impl Default for Revocations {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
