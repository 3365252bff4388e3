//! The effect of a watermark on families. No I/O, and the same for every store.
//!
//! A watermark voids everything that was issued at or before it. The store has milliseconds, but the `iat` of an access
//! token is rounded down to whole seconds: a token that is issued 0.3 s after a watermark can have the same second and
//! is rejected. This must not affect a user who logs in again right after "log out everywhere". A new family is
//! therefore dated in the first whole second after the watermark.

use crate::tokens::family::{Family, RevokeReason, RevokedAt};
use crate::types::clock::UnixTime;

/// The earliest time of issue that `mark` does not void, in milliseconds and in whole seconds. At most 1 s after it.
pub(super) fn first_second_after(mark: UnixTime) -> UnixTime {
    UnixTime::from_secs(mark.as_secs().saturating_add(1))
}

/// The family as a list shows it: revoked at the watermark, if the watermark of its subject voids it.
///
/// A watermark ends any number of families with one row and leaves their own rows unchanged.
pub(super) fn with_watermark(family: Family, mark: Option<UnixTime>) -> Family {
    let Some(mark) = mark.filter(|mark| family.revoked.is_none() && family.created_at <= *mark) else { return family };
    Family { revoked: Some(RevokedAt { at: mark, reason: RevokeReason::Admin }), ..family }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_after_a_watermark_is_a_later_whole_second() {
        for millis in [0, 1, 999, 1_000, 1_001, 1_700_000_000_999] {
            let mark = UnixTime::from_millis(millis);
            let after = first_second_after(mark);
            assert!(after > mark && after.as_secs() == mark.as_secs() + 1);
            assert_eq!(after.as_millis() % 1_000, 0);
        }
        assert_eq!(first_second_after(UnixTime::MAX), UnixTime::MAX, "the end of time has no later second");
    }
}
