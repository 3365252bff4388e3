//! The effect of a watermark on families. No I/O, and the same for every store.
//!
//! A watermark voids the families that began at or before it, to the millisecond. Only the two times count, not the
//! order in which the two were written: a login that is in flight while all sessions of its user are revoked is void,
//! and so is a refresh that is written after the watermark, because a refresh does not change when the login began. A
//! call that revokes by a watermark returns after its time, so that the next login is dated later.

use crate::tokens::family::{Family, RevokeReason, RevokedAt};
use crate::types::clock::UnixTime;

/// Returns true if the watermark voids the family.
pub(super) fn is_void(family: &Family, mark: Option<UnixTime>) -> bool {
    mark.is_some_and(|mark| family.created_at <= mark)
}

/// The family as a list shows it: revoked at the watermark, if that voids it.
///
/// A watermark ends any number of families with one row and leaves their own rows unchanged.
pub(super) fn with_watermark(family: Family, mark: Option<UnixTime>) -> Family {
    match mark {
        Some(at) if family.revoked.is_none() && is_void(&family, mark) => {
            Family { revoked: Some(RevokedAt { at, reason: RevokeReason::Admin }), ..family }
        }
        _ => family,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LOGIN: UnixTime = UnixTime::from_millis(1_700_000_000_500);

    fn family(revoked: Option<RevokedAt>) -> Family {
        Family { revoked, ..Family::sample(LOGIN) }
    }

    #[test]
    fn a_list_shows_what_a_watermark_voids_as_revoked() {
        let millisecond = Duration::from_millis(1);
        let by_mark = |at| Some(RevokedAt { at, reason: RevokeReason::Admin });
        for (mark, revoked) in [
            (None, None),
            (Some(LOGIN - millisecond), None),
            (Some(LOGIN), by_mark(LOGIN)),
            (Some(LOGIN + millisecond), by_mark(LOGIN + millisecond)),
        ] {
            assert_eq!(with_watermark(family(None), mark).revoked, revoked, "{mark:?}");
        }
    }

    #[test]
    fn a_watermark_keeps_an_earlier_revocation() {
        let before = RevokedAt { at: LOGIN, reason: RevokeReason::Logout };
        assert_eq!(with_watermark(family(Some(before)), Some(UnixTime::MAX)).revoked, Some(before));
    }
}
