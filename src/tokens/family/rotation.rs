//! The outcome of a presented refresh token, as one function without I/O.
//!
//! c is the generation of the family, p the presented generation, R the time at which c was created:
//!
//! | case | outcome |
//! |---|---|
//! | no such family, wrong MAC, revoked, expired, not newer than the watermark of its subject or client | rejected, nothing changes |
//! | p = c | rotated: c + 1, not confirmed yet |
//! | p = c - 1 within `refresh_grace` of R, or later while c is not confirmed | the refresh token of c again, nothing changes |
//! | p = c - 1 later, c confirmed | reuse: the family is revoked, or superseded |
//! | p < c - 1 within `refresh_grace` of R | conflict, nothing changes |
//! | p < c - 1 later | reuse: the family is revoked, or superseded |
//! | p > c with a correct MAC | rejected with an alarm: the store lost data |
//!
//! At the token endpoint, a client that proves a key takes the place of rotation as the protection (RFC 9700 section
//! 4.14.2): a thief without the key gets nothing by any token. There, reuse and conflict are answered with the refresh
//! token of c again, at any time, and nothing changes: [`Rotation::for_proven_sender`].
//!
//! A conflict is final: the same token is reuse later. So no response to it asks for a retry: `/user/refresh` responds
//! 409, the token endpoint `invalid_grant`.
//!
//! The grace period counts from R, which only a rotation changes, so that a retry cannot extend it. It counts by the
//! time of the transaction: a thief could begin a request within it and finish the body later. With PostgreSQL, this
//! time and R are those of the database, which is never set back. With SQLite, both are those of the gateway: if R lies
//! ahead, the clock was set back while the gateway did not run, and there is no grace. With `refresh_grace = "0s"` there
//! is none at all. A generation is confirmed when one of its access tokens is used. While it is not confirmed, the
//! client has probably lost the response, and no thief has used the token.
//!
//! After `timeouts.store`, when the client has got 503, only a rotation still takes effect. Right after a pause of the
//! gateway, a request may be as old as the pause, so that none is reuse (`store/late.rs`).

use super::lifetimes::Lifetimes;
use super::record::{Family, RevokeReason, RevokedAt};
use super::refresh_token::{PresentedToken, Roots};
use crate::types::clock::{TransactionTime, UnixTime};
use crate::types::reject::Reason;

/// What the store writes and what the gateway responds. Computed inside one transaction of the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Rotation {
    /// A new generation. The store writes this family; the response is its current token.
    Rotated(Family),
    /// The client repeated the request within `refresh_grace`. Nothing is written; the response is the current token.
    Replayed(Family),
    /// The client lost the response and repeated the request after `refresh_grace`. Nothing is written; the response is
    /// the current token.
    Recovered(Family),
    /// A client that has proved its key presented a token from before the last rotation. Nothing is written; the
    /// response is the current token.
    Repeated(Family),
    /// A spent token was used again. The store writes this family, now revoked, and commits before the response is
    /// sent.
    Reused(Family),
    /// As `Reused`, but the family goes on. The store writes its [`grant`](Family::grant) before the response is sent.
    Superseded(Family),
    /// Nothing is written.
    Rejected(Reason),
}

impl Rotation {
    /// The outcome for a client that has proved the key or certificate to which `family` is bound, or that has
    /// authenticated as its owner. Its spent tokens are no sign of theft: several processes with copies of them refresh
    /// as they like.
    pub fn for_proven_sender(self, family: &Family) -> Rotation {
        match self {
            Rotation::Reused(_) | Rotation::Rejected(Reason::RefreshConflict) => Rotation::Repeated(family.clone()),
            other => other,
        }
    }
}

