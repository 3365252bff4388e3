//! The revocation set: exact, in memory, consulted on the hot path.
//!
//! The store is the source of truth. This is a copy of every entry that still matters, loaded before a listener opens.
//! The moka caches have **no capacity**: a bounded cache drops new entries when it is full, and a revocation would be
//! lost. An entry expires when every token that it concerns has expired. A mass revocation is one watermark, not a
//! million entries.
//!
//! The **epoch** counts revocations. A token that was found not revoked at an epoch is not looked up again before the
//! epoch moves: while nothing is revoked, a known token costs one atomic load here. A revocation is in the set before
//! the epoch moves, and the epoch is read before the look-up. So no token counts as checked at an epoch without its
//! look-up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use moka::Expiry;
use moka::sync::Cache;
use parking_lot::Mutex;

use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::secret;

/// The keys under which a token can be revoked, computed once when it is verified.
#[derive(Clone, Debug)]
pub struct RevocationKeys {
    family: Option<u128>,
    token: Option<u128>,
    /// Of a token of another issuer with a `sid`.
    session: Option<u128>,
    subject: u128,
    issuer: u128,
    /// Of a token of this gateway with a `client_id`.
    client: Option<ClientKeys>,
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
            client: client_of(token).map(|client_id| ClientKeys::of(client_id, &token.subject)),
            dated: token.dated,
        }
    }
}

/// The keys of the client that a token was issued to.
#[derive(Clone, Copy, Debug)]
struct ClientKeys {
    /// With any user.
    all: u128,
    /// With the user of the token.
    of_subject: u128,
}

impl ClientKeys {
    fn of(client_id: &str, subject: &str) -> Self {
        ClientKeys { all: key(b"cli", client_id, ""), of_subject: key(b"cus", client_id, subject) }
    }
}

/// The client of a token of this gateway. Another issuer means other clients by its names.
fn client_of(token: &VerifiedToken) -> Option<&str> {
    if token.own { token.claims.get("client_id")?.as_str() } else { None }
}

/// The session at another issuer. The `sid` of the gateway's own tokens is their family.
fn session_of(token: &VerifiedToken) -> Option<&str> {
    if token.own { None } else { token.claims.get("sid")?.as_str() }
}

/// 128 bits of SHA-256: no two keys collide, also if a hostile issuer chooses one of them. `owner`: the issuer or the
/// client that `id` belongs to.
fn key(kind: &[u8], owner: &str, id: &str) -> u128 {
    // Without the length, an issuer could move its end into the id and hit the key of another issuer.
    let len = (owner.len() as u64).to_be_bytes();
    let digest = secret::digest(&[kind, &len, owner.as_bytes(), id.as_bytes()]);
    u128::from_be_bytes(std::array::from_fn(|index| digest[index]))
}

/// How much longer an entry stays than its life, because moka reads another clock than the gateway: an entry with a
/// life of 200 ms once expired 198 ns early.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(1);

/// How long an entry stays in the set.
#[derive(Clone, Copy)]
struct Life(Duration);

struct ByLife;

/// Always `Some`. An entry that is written again with a longer life gets that life; moka's default keeps the old one.
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

/// Revokes the tokens of a subject, an issuer or a client that are dated at or before `not_after`: see
/// [`VerifiedToken::dated`].
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
    /// Families, single tokens, and sessions at other issuers.
    entries: Cache<u128, Life, RandomState>,
    /// Subjects and whole issuers.
    watermarks: Cache<u128, Watermark, RandomState>,
    /// Clients. Apart from the others, so that a look-up costs nothing while there are none.
    clients: Cache<u128, Watermark, RandomState>,
    /// False only while `clients` is empty. Changed under `clients_change`.
    has_clients: AtomicBool,
    clients_change: Mutex<()>,
    /// Every token dated at or before this is revoked. Milliseconds; 0: none.
    everything: AtomicU64,
    epoch: AtomicU64,
    /// The newest entry of the store's log that is enforced with all earlier ones.
    sequence: AtomicU64,
}

impl Revocations {
    pub fn new() -> Self {
        Revocations {
            entries: Cache::builder().expire_after(ByLife).build_with_hasher(RandomState::default()),
            watermarks: Cache::builder().expire_after(ByLife).build_with_hasher(RandomState::default()),
            clients: Cache::builder().expire_after(ByLife).build_with_hasher(RandomState::default()),
            has_clients: AtomicBool::new(false),
            clients_change: Mutex::new(()),
            everything: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            sequence: AtomicU64::new(0),
        }
    }

    /// Enforces a revocation on every worker, from the next look-up on. All earlier entries of the log are enforced.
    pub fn enforce(&self, revocation: &Revocation) {
        self.enforce_ahead(revocation);
        self.sequence.fetch_max(revocation.sequence, Ordering::AcqRel);
    }

