//! The revocation set: exact, in memory, consulted on the hot path.
//!
//! The store is the source of truth. This is a copy of every entry that still matters, loaded before a listener opens.
//! It is in moka, with many entries in one of moka (`buckets`). The moka caches have **no capacity**: a bounded cache
//! drops new entries when it is full, and a revocation would be lost. An entry expires when every token that it
//! concerns has expired. A mass revocation is one watermark, not a million entries.
//!
//! The **epoch** counts revocations. A token that was found not revoked at an epoch is not looked up again before the
//! epoch moves: while nothing is revoked, a known token costs one atomic load here. A revocation is in the set before
//! the epoch moves, and the epoch is read before the look-up. So no token counts as checked at an epoch without its
//! look-up.

mod buckets;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::secret;
use buckets::Buckets;

/// The keys under which a token can be revoked, computed once when it is verified.
#[derive(Clone, Debug)]
pub struct RevocationKeys {
    family: Option<u128>,
    token: Option<u128>,
    /// Of a token of another issuer with a `sid`.
    session: Option<u128>,
    subject: u128,
    issuer: u128,
    dated: UnixTime,
}

impl RevocationKeys {
    pub fn of(token: &VerifiedToken) -> Self {
        RevocationKeys {
            family: token.family.map(TokenId::as_u128),
            token: token.jti.as_ref().map(|jti| key(b"jti", &token.issuer, jti)),
            session: session_of(token).map(|session| key(b"sid", &token.issuer, session)),
            subject: key(b"sub", &token.issuer, &token.subject),
            issuer: key(b"iss", &token.issuer, ""),
            dated: token.dated,
        }
    }
}

/// The session at another issuer. The `sid` of the gateway's own tokens is their family.
fn session_of(token: &VerifiedToken) -> Option<&str> {
    if token.own { None } else { token.claims.get("sid")?.as_str() }
}

/// 128 bits of SHA-256: no two keys collide, also if a hostile issuer chooses one of them.
fn key(kind: &[u8], issuer: &str, id: &str) -> u128 {
    // Without the length, an issuer could move its end into the id and hit the key of another issuer.
    let len = (issuer.len() as u64).to_be_bytes();
    let digest = secret::digest(&[kind, &len, issuer.as_bytes(), id.as_bytes()]);
    u128::from_be_bytes(std::array::from_fn(|index| digest[index]))
}

/// One set for each kind: a look-up in an empty one costs one atomic load.
pub struct Revocations {
    families: Buckets,
    /// Single tokens.
    tokens: Buckets,
    /// Sessions at other issuers.
    sessions: Buckets,
    /// Subjects and whole issuers.
    watermarks: Buckets,
    /// Every token dated at or before this is revoked. Milliseconds; 0: none.
    everything: AtomicU64,
    epoch: AtomicU64,
    /// The newest entry of the store's log that is enforced with all earlier ones.
    sequence: AtomicU64,
}

impl Revocations {
    pub fn new() -> Self {
        Revocations {
            families: Buckets::new(),
            tokens: Buckets::new(),
            sessions: Buckets::new(),
            watermarks: Buckets::new(),
            everything: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            sequence: AtomicU64::new(0),
        }
    }

    /// Enforces a revocation on every worker, from the next look-up on. All earlier entries of the log are enforced.
    pub fn enforce(&self, revocation: &Revocation, now: UnixTime) {
        self.enforce_ahead(revocation, now);
        self.sequence.fetch_max(revocation.sequence, Ordering::AcqRel);
    }

    /// Like [`Revocations::enforce`], while earlier entries of other gateways may still be missing. So it leaves
    /// [`Revocations::sequence`] where it is.
    pub fn enforce_ahead(&self, revocation: &Revocation, now: UnixTime) {
        let life = revocation.until.since(now);
        match &revocation.what {
            Revoked::Family(id) => self.families.insert(id.as_u128(), UnixTime::MAX, life),
            Revoked::Token { issuer, jti } => {
                self.tokens.insert(key(b"jti", issuer, jti), UnixTime::MAX, life);
            }
            Revoked::Session { issuer, session } => {
                self.sessions.insert(key(b"sid", issuer, session), UnixTime::MAX, life);
            }
            Revoked::Subject { issuer, subject, not_after } => {
                self.watermarks.insert(key(b"sub", issuer, subject), *not_after, life);
            }
            Revoked::Issuer { issuer, not_after } => {
                self.watermarks.insert(key(b"iss", issuer, ""), *not_after, life);
            }
            Revoked::Everything { not_after } => {
                self.everything.fetch_max(not_after.as_millis(), Ordering::AcqRel);
            }
        }
        // Last, so that a reader that sees the new epoch finds the entry.
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Changes with each revocation, and with nothing else.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns true if the token with these keys is revoked.
    pub fn is_revoked(&self, keys: &RevocationKeys) -> bool {
        let dated = keys.dated;
        keys.family.is_some_and(|family| self.families.revokes(family, dated))
            || self.is_token_revoked(keys)
            || keys.session.is_some_and(|session| self.sessions.revokes(session, dated))
            || self.is_before_everything(dated)
            || self.watermarks.revokes(keys.subject, dated)
            || self.watermarks.revokes(keys.issuer, dated)
    }

    /// A token without `iat` counts as dated in 1970, so every watermark revokes it. 0 means that there is no
    /// watermark.
    fn is_before_everything(&self, dated: UnixTime) -> bool {
        let mark = self.everything.load(Ordering::Acquire);
        mark > 0 && dated.as_millis() <= mark
    }

    /// Returns true if this one token is revoked by its `jti`, regardless of its family and subject.
    pub fn is_token_revoked(&self, keys: &RevocationKeys) -> bool {
        keys.token.is_some_and(|token| self.tokens.revokes(token, keys.dated))
    }

    /// Frees the memory of expired entries. Nothing else does.
    pub fn remove_expired(&self) {
        self.all().into_iter().for_each(Buckets::remove_expired);
    }

    /// The number of entries and watermarks, including expired ones until [`Revocations::remove_expired`] runs.
    pub fn count(&self) -> u64 {
        self.all().into_iter().map(Buckets::count).sum()
    }

    fn all(&self) -> [&Buckets; 4] {
        [&self.families, &self.tokens, &self.sessions, &self.watermarks]
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