/// Decides the outcome. The family is void if it began at or before `watermark`.
pub fn rotate(
    family: Option<&Family>,
    watermark: Option<UnixTime>,
    presented: &PresentedToken,
    roots: &Roots,
    lifetimes: &Lifetimes,
    time: TransactionTime,
) -> Rotation {
    let now = time.now;
    let Some(family) = family else { return Rotation::Rejected(Reason::GrantUnknown) };
    // The MAC comes first: a forged token must not end a family, and its sender must learn nothing about it.
    if !presented.is_genuine(family, roots) {
        return Rotation::Rejected(Reason::GrantForged);
    }
    // Revocation and expiry come before the tolerant cases: a retry must not revive a family that was revoked
    // meanwhile.
    if let Some(reason) = end_of(family, watermark, now) {
        return Rotation::Rejected(reason);
    }

    let in_grace = is_in_grace(family, lifetimes, time);
    match family.generation.checked_sub(presented.generation) {
        None => Rotation::Rejected(Reason::GrantAhead),
        Some(0) => Rotation::Rotated(next_generation(family, roots, lifetimes, time)),
        Some(1) if in_grace => Rotation::Replayed(family.clone()),
        Some(1) if family.confirmed < family.generation => Rotation::Recovered(family.clone()),
        Some(behind) if behind > 1 && in_grace => Rotation::Rejected(Reason::RefreshConflict),
        Some(_) => Rotation::Reused(revoked(family, now)),
    }
}

/// As [`rotate`], for a call that came before the last rotation of the family and waited for it. `before`: the family
/// before that rotation. If the call had been first, it might have got the token of `before` again. It gets the newest
/// one then, and no conflict.
pub fn rotate_late(
    before: &Family,
    family: &Family,
    watermark: Option<UnixTime>,
    presented: &PresentedToken,
    roots: &Roots,
    lifetimes: &Lifetimes,
    time: TransactionTime,
) -> Rotation {
    let rotation = rotate(Some(family), watermark, presented, roots, lifetimes, time);
    let is_conflict = rotation == Rotation::Rejected(Reason::RefreshConflict);
    // Another gateway may have rotated as well.
    if !is_conflict || before.generation + 1 != family.generation {
        return rotation;
    }
    match rotate(Some(before), watermark, presented, roots, lifetimes, time) {
        Rotation::Replayed(_) | Rotation::Recovered(_) => Rotation::Replayed(family.clone()),
        _ => rotation,
    }
}

/// Why no token of this family can be refreshed; `None` while it is live.
pub fn end_of(family: &Family, watermark: Option<UnixTime>, now: UnixTime) -> Option<Reason> {
    if family.revoked.is_some() || watermark.is_some_and(|mark| family.created_at <= mark) {
        return Some(Reason::GrantRevoked);
    }
    (now >= family.idle_expiry || now >= family.absolute_expiry).then_some(Reason::GrantExpired)
}

fn is_in_grace(family: &Family, lifetimes: &Lifetimes, time: TransactionTime) -> bool {
    let Some(since) = family.last_rotation() else { return false };
    let now = time.steady;
    !lifetimes.grace.is_zero() && since <= now && now.since(since) <= lifetimes.grace
}

fn next_generation(family: &Family, roots: &Roots, lifetimes: &Lifetimes, time: TransactionTime) -> Family {
    let now = time.now;
    Family {
        generation: family.generation + 1,
        root: roots.newest(),
        rotated_at: time.steady,
        last_used_at: now,
        idle_expiry: family.next_idle_expiry(lifetimes, now),
        ..family.clone()
    }
}

