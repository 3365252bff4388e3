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
    for (sequence, what) in [subject(NOW), subject(NOW - HOUR), issuer(NOW), issuer(NOW - HOUR)].into_iter().enumerate()
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
