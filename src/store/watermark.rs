//! What a watermark does to families: pure, and the same for every store.
//!
//! A watermark voids whatever was issued at or before it. The store keeps milliseconds, but an access token knows its time
//! of issue (`iat`) only in whole seconds, rounded down: one that is issued 0.3 s after a watermark can carry the very
//! second of the watermark, and is refused. That errs on the safe side, and it must not hit whoever logs in again right
//! after "log out everywhere". So whatever is new begins in the first whole second that is past the watermark.

use crate::tokens::family::{Family, RevokeReason, RevokedAt};
use crate::types::clock::UnixTime;

/// The earliest time of issue that `mark` does not void, in milliseconds and in whole seconds alike. Up to 1 s after it.
pub(super) fn first_moment_after(mark: UnixTime) -> UnixTime {
    UnixTime::from_secs(mark.as_secs().saturating_add(1))
}

/// The family as it should be shown: revoked, if the watermark of its subject voids it.
///
/// A watermark ends any number of families with one row; theirs are left as they were. Whoever lists them must not be
/// told that they live. The time shown is the watermark itself, as of which they are void.
pub(super) fn as_shown(family: Family, mark: Option<UnixTime>) -> Family {
    let Some(mark) = mark.filter(|mark| family.revoked.is_none() && family.created_at <= *mark) else { return family };
    Family { revoked: Some(RevokedAt { at: mark, reason: RevokeReason::Admin }), ..family }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_watermark_differs_from_it_in_whole_seconds() {
        for millis in [0, 1, 999, 1_000, 1_001, 1_700_000_000_999] {
            let mark = UnixTime::from_millis(millis);
            let after = first_moment_after(mark);
            assert!(after > mark && after.as_secs() == mark.as_secs() + 1);
            assert_eq!(after.as_millis() % 1_000, 0);
        }
        assert_eq!(first_moment_after(UnixTime::MAX), UnixTime::MAX, "nothing comes after the end of time");
    }
}