fn revoked(family: &Family, now: UnixTime) -> Family {
    Family { revoked: Some(RevokedAt { at: now, reason: RevokeReason::Reuse }), ..family.clone() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tokens::family::refresh_token::current;
    use crate::types::secret::Secret;

    const LIFETIMES: Lifetimes = Lifetimes {
        access: Duration::from_secs(900),
        idle: Duration::from_secs(7 * 86_400),
        absolute: Duration::from_secs(30 * 86_400),
        grace: Duration::from_secs(10),
    };
    const LOGIN: UnixTime = UnixTime::from_secs(1_000_000);

    fn roots() -> Roots {
        Roots::new((1, Secret::new(vec![7; 32])), vec![])
    }

    fn family(generation: u64, confirmed: u64) -> Family {
        Family {
            generation,
            confirmed,
            idle_expiry: LOGIN + LIFETIMES.idle,
            absolute_expiry: LOGIN + LIFETIMES.absolute,
            ..Family::sample(LOGIN)
        }
    }

    fn presented(generation: u64) -> PresentedToken {
        let token = current(&family(generation, 0), &roots()).expect("root 1 is known");
        PresentedToken::parse(&token).expect("a derived token is well formed")
    }

    fn rotate_at(family: &Family, generation: u64, after: Duration) -> Rotation {
        rotate(Some(family), None, &presented(generation), &roots(), &LIFETIMES, (LOGIN + after).into())
    }

    const HOUR: Duration = Duration::from_hours(1);
    const INSIDE: Duration = Duration::from_secs(10);
    const OUTSIDE: Duration = Duration::from_millis(10_001);

    #[test]
    fn the_current_token_rotates() {
        let Rotation::Rotated(next) = rotate_at(&family(5, 5), 5, OUTSIDE) else { panic!() };
        assert_eq!((next.generation, next.confirmed), (6, 5));
        assert_eq!(next.rotated_at, LOGIN + OUTSIDE);
        assert_eq!(next.idle_expiry, LOGIN + OUTSIDE + LIFETIMES.idle);
        assert_eq!(next.absolute_expiry, LOGIN + LIFETIMES.absolute);
    }

    #[test]
    fn a_proven_sender_gets_the_newest_token_for_any_older_one() {
        let live = family(5, 5);
        let proven = |generation, after| rotate_at(&live, generation, after).for_proven_sender(&live);
        for (generation, after) in [(3, INSIDE), (3, OUTSIDE), (4, OUTSIDE), (1, HOUR)] {
            assert_eq!(proven(generation, after), Rotation::Repeated(live.clone()), "{generation} {after:?}");
        }
        assert_eq!(proven(4, INSIDE), Rotation::Replayed(live.clone()));
        assert!(matches!(proven(5, HOUR), Rotation::Rotated(_)));
        assert_eq!(proven(6, HOUR), Rotation::Rejected(Reason::GrantAhead));
        let ended = revoked(&live, LOGIN);
        let of_ended = rotate_at(&ended, 3, OUTSIDE).for_proven_sender(&ended);
        assert_eq!(of_ended, Rotation::Rejected(Reason::GrantRevoked));
    }

    #[test]
    fn idle_expiry_is_never_later_than_absolute_expiry() {
        let late = LIFETIMES.absolute - Duration::from_secs(1);
        let kept = Family { idle_expiry: LOGIN + LIFETIMES.absolute, ..family(1, 1) };
        let Rotation::Rotated(next) = rotate_at(&kept, 1, late) else { panic!() };
        assert_eq!(next.idle_expiry, next.absolute_expiry);
    }

    #[test]
    fn the_idle_limit_of_a_login_can_only_shorten() {
        for (own, effective) in [(HOUR, HOUR), (LIFETIMES.idle + HOUR, LIFETIMES.idle)] {
            let Rotation::Rotated(next) = rotate_at(&Family { idle: Some(own), ..family(1, 1) }, 1, HOUR) else {
                panic!()
            };
            assert_eq!((next.idle, next.idle_expiry), (Some(own), LOGIN + HOUR + effective));
        }
    }

    #[test]
    fn within_the_grace_the_parent_gets_its_child_again() {
        for confirmed in [4, 5] {
            let kept = family(5, confirmed);
            assert_eq!(rotate_at(&kept, 4, INSIDE), Rotation::Replayed(kept.clone()));
        }
    }

    #[test]
    fn after_the_grace_only_an_unconfirmed_child_is_returned() {
        let kept = family(5, 4);
        assert_eq!(rotate_at(&kept, 4, OUTSIDE), Rotation::Recovered(kept.clone()));
        let Rotation::Reused(ended) = rotate_at(&family(5, 5), 4, OUTSIDE) else { panic!() };
        assert_eq!(ended.revoked, Some(RevokedAt { at: LOGIN + OUTSIDE, reason: RevokeReason::Reuse }));
    }

    #[test]
    fn a_grace_of_zero_is_none() {
        let none = Lifetimes { grace: Duration::ZERO, ..LIFETIMES };
        let outcome = |family: &Family, generation| {
            rotate(Some(family), None, &presented(generation), &roots(), &none, LOGIN.into())
        };
        assert!(matches!(outcome(&family(5, 5), 4), Rotation::Reused(_)), "in the millisecond of the rotation");
        assert!(matches!(outcome(&family(5, 5), 3), Rotation::Reused(_)));
        assert_eq!(outcome(&family(5, 4), 4), Rotation::Recovered(family(5, 4)), "the response may have been lost");
    }

    #[test]
    fn a_clock_set_back_closes_the_grace() {
        let at = |generation, now, steady| {
            let time = TransactionTime { now, steady };
            rotate(Some(&family(5, 5)), None, &presented(generation), &roots(), &LIFETIMES, time)
        };
        let back = LOGIN - HOUR;
        for generation in [3, 4] {
            assert!(matches!(at(generation, back, LOGIN + OUTSIDE), Rotation::Reused(_)), "while the gateway runs");
            let millisecond = Duration::from_millis(1);
            assert!(matches!(at(generation, back, LOGIN - millisecond), Rotation::Reused(_)), "before it started");
        }
        assert_eq!(at(4, back, LOGIN + INSIDE), Rotation::Replayed(family(5, 5)), "the grace is as long as ever");
        let Rotation::Rotated(next) = at(5, back, LOGIN + HOUR) else { panic!() };
        assert_eq!((next.rotated_at, next.last_used_at), (LOGIN + HOUR, back));
        assert_eq!(next.idle_expiry, back + LIFETIMES.idle);
    }

    #[test]
    fn older_generations_conflict_in_the_grace_then_are_reuse() {
        for confirmed in [4, 5] {
            assert_eq!(rotate_at(&family(5, confirmed), 3, INSIDE), Rotation::Rejected(Reason::RefreshConflict));
            assert!(matches!(rotate_at(&family(5, confirmed), 3, OUTSIDE), Rotation::Reused(_)));
        }
    }

    #[test]
    fn a_call_that_waited_for_a_rotation_is_judged_as_if_it_had_been_first() {
        let late = |before: &Family, family: &Family, generation, after: Duration| {
            let time = (LOGIN + after).into();
            rotate_late(before, family, None, &presented(generation), &roots(), &LIFETIMES, time)
        };
        let now = Family { rotated_at: LOGIN + HOUR, ..family(5, 4) };
        let conflict = Rotation::Rejected(Reason::RefreshConflict);
        let just_before = Family { rotated_at: LOGIN + HOUR - INSIDE, ..family(4, 4) };
        let long_before = family(4, 4);
        let unconfirmed = family(4, 3);
        for (before, generation, expected) in [
            (&just_before, 3, Rotation::Replayed(now.clone())),
            (&unconfirmed, 3, Rotation::Replayed(now.clone())),
            // It would have been reuse, or is older still.
            (&long_before, 3, conflict.clone()),
            (&just_before, 2, conflict.clone()),
            // Another gateway has rotated as well.
            (&family(3, 2), 2, conflict),
            (&just_before, 4, Rotation::Replayed(now.clone())),
        ] {
            assert_eq!(late(before, &now, generation, HOUR), expected, "{before:?} {generation}");
        }
        let ended = Family { revoked: Some(RevokedAt { at: LOGIN, reason: RevokeReason::Logout }), ..now };
        assert_eq!(late(&just_before, &ended, 3, HOUR), Rotation::Rejected(Reason::GrantRevoked));
    }

    #[test]
    fn a_token_newer_than_the_store_is_rejected() {
        assert_eq!(rotate_at(&family(5, 5), 6, INSIDE), Rotation::Rejected(Reason::GrantAhead));
    }

    #[test]
    fn both_expiries_apply_at_their_exact_time() {
        let just_before = LIFETIMES.idle - Duration::from_millis(1);
        assert!(matches!(rotate_at(&family(1, 1), 1, just_before), Rotation::Rotated(_)));
        assert_eq!(rotate_at(&family(1, 1), 1, LIFETIMES.idle), Rotation::Rejected(Reason::GrantExpired));
        let idle_for_ever = Family { idle_expiry: UnixTime::MAX, ..family(1, 1) };
        let just_before = LIFETIMES.absolute - Duration::from_millis(1);
        assert!(matches!(rotate_at(&idle_for_ever, 1, just_before), Rotation::Rotated(_)));
        assert_eq!(rotate_at(&idle_for_ever, 1, LIFETIMES.absolute), Rotation::Rejected(Reason::GrantExpired));
    }

    #[test]
    fn a_family_is_live_until_the_same_times() {
        let absolute_first = Family { idle_expiry: UnixTime::MAX, ..family(1, 1) };
        for (family, end) in [(family(1, 1), LIFETIMES.idle), (absolute_first, LIFETIMES.absolute)] {
            assert!(family.is_live(LOGIN + end - Duration::from_millis(1)));
            assert!(!family.is_live(LOGIN + end));
        }
    }

    #[test]
    fn revocation_comes_before_every_tolerant_case() {
        let ended = Family { revoked: Some(RevokedAt { at: LOGIN, reason: RevokeReason::Logout }), ..family(5, 4) };
        for generation in [3, 4, 5, 6] {
            assert_eq!(rotate_at(&ended, generation, INSIDE), Rotation::Rejected(Reason::GrantRevoked));
        }
    }

    #[test]
    fn a_watermark_voids_families_as_old_as_itself() {
        for (mark, is_rejected) in [(LOGIN - Duration::from_millis(1), false), (LOGIN, true)] {
            let family = family(5, 5);
            let outcome = rotate(Some(&family), Some(mark), &presented(5), &roots(), &LIFETIMES, LOGIN.into());
            assert_eq!(outcome == Rotation::Rejected(Reason::GrantRevoked), is_rejected);
        }
    }

    #[test]
    fn a_forged_token_changes_nothing() {
        let other_salt = Family { salt: [3; 32], ..family(5, 5) };
        assert_eq!(rotate_at(&other_salt, 3, OUTSIDE), Rotation::Rejected(Reason::GrantForged));
        let unknown_root = Roots::new((2, Secret::new(vec![7; 32])), vec![]);
        let outcome = rotate(Some(&family(5, 5)), None, &presented(5), &unknown_root, &LIFETIMES, LOGIN.into());
        assert_eq!(outcome, Rotation::Rejected(Reason::GrantForged));
        assert_eq!(
            rotate(None, None, &presented(5), &roots(), &LIFETIMES, LOGIN.into()),
            Rotation::Rejected(Reason::GrantUnknown)
        );
    }

    #[test]
    fn a_refresh_token_has_90_characters_and_a_checksum() {
        let token = current(&family(5, 5), &roots()).expect("root 1 is known");
        assert_eq!(token.len(), 90);
        for place in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[place] = if changed[place] == b'a' { b'b' } else { b'a' };
            let changed = String::from_utf8(changed).expect("still ASCII");
            assert!(PresentedToken::parse(&changed).is_none(), "place {place}");
        }
        assert!(PresentedToken::parse(&token[..89]).is_none());
        assert!(PresentedToken::parse("").is_none());
    }
}
