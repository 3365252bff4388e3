//! What a presented refresh token leads to: the rotation table, as one pure function.
//!
//! c is the family's generation, p the presented one, R the time at which c was made:
//!
//! | case | outcome |
//! |---|---|
//! | no such family, wrong MAC, revoked, past an expiry, not newer than the subject's watermark | refused, nothing changes |
//! | p = c | rotated: c + 1, unconfirmed |
//! | p = c - 1 within the grace of R, or later while the child is unconfirmed | the same child again, nothing changes |
//! | p = c - 1 later, child confirmed | reuse: the family is revoked |
//! | p < c - 1 within the grace of R | conflict (409), nothing changes |
//! | p < c - 1 later | reuse: the family is revoked |
//! | p > c with a good MAC | refused with an alarm: the store went backwards |
//!
//! The grace counts from R, which only a rotation moves: a retry cannot stretch it. The unconfirmed child is how a lost
//! response is told from a theft: nobody has used its access token, so nobody else got it.

use crate::tokens::family::refresh_token::{PresentedToken, Roots};
use crate::tokens::family::{Family, Lifetimes, RevokeReason, RevokedAt};
use crate::types::clock::UnixTime;
use crate::types::reject::Reason;

/// What the store does with the family and what the broker answers. Computed inside one store transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Rotation {
    /// A new generation. The store writes this family; the answer is its current token.
    Rotated(Family),
    /// The client asked again within the grace. Nothing is written; the answer is the current token.
    Replayed(Family),
    /// The client lost the response and asked again after the grace. Nothing is written.
    Recovered(Family),
    /// A spent token came back. The store writes this family, now revoked, and commits before the refusal is sent.
    Reused(Family),
    /// Nothing is written.
    Refused(Reason),
}

/// Decides. `watermark`: tokens of this subject issued at or before this time are void.
pub fn rotate(
    family: Option<&Family>,
    watermark: Option<UnixTime>,
    presented: &PresentedToken,
    roots: &Roots,
    lifetimes: &Lifetimes,
    now: UnixTime,
) -> Rotation {
    let Some(family) = family else { return Rotation::Refused(Reason::GrantUnknown) };
    // The MAC comes first: a forged token must not be able to end a family, nor learn anything about it.
    if !presented.is_genuine(family, roots) {
        return Rotation::Refused(Reason::GrantForged);
    }
    // Death comes before every lenient row: a retry must not revive a family that was revoked in between.
    if family.revoked.is_some() || watermark.is_some_and(|mark| family.created_at <= mark) {
        return Rotation::Refused(Reason::GrantRevoked);
    }
    if now >= family.idle_expiry || now >= family.absolute_expiry {
        return Rotation::Refused(Reason::GrantExpired);
    }

    let in_grace = now.since(family.rotated_at) <= lifetimes.grace;
    match family.generation.checked_sub(presented.generation) {
        None => Rotation::Refused(Reason::GrantAhead),
        Some(0) => Rotation::Rotated(next_generation(family, roots, lifetimes, now)),
        Some(1) if in_grace => Rotation::Replayed(family.clone()),
        Some(1) if family.confirmed < family.generation => Rotation::Recovered(family.clone()),
        Some(behind) if behind > 1 && in_grace => Rotation::Refused(Reason::RefreshConflict),
        Some(_) => Rotation::Reused(revoked(family, now)),
    }
}

