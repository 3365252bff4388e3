use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

const NOW: UnixTime = UnixTime::from_secs(1_700_000_000);
const HOUR: Duration = Duration::from_hours(1);
const SECOND: Duration = Duration::from_secs(1);

/// A token of the family of this number.
fn of_family(number: u128) -> RevocationKeys {
    RevocationKeys { family: Some(number), token: None, session: None, subject: 0, issuer: 0, client: None, dated: NOW }
}

fn of(issuer: &str, subject: &str, jti: &str, dated: UnixTime) -> RevocationKeys {
    RevocationKeys {
        family: None,
        token: Some(key(b"jti", issuer, jti)),
        session: Some(key(b"sid", issuer, "s")),
        subject: key(b"sub", issuer, subject),
        issuer: key(b"iss", issuer, ""),
        client: None,
        dated,
    }
}

fn revocation(sequence: u64, what: Revoked, life: Duration) -> Revocation {
    Revocation { sequence, what, at: NOW, until: NOW + life }
}

fn family(number: u128, life: Duration) -> Revocation {
    revocation(number as u64, Revoked::Family(TokenId::from_bytes(number.to_be_bytes())), life)
}

/// The bench `revocations` looks up a million.
#[test]
fn finds_a_hundred_thousand_revocations_and_nothing_else() {
    const HALF: u128 = 50_000;
    let revocations = Revocations::new();
    let halves = [1..=HALF, HALF + 1..=2 * HALF];
    thread::scope(|scope| {
        for half in halves.clone() {
            scope.spawn(|| half.for_each(|number| revocations.enforce(&family(number, HOUR))));
        }
    });
    revocations.remove_expired();
    let all = 2 * HALF as u64;
    assert_eq!((revocations.count(), revocations.sequence(), revocations.epoch()), (all, all, all + 1));
    thread::scope(|scope| {
        for half in halves {
            scope.spawn(|| half.for_each(|number| assert!(revocations.is_revoked(&of_family(number)), "{number}")));
        }
    });
    let others = (2 * HALF + 1..).take(50_000);
    assert_eq!(others.filter(|number| revocations.is_revoked(&of_family(*number))).count(), 0);
}

/// Two threads look up while one revokes: a look-up finds everything that was enforced before it began.
#[test]
fn finds_a_revocation_at_once_during_many_others() {
    let revocations = Revocations::new();
    let revoking = AtomicBool::new(true);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while revoking.load(Ordering::Acquire) {
                    let enforced = u128::from(revocations.sequence());
                    assert!(enforced == 0 || revocations.is_revoked(&of_family(enforced)), "{enforced}");
                    assert!(!revocations.is_revoked(&of_family(u128::MAX - enforced)));
                }
            });
        }
        for number in 1..=50_000 {
            revocations.enforce(&family(number, HOUR));
        }
        revoking.store(false, Ordering::Release);
    });
}

/// The set uses the monotonic clock, which an administrator cannot set back.
#[test]
fn keeps_a_revocation_for_its_life_and_little_longer() {
    for what in [
        Revoked::Family(TokenId::from_bytes([7; 16])),
        Revoked::Token { issuer: "a".into(), jti: "1".into() },
        Revoked::Session { issuer: "a".into(), session: "s".into() },
        Revoked::Subject { issuer: "a".into(), subject: "alice".into(), not_after: NOW },
        Revoked::Issuer { issuer: "a".into(), not_after: NOW },
        client("spa", None, NOW),
        client("spa", Some("alice"), NOW),
    ] {
        let keys = match &what {
            Revoked::Family(id) => of_family(id.as_u128()),
            Revoked::Client { .. } => of_client("spa", "alice", NOW),
            _ => of("a", "alice", "1", NOW),
        };
        let revocations = Revocations::new();
        let life = Duration::from_millis(200);
        let began = Instant::now();
        // Twice, because an entry that is written again keeps its life.
        [1, 2].into_iter().for_each(|sequence| revocations.enforce(&revocation(sequence, what.clone(), life)));
        assert_eq!(revocations.len_now(), 1);
        while revocations.is_revoked(&keys) {
            assert!(began.elapsed() < 100 * life, "{what:?} does not expire");
            thread::yield_now();
        }
        assert!(began.elapsed() >= life, "{what:?} expired after {:?}", began.elapsed());
        while revocations.len_now() > 0 {
            assert!(began.elapsed() < 100 * life, "{what:?} does not free its memory");
            thread::yield_now();
        }
    }
}

impl Revocations {
    fn len_now(&self) -> u64 {
        self.remove_expired();
        self.count()
    }
}

#[test]
fn a_watermark_includes_its_instant_and_only_rises() {
    let revocations = Revocations::new();
    let subject = |not_after| Revoked::Subject { issuer: "a".into(), subject: "alice".into(), not_after };
    let issuer = |not_after| Revoked::Issuer { issuer: "b".into(), not_after };
    for (sequence, what) in [subject(NOW), subject(NOW - HOUR), issuer(NOW), issuer(NOW - HOUR)].into_iter().enumerate()
    {
        revocations.enforce(&revocation(sequence as u64 + 1, what, HOUR));
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
        revocations.enforce(&revocation(5, Revoked::Everything { not_after }, HOUR));
    }
    for (dated, revoked) in [(NOW + SECOND, true), (NOW + SECOND + Duration::from_millis(1), false)] {
        assert_eq!(revocations.is_revoked(&of("c", "carol", "1", dated)), revoked);
    }
}

fn client(client_id: &str, subject: Option<&str>, not_after: UnixTime) -> Revoked {
    Revoked::Client { client_id: client_id.into(), subject: subject.map(Into::into), not_after }
}

