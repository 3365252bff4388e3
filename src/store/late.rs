//! Calls that go on when their callers do not wait for them any more.
//!
//! The caller gets an error after `timeouts.store`, and the client repeats the call. A gateway that was stopped or
//! paused meanwhile would judge the old call by the time of now, and take a repetition within the grace period for
//! theft. The same holds for what it reads from its sockets right after a pause.

use std::time::Duration;

use crate::store::error::StoreError;
use crate::tokens::family::rotation::Rotation;
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;

/// How often a store looks at the time.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Longest time between two looks without a pause. More than a machine with too few processors needs.
const MAX_GAP: Duration = Duration::from_secs(2);

/// How long a process needs at most to read what has arrived during a pause, whatever `timeouts.store` is: a loaded
/// machine needs seconds.
const CATCH_UP: Duration = Duration::from_secs(5);

/// For how long after a pause a call may be older than it looks. `patience`: `timeouts.store`.
pub(super) fn doubt_after_pause(patience: Duration) -> Duration {
    patience.max(CATCH_UP)
}

/// When a call began.
#[derive(Clone, Copy)]
pub(super) struct CallTime(BootTime);

impl CallTime {
    /// For a call that begins now.
    pub(super) fn begin() -> Self {
        CallTime(BootTime::now())
    }

    /// Fails if the caller has got its error. `patience`: how long it waits, `timeouts.store`.
    pub(super) fn check(self, patience: Duration) -> Result<(), StoreError> {
        unless(BootTime::now().since(self.0) > patience, patience)
    }

    /// Fails if this call must not take what it has found for theft: its client may have repeated it meanwhile. See
    /// [`CallTime::check_rotation`] for `was_paused`.
    pub(super) fn check_theft(self, patience: Duration, was_paused: impl FnOnce() -> bool) -> Result<(), StoreError> {
        self.check(patience)?;
        if was_paused() { Err(StoreError::paused()) } else { Ok(()) }
    }

    /// Fails if this outcome must not take effect: after the time of the caller, only a plain rotation may. `age`: how
    /// long ago the call began by another clock, at most. `was_paused`: the process was paused a moment ago, so that
    /// the call may be older than it looks.
    pub(super) fn check_rotation(
        self,
        patience: Duration,
        rotation: &Rotation,
        age: Duration,
        was_paused: impl FnOnce() -> bool,
    ) -> Result<(), StoreError> {
        let is_late = age.max(BootTime::now().since(self.0)) > patience;
        let is_theft = matches!(rotation, Rotation::Reused(_) | Rotation::Superseded(_));
        match rotation {
            Rotation::Rotated(_) => Ok(()),
            _ if is_theft && !is_late && was_paused() => Err(StoreError::paused()),
            _ => unless(is_late, patience),
        }
    }
}

fn unless(is_over: bool, patience: Duration) -> Result<(), StoreError> {
    if is_over { Err(StoreError::timeout(patience)) } else { Ok(()) }
}

/// Finds pauses of this process and of its machine. To be asked at each [`LOOK_INTERVAL`].
#[derive(Default)]
pub(super) struct Pauses {
    last: Option<BootTime>,
    last_clock: Option<UnixTime>,
    ended: Option<BootTime>,
}

impl Pauses {
    /// Returns true if a pause has ended within this time. `clock`: that of the machine, if nothing else tells of its
    /// pauses.
    pub(super) fn ended_within(&mut self, span: Duration, clock: Option<UnixTime>) -> bool {
        self.look(BootTime::now(), clock);
        self.ended.is_some_and(|ended| BootTime::now().since(ended) <= span)
    }

    /// While the process is stopped, its uptime goes on. While a virtual machine is paused, it does not, and the system
    /// clock is set forward afterwards.
    fn look(&mut self, now: BootTime, clock: Option<UnixTime>) {
        let gap = self.last.replace(now).map(|last| now.since(last));
        let last_clock = std::mem::replace(&mut self.last_clock, clock);
        let gap_of_clock = clock.zip(last_clock).map(|(clock, last)| clock.since(last));
        if gap.max(gap_of_clock).is_some_and(|gap| gap > MAX_GAP) {
            self.ended = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::family::Family;
    use crate::types::reject::Reason;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_late_call_may_only_rotate() {
        let family = || Family::sample(UnixTime::from_secs(1_000));
        let call = CallTime::begin();
        let minute = Duration::from_mins(1);
        for (rotation, in_time, after_a_pause, late) in [
            (Rotation::Rotated(family()), true, true, true),
            (Rotation::Replayed(family()), true, true, false),
            (Rotation::Recovered(family()), true, true, false),
            (Rotation::Rejected(Reason::RefreshConflict), true, true, false),
            (Rotation::Reused(family()), true, false, false),
            (Rotation::Superseded(family()), true, false, false),
        ] {
            let may = |age, was_paused| call.check_rotation(minute, &rotation, age, || was_paused).is_ok();
            let found = [may(minute, false), may(SECOND, true), may(minute + SECOND, false)];
            assert_eq!(found, [in_time, after_a_pause, late], "{rotation:?}");
        }
        assert!(call.check(minute).is_ok());
        assert!(call.check_theft(minute, || false).is_ok() && call.check_theft(minute, || true).is_err());
        let late = CallTime(BootTime::default());
        let reused = Rotation::Reused(family());
        assert!(late.check(Duration::ZERO).is_err() && late.check_theft(Duration::ZERO, || false).is_err());
        assert!(late.check_rotation(Duration::ZERO, &reused, Duration::ZERO, || false).is_err());
    }

    #[test]
    fn a_pause_is_found_by_the_uptime_or_by_the_clock() {
        let at = |secs: u64| BootTime::from_micros(secs * 1_000_000);
        for (uptime, clock, is_pause) in [(1, 1, false), (2, 2, false), (3, 3, true), (0, 14, true), (14, 0, true)] {
            let mut pauses = Pauses::default();
            pauses.look(at(100), Some(UnixTime::from_secs(1_000)));
            pauses.look(at(100 + uptime), Some(UnixTime::from_secs(1_000 + clock)));
            assert_eq!(pauses.ended.is_some(), is_pause, "{uptime} {clock}");
        }
        for (uptime, is_pause) in [(1, false), (3, true)] {
            let mut pauses = Pauses::default();
            pauses.look(at(100), None);
            pauses.look(at(100 + uptime), None);
            assert_eq!(pauses.ended.is_some(), is_pause, "{uptime}, and no clock");
        }
        let mut pauses = Pauses::default();
        assert!(!pauses.ended_within(SECOND, None), "the first look knows of no pause");
        pauses.ended = Some(BootTime::now());
        assert!(pauses.ended_within(Duration::from_mins(1), None));
    }
}