fn next_generation(family: &Family, roots: &Roots, lifetimes: &Lifetimes, now: UnixTime) -> Family {
    Family {
        generation: family.generation + 1,
        root: roots.newest(),
        rotated_at: now,
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
    use crate::types::ids::TokenId;
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
            id: TokenId::from_bytes([1; 16]),
            subject: "alice".into(),
            scope: String::new(),
            audience: vec![],
            client_id: String::new(),
            claims: Default::default(),
            label: String::new(),
            salt: [2; 32],
            generation,
            root: 1,
            rotated_at: LOGIN,
            confirmed,
            created_at: LOGIN,
            last_used_at: LOGIN,
            address: None,
            idle: None,
            idle_expiry: LOGIN + LIFETIMES.idle,
            absolute_expiry: LOGIN + LIFETIMES.absolute,
            revoked: None,
        }
    }

    fn presented(generation: u64) -> PresentedToken {
        let token = current(&family(generation, 0), &roots()).expect("root 1 is known");
        PresentedToken::parse(&token).expect("what we mint is well formed")
    }

    fn rotate_at(family: &Family, generation: u64, after: Duration) -> Rotation {
        rotate(Some(family), None, &presented(generation), &roots(), &LIFETIMES, LOGIN + after)
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
    fn idle_expiry_never_passes_the_absolute_one() {
        let late = LIFETIMES.absolute - Duration::from_secs(1);
        let kept = Family { idle_expiry: LOGIN + LIFETIMES.absolute, ..family(1, 1) };
        let Rotation::Rotated(next) = rotate_at(&kept, 1, late) else { panic!() };
        assert_eq!(next.idle_expiry, next.absolute_expiry);
    }

    #[test]
    fn a_familys_own_idle_limit_only_shortens() {
        for (own, effective) in [(HOUR, HOUR), (LIFETIMES.idle + HOUR, LIFETIMES.idle)] {
            let Rotation::Rotated(next) = rotate_at(&Family { idle: Some(own), ..family(1, 1) }, 1, HOUR) else {
                panic!()
            };
            assert_eq!((next.idle, next.idle_expiry), (Some(own), LOGIN + HOUR + effective));
        }
    }

    #[test]
    fn the_parent_gets_its_child_again_within_the_grace_whether_confirmed_or_not() {
        for confirmed in [4, 5] {
            let kept = family(5, confirmed);
            assert_eq!(rotate_at(&kept, 4, INSIDE), Rotation::Replayed(kept.clone()));
        }
    }

    #[test]
    fn after_the_grace_the_parent_works_only_while_the_child_is_unconfirmed() {
        let kept = family(5, 4);
        assert_eq!(rotate_at(&kept, 4, OUTSIDE), Rotation::Recovered(kept.clone()));
        let Rotation::Reused(ended) = rotate_at(&family(5, 5), 4, OUTSIDE) else { panic!() };
        assert_eq!(ended.revoked, Some(RevokedAt { at: LOGIN + OUTSIDE, reason: RevokeReason::Reuse }));
    }

    #[test]
    fn older_generations_conflict_within_the_grace_and_are_reuse_after_it() {
        for confirmed in [4, 5] {
            assert_eq!(rotate_at(&family(5, confirmed), 3, INSIDE), Rotation::Refused(Reason::RefreshConflict));
            assert!(matches!(rotate_at(&family(5, confirmed), 3, OUTSIDE), Rotation::Reused(_)));
        }
    }

    #[test]
    fn a_token_newer_than_the_store_is_refused() {
        assert_eq!(rotate_at(&family(5, 5), 6, INSIDE), Rotation::Refused(Reason::GrantAhead));
    }

    #[test]
    fn both_expiries_bite_at_their_instant() {
        let just_before = LIFETIMES.idle - Duration::from_millis(1);
        assert!(matches!(rotate_at(&family(1, 1), 1, just_before), Rotation::Rotated(_)));
        assert_eq!(rotate_at(&family(1, 1), 1, LIFETIMES.idle), Rotation::Refused(Reason::GrantExpired));
        let idle_for_ever = Family { idle_expiry: UnixTime::MAX, ..family(1, 1) };
        let just_before = LIFETIMES.absolute - Duration::from_millis(1);
        assert!(matches!(rotate_at(&idle_for_ever, 1, just_before), Rotation::Rotated(_)));
        assert_eq!(rotate_at(&idle_for_ever, 1, LIFETIMES.absolute), Rotation::Refused(Reason::GrantExpired));
    }

    #[test]
    fn a_family_is_shown_as_live_to_the_same_instants() {
        let absolute_first = Family { idle_expiry: UnixTime::MAX, ..family(1, 1) };
        for (family, end) in [(family(1, 1), LIFETIMES.idle), (absolute_first, LIFETIMES.absolute)] {
            assert!(family.is_live(LOGIN + end - Duration::from_millis(1)));
            assert!(!family.is_live(LOGIN + end));
        }
    }

    #[test]
    fn death_comes_before_every_lenient_row() {
        let dead = Family { revoked: Some(RevokedAt { at: LOGIN, reason: RevokeReason::Logout }), ..family(5, 4) };
        for generation in [3, 4, 5, 6] {
            assert_eq!(rotate_at(&dead, generation, INSIDE), Rotation::Refused(Reason::GrantRevoked));
        }
    }

    #[test]
    fn a_watermark_voids_families_as_old_as_itself() {
        for (mark, refused) in [(LOGIN - Duration::from_millis(1), false), (LOGIN, true)] {
            let family = family(5, 5);
            let outcome = rotate(Some(&family), Some(mark), &presented(5), &roots(), &LIFETIMES, LOGIN);
            assert_eq!(outcome == Rotation::Refused(Reason::GrantRevoked), refused);
        }
    }

    #[test]
    fn a_forged_token_changes_nothing() {
        let other_salt = Family { salt: [3; 32], ..family(5, 5) };
        assert_eq!(rotate_at(&other_salt, 3, OUTSIDE), Rotation::Refused(Reason::GrantForged));
        let unknown_root = Roots::new((2, Secret::new(vec![7; 32])), vec![]);
        let outcome = rotate(Some(&family(5, 5)), None, &presented(5), &unknown_root, &LIFETIMES, LOGIN);
        assert_eq!(outcome, Rotation::Refused(Reason::GrantForged));
        assert_eq!(
            rotate(None, None, &presented(5), &roots(), &LIFETIMES, LOGIN),
            Rotation::Refused(Reason::GrantUnknown)
        );
    }

    #[test]
    fn a_refresh_token_is_90_characters_and_any_change_makes_it_malformed() {
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