/// A token of this gateway for a client.
fn of_client(client_id: &str, subject: &str, dated: UnixTime) -> RevocationKeys {
    let mut token = VerifiedToken::with_subject(subject.into());
    (token.own, token.dated) = (true, dated);
    token.claims.insert("client_id".into(), client_id.into());
    RevocationKeys::of(&token)
}

#[test]
fn a_watermark_of_a_client_ends_its_tokens_of_all_users_or_of_one() {
    let revocations = Revocations::new();
    let after = NOW + Duration::from_millis(1);
    for (sequence, what) in [client("spa", None, NOW), client("spa", None, NOW - HOUR), client("cli", Some("bob"), NOW)]
        .into_iter()
        .enumerate()
    {
        revocations.enforce(&revocation(sequence as u64 + 1, what, HOUR));
    }
    let mut of_another_issuer = VerifiedToken::with_subject("alice".into());
    of_another_issuer.dated = NOW;
    of_another_issuer.claims.insert("client_id".into(), "spa".into());
    for (keys, revoked) in [
        (of_client("spa", "alice", NOW), true),
        (of_client("spa", "bob", NOW - HOUR), true),
        (of_client("spa", "alice", after), false),
        (of_client("cli", "bob", NOW), true),
        (of_client("cli", "alice", NOW), false),
        (of_client("cli", "bob", after), false),
        (of_client("clib", "ob", NOW), false),
        (of_client("", "", NOW), false),
        (RevocationKeys::of(&of_another_issuer), false),
    ] {
        assert_eq!(revocations.is_revoked(&keys), revoked, "{keys:?}");
    }
}

/// Without such a watermark, no token is looked up among them.
#[test]
fn clients_are_looked_up_only_while_one_is_revoked() {
    let revocations = Revocations::new();
    let has_clients = || revocations.has_clients.load(Ordering::Acquire);
    revocations.enforce(&family(1, HOUR));
    assert!(!has_clients());
    let life = Duration::from_millis(50);
    revocations.enforce(&revocation(2, client("spa", None, NOW), life));
    revocations.remove_expired();
    assert!(has_clients() && revocations.is_revoked(&of_client("spa", "alice", NOW)));
    let began = Instant::now();
    while has_clients() {
        assert!(began.elapsed() < 100 * life, "it is looked up although it has expired");
        revocations.remove_expired();
    }
    assert!(began.elapsed() >= life);
    revocations.enforce(&revocation(3, client("spa", None, NOW), HOUR));
    assert!(has_clients() && revocations.is_revoked(&of_client("spa", "alice", NOW)));
}

/// A second write with a shorter life, as after a clock was set back, keeps the longer life.
#[test]
fn a_second_revocation_never_shortens_the_first() {
    let revocations = Revocations::new();
    revocations.enforce(&family(1, HOUR));
    revocations.enforce(&family(1, Duration::ZERO));
    assert!(revocations.is_revoked(&of_family(1)));
}

#[test]
fn keys_of_different_kinds_and_issuers_do_not_collide() {
    let revocations = Revocations::new();
    let token = Revoked::Token { issuer: "ab".into(), jti: "c".into() };
    revocations.enforce(&revocation(1, token, HOUR));
    assert!(revocations.is_revoked(&of("ab", "c", "c", NOW)));
    assert!(!revocations.is_revoked(&of("a", "c", "bc", NOW)), "the end of the issuer is part of the key");
    assert!(!revocations.is_revoked(&of("ab", "c", "d", NOW)), "a subject is not a jti");
}

#[test]
fn any_watermark_revokes_a_token_without_iat() {
    let keys = of("a", "alice", "1", UnixTime::default());
    assert!(!Revocations::new().is_revoked(&keys));
    let not_after = UnixTime::default();
    for what in [
        Revoked::Everything { not_after: UnixTime::from_millis(1) },
        Revoked::Subject { issuer: "a".into(), subject: "alice".into(), not_after },
        Revoked::Issuer { issuer: "a".into(), not_after },
    ] {
        let revocations = Revocations::new();
        revocations.enforce(&revocation(1, what.clone(), HOUR));
        assert!(revocations.is_revoked(&keys), "{what:?}");
    }
}

/// At `until` every token that the revocation concerns has expired.
#[test]
fn does_not_keep_a_revocation_past_its_end() {
    let revocations = Revocations::new();
    revocations.enforce(&family(1, Duration::ZERO));
    assert!(!revocations.is_revoked(&of_family(1)));
}

#[test]
fn only_a_text_sid_of_another_issuer_names_a_session() {
    let token = |own, sid: serde_json::Value| {
        let mut token = VerifiedToken::with_subject("alice".into());
        (token.own, token.claims) = (own, [("sid".to_owned(), sid)].into_iter().collect());
        token
    };
    let revocations = Revocations::new();
    let issuer = "https://login.example";
    for (issuer, session) in [(issuer, "1"), ("https://login.example1", ""), ("https://other.example", "2")] {
        let what = Revoked::Session { issuer: issuer.into(), session: session.into() };
        revocations.enforce(&revocation(1, what, HOUR));
    }
    for (token, revoked) in [
        (token(false, "1".into()), true),
        (token(true, "1".into()), false),
        (token(false, 1.into()), false),
        (token(false, "2".into()), false),
        (token(false, "".into()), false),
        (VerifiedToken::with_subject("1".into()), false),
    ] {
        assert_eq!(revocations.is_revoked(&RevocationKeys::of(&token)), revoked, "{token:?}");
    }
    let one_token = RevocationKeys::of(&token(false, "1".into()));
    assert!(!revocations.is_token_revoked(&one_token), "the session is not one token");
}
