//! The revocation set: exact, in memory, consulted on the hot path.
//!
//! The store holds the truth; this holds all of it that matters, loaded before a listener opens. The moka caches have **no
//! capacity**: a bounded one drops new entries when it is full, and a revocation would be forgotten. Entries go when no
//! token that they concern can be alive any more. Mass revocations are watermarks, not a million entries.
//!
//! The **epoch** counts revocations. A token that was found unrevoked at an epoch need not be looked up again before the
//! epoch moves: with nothing revoked, a known token costs one atomic load here. A revocation is in the set before the epoch
//! moves, and the epoch is read before the look-up, so a look-up can be too fresh for its epoch, never too old.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use moka::Expiry;
use moka::sync::Cache;

use crate::clock::UnixTime;
use crate::family::revocation::{Revocation, Revoked};
use crate::ids::TokenId;
use crate::secret;
use crate::token::VerifiedToken;

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
    /// Some issuer has one: rare enough that the look-up is saved until it happens.
    issuer_marked: AtomicBool,
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
            issuer_marked: AtomicBool::new(false),
            everything: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            sequence: AtomicU64::new(0),
        }
    }

    /// Enforces a revocation from the next look-up on, on every worker.
    pub fn enforce(&self, revocation: &Revocation, now: UnixTime) {
        let life = Life(revocation.until.since(now));
        match &revocation.what {
            Revoked::Family(id) => self.entries.insert(id.as_u128(), life),
            Revoked::Token { issuer, jti } => self.entries.insert(name(b"jti", issuer, jti), life),
            Revoked::Subject { issuer, subject, not_after } => {
                self.raise(name(b"sub", issuer, subject), *not_after, life)
            }
            Revoked::Issuer { issuer, not_after } => {
                self.raise(name(b"iss", issuer, ""), *not_after, life);
                self.issuer_marked.store(true, Ordering::Release);
            }
            Revoked::Everything { not_after } => {
                self.everything.fetch_max(not_after.as_millis(), Ordering::AcqRel);
            }
        }
        self.sequence.fetch_max(revocation.sequence, Ordering::AcqRel);
        // Last: whoever sees the new epoch finds the entry.
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// A watermark only rises: an older one that arrives late must not bring tokens back.
    fn raise(&self, whose: u128, not_after: UnixTime, life: Life) {
        let known = self.watermarks.get(&whose).map(|mark| mark.not_after);
        let not_after = known.map_or(not_after, |known| known.max(not_after));
        self.watermarks.insert(whose, Watermark { not_after, life });
    }

    /// Moves with each revocation and with nothing else.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Is a token with these names void?
    pub fn is_revoked(&self, keys: &RevocationKeys) -> bool {
        // `contains_key`, not `get`: it records nothing and never does maintenance in the caller.
        keys.family.is_some_and(|family| self.entries.contains_key(&family))
            || self.is_token_revoked(keys)
            || self.is_before_everything(keys.issued_at)
            || self.is_before_watermark(keys.subject, keys.issued_at)
            || (self.issuer_marked.load(Ordering::Acquire) && self.is_before_watermark(keys.issuer, keys.issued_at))
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
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_700_000_000);
    const HOUR: Duration = Duration::from_hours(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// A token of the family of this number.
    fn of_family(number: u128) -> RevocationKeys {
        RevocationKeys { family: Some(number), token: None, subject: 0, issuer: 0, issued_at: NOW }
    }

    fn of(issuer: &str, subject: &str, jti: &str, issued_at: UnixTime) -> RevocationKeys {
        RevocationKeys {
            family: None,
            token: Some(name(b"jti", issuer, jti)),
            subject: name(b"sub", issuer, subject),
            issuer: name(b"iss", issuer, ""),
            issued_at,
        }
    }

    fn revocation(sequence: u64, what: Revoked, life: Duration) -> Revocation {
        Revocation { sequence, what, at: NOW, until: NOW + life }
    }

    fn family(number: u128, life: Duration) -> Revocation {
        revocation(number as u64, Revoked::Family(TokenId::from_bytes(number.to_be_bytes())), life)
    }

    #[test]
    fn a_million_revocations_are_all_found_and_nothing_else_is() {
        const HALF: u128 = 500_000;
        let revocations = Revocations::new();
        let halves = [1..=HALF, HALF + 1..=2 * HALF];
        thread::scope(|scope| {
            for half in halves.clone() {
                scope.spawn(|| half.for_each(|number| revocations.enforce(&family(number, HOUR), NOW)));
            }
        });
        revocations.tidy();
        let million = 2 * HALF as u64;
        assert_eq!((revocations.len(), revocations.sequence(), revocations.epoch()), (million, million, million + 1));
        thread::scope(|scope| {
            for half in halves {
                scope.spawn(|| half.for_each(|number| assert!(revocations.is_revoked(&of_family(number)), "{number}")));
            }
        });
        let others = (2 * HALF + 1..).take(50_000);
        assert_eq!(others.filter(|number| revocations.is_revoked(&of_family(*number))).count(), 0);
    }

    /// Others look while one revokes: whatever was enforced before a look began is found by it.
    #[test]
    fn what_is_enforced_is_found_at_once_also_in_the_middle_of_a_storm() {
        let revocations = Revocations::new();
        let storming = AtomicBool::new(true);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while storming.load(Ordering::Acquire) {
                        let enforced = u128::from(revocations.sequence());
                        assert!(enforced == 0 || revocations.is_revoked(&of_family(enforced)), "{enforced}");
                        assert!(!revocations.is_revoked(&of_family(u128::MAX - enforced)));
                    }
                });
            }
            for number in 1..=50_000 {
                revocations.enforce(&family(number, HOUR), NOW);
            }
            storming.store(false, Ordering::Release);
        });
    }

    /// Time in the set is the machine's own, which no administrator sets back.
    #[test]
    fn a_revocation_is_kept_for_its_life_and_not_much_longer() {
        for what in [
            Revoked::Family(TokenId::from_bytes([7; 16])),
            Revoked::Token { issuer: "a".into(), jti: "1".into() },
            Revoked::Subject { issuer: "a".into(), subject: "alice".into(), not_after: NOW },
            Revoked::Issuer { issuer: "a".into(), not_after: NOW },
        ] {
            let keys = match &what {
                Revoked::Family(id) => of_family(id.as_u128()),
                _ => of("a", "alice", "1", NOW),
            };
            let revocations = Revocations::new();
            let life = Duration::from_millis(200);
            let began = Instant::now();
            revocations.enforce(&revocation(1, what.clone(), life), NOW);
            assert_eq!(revocations.len_now(), 1);
            while revocations.is_revoked(&keys) {
                assert!(began.elapsed() < 100 * life, "{what:?} is never forgotten");
                thread::yield_now();
            }
            assert!(began.elapsed() >= life, "{what:?} was forgotten after {:?}", began.elapsed());
            while revocations.len_now() > 0 {
                assert!(began.elapsed() < 100 * life, "{what:?} keeps its memory");
                thread::yield_now();
            }
        }
    }

    impl Revocations {
        fn len_now(&self) -> u64 {
            self.tidy();
            self.len()
        }
    }

    #[test]
    fn a_watermark_bites_at_its_instant_and_only_rises() {
        let revocations = Revocations::new();
        let subject = |not_after| Revoked::Subject { issuer: "a".into(), subject: "alice".into(), not_after };
        let issuer = |not_after| Revoked::Issuer { issuer: "b".into(), not_after };
        for (sequence, what) in
            [subject(NOW), subject(NOW - HOUR), issuer(NOW), issuer(NOW - HOUR)].into_iter().enumerate()
        {
            revocations.enforce(&revocation(sequence as u64 + 1, what, HOUR), NOW);
        }
        let after = NOW + Duration::from_millis(1);
        for (keys, revoked) in [
            (of("a", "alice", "1", NOW - HOUR), true),
            (of("a", "alice", "1", NOW), true),
            (of("a", "alice", "1", after), false),
            (of("a", "bob", "1", NOW), false),
            (of("b", "bob", "1", NOW), true),
            (of("b", "alice", "1", after), false),
            (of("c", "alice", "1", NOW - HOUR), false),
        ] {
            assert_eq!(revocations.is_revoked(&keys), revoked, "{keys:?}");
        }
        for not_after in [NOW + SECOND, NOW - HOUR] {
            revocations.enforce(&revocation(5, Revoked::Everything { not_after }, HOUR), NOW);
        }
        for (issued_at, revoked) in [(NOW + SECOND, true), (NOW + SECOND + Duration::from_millis(1), false)] {
            assert_eq!(revocations.is_revoked(&of("c", "carol", "1", issued_at)), revoked);
        }
    }

    /// One that is written again with a shorter life, as after a clock was set back, keeps the longer one.
    #[test]
    fn a_second_revocation_never_shortens_the_first() {
        let revocations = Revocations::new();
        revocations.enforce(&family(1, HOUR), NOW);
        revocations.enforce(&family(1, Duration::ZERO), NOW);
        assert!(revocations.is_revoked(&of_family(1)));
    }

    #[test]
    fn names_of_different_kinds_and_issuers_do_not_meet() {
        let revocations = Revocations::new();
        let token = Revoked::Token { issuer: "ab".into(), jti: "c".into() };
        revocations.enforce(&revocation(1, token, HOUR), NOW);
        assert!(revocations.is_revoked(&of("ab", "c", "c", NOW)));
        assert!(!revocations.is_revoked(&of("a", "c", "bc", NOW)), "where the issuer ends is part of the name");
        assert!(!revocations.is_revoked(&of("ab", "c", "d", NOW)), "a subject is not a jti");
    }

    #[test]
    fn a_token_that_does_not_say_when_it_was_issued_is_void_by_any_watermark_and_only_then() {
        let keys = of("a", "alice", "1", UnixTime::default());
        assert!(!Revocations::new().is_revoked(&keys));
        let not_after = UnixTime::default();
        for what in [
            Revoked::Everything { not_after: UnixTime::from_millis(1) },
            Revoked::Subject { issuer: "a".into(), subject: "alice".into(), not_after },
            Revoked::Issuer { issuer: "a".into(), not_after },
        ] {
            let revocations = Revocations::new();
            revocations.enforce(&revocation(1, what.clone(), HOUR), NOW);
            assert!(revocations.is_revoked(&keys), "{what:?}");
        }
    }

    /// From `until` on there is no token left that it could concern: each is refused for its time from that instant.
    #[test]
    fn a_revocation_that_concerns_nobody_any_more_is_not_held() {
        let revocations = Revocations::new();
        revocations.enforce(&family(1, Duration::ZERO), NOW);
        assert!(!revocations.is_revoked(&of_family(1)));
    }
}