    /// Like [`Revocations::enforce`], while earlier entries of other gateways may still be missing. So it leaves
    /// [`Revocations::sequence`] where it is.
    ///
    /// An entry stays for as long as it mattered when it was made, also if that was a while ago: no clock that is
    /// ahead for a moment shortens it. After a restart, some entries therefore stay for up to twice as long.
    pub fn enforce_ahead(&self, revocation: &Revocation) {
        let left = revocation.until.since(revocation.at);
        let life = Life(if left.is_zero() { left } else { left.saturating_add(CLOCK_TOLERANCE) });
        match &revocation.what {
            Revoked::Family(id) => self.entries.insert(id.as_u128(), life),
            Revoked::Token { issuer, jti } => self.entries.insert(key(b"jti", issuer, jti), life),
            Revoked::Session { issuer, session } => self.entries.insert(key(b"sid", issuer, session), life),
            Revoked::Subject { issuer, subject, not_after } => {
                raise_watermark(&self.watermarks, key(b"sub", issuer, subject), *not_after, life)
            }
            Revoked::Issuer { issuer, not_after } => {
                raise_watermark(&self.watermarks, key(b"iss", issuer, ""), *not_after, life)
            }
            Revoked::Client { client_id, subject, not_after } => {
                self.raise_client(client_id, subject.as_deref(), *not_after, life)
            }
            Revoked::Everything { not_after } => {
                self.everything.fetch_max(not_after.as_millis(), Ordering::AcqRel);
            }
        }
        // Last, so that a reader that sees the new epoch finds the entry.
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    fn raise_client(&self, client_id: &str, subject: Option<&str>, not_after: UnixTime, life: Life) {
        let key = match subject {
            Some(subject) => ClientKeys::of(client_id, subject).of_subject,
            None => ClientKeys::of(client_id, "").all,
        };
        let _change = self.clients_change.lock();
        raise_watermark(&self.clients, key, not_after, life);
        self.has_clients.store(true, Ordering::Release);
    }

    /// Changes with each revocation, and with nothing else.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns true if the token with these keys is revoked.
    pub fn is_revoked(&self, keys: &RevocationKeys) -> bool {
        // `contains_key`, not `get`: it records nothing and does no maintenance on the caller's thread.
        let has = |key: &u128| self.entries.contains_key(key);
        keys.family.as_ref().is_some_and(has)
            || keys.token.as_ref().is_some_and(has)
            || keys.session.as_ref().is_some_and(has)
            || self.is_before_everything(keys.dated)
            || is_before_watermark(&self.watermarks, keys.subject, keys.dated)
            || is_before_watermark(&self.watermarks, keys.issuer, keys.dated)
            || keys.client.is_some_and(|client| self.is_client_revoked(client, keys.dated))
    }

    fn is_client_revoked(&self, client: ClientKeys, dated: UnixTime) -> bool {
        self.has_clients.load(Ordering::Acquire)
            && (is_before_watermark(&self.clients, client.all, dated)
                || is_before_watermark(&self.clients, client.of_subject, dated))
    }

    /// A token without `iat` counts as dated in 1970, so every watermark revokes it. 0 means that there is no
    /// watermark.
    fn is_before_everything(&self, dated: UnixTime) -> bool {
        let mark = self.everything.load(Ordering::Acquire);
        mark > 0 && dated.as_millis() <= mark
    }

    /// Returns true if this one token is revoked by its `jti`, regardless of its family and subject.
    pub fn is_token_revoked(&self, keys: &RevocationKeys) -> bool {
        keys.token.is_some_and(|token| self.entries.contains_key(&token))
    }

    /// Frees the memory of expired entries. moka does this only when it is called.
    pub fn remove_expired(&self) {
        self.entries.run_pending_tasks();
        self.watermarks.run_pending_tasks();
        self.clients.run_pending_tasks();
        // Under the lock, no watermark comes between the look and the change. The map itself is read: the count of the
        // cache lags behind it.
        let _change = self.clients_change.lock();
        if self.clients.iter().next().is_none() {
            self.has_clients.store(false, Ordering::Release);
        }
    }

    /// The number of entries and watermarks, including expired ones until [`Revocations::remove_expired`] runs.
    pub fn count(&self) -> u64 {
        self.entries.entry_count() + self.watermarks.entry_count() + self.clients.entry_count()
    }

    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }
}

/// A watermark only rises: an older one that arrives late must not make revoked tokens valid again.
fn raise_watermark(marks: &Cache<u128, Watermark, RandomState>, key: u128, not_after: UnixTime, life: Life) {
    let current = marks.get(&key).map(|mark| mark.not_after);
    let not_after = current.map_or(not_after, |current| current.max(not_after));
    marks.insert(key, Watermark { not_after, life });
}

fn is_before_watermark(marks: &Cache<u128, Watermark, RandomState>, key: u128, dated: UnixTime) -> bool {
    marks.contains_key(&key) && marks.get(&key).is_some_and(|mark| dated <= mark.not_after)
}

impl Default for Revocations {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
