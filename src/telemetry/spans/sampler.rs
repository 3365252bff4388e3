//! The sampling of new traces, and the limit of exported spans.

use std::time::{Duration, Instant};

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::Uptime;

/// A part of all traces, from none to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Of 2^56.
    sampled: u64,
}

/// The random part of a trace id has 56 bits (W3C Trace Context level 2, section 2.3.1), which are its last.
const ALL: u64 = 1 << 56;

impl Ratio {
    /// `millionths`: at most a million.
    pub const fn from_millionths(millionths: u64) -> Self {
        Ratio { sampled: (ALL as u128 * millionths as u128 / 1_000_000) as u64 }
    }

    /// Decides by the trace id, as samplers of OpenTelemetry do, so that they agree: each trace that a small ratio
    /// samples is sampled by a larger one.
    pub(super) fn samples(self, trace_id: [u8; 16]) -> bool {
        let [.., a, b, c, d, e, f, g] = trace_id;
        u64::from_be_bytes([0, a, b, c, d, e, f, g]) >= ALL - self.sampled
    }
}

/// Requests that need no token and reach no backend may use one export in four. A flood of them leaves room for the
/// traces of all others.
const SHARE_OF_FREE: u32 = 4;

/// `trace.per_second`, shared by all workers. Only requests to be exported use it.
pub(super) struct ExportLimit {
    /// `None`: no limit.
    limiters: Option<Limiters>,
    /// The limit counts from here. A clock that is set back does not matter.
    started: Instant,
}

struct Limiters {
    of_free: Limiter,
    of_all: Limiter,
}

impl ExportLimit {
    pub(super) fn new(per_second: u32) -> Self {
        let limiter = |share: u32| {
            let interval = Duration::from_secs(1) * share / per_second.max(1);
            Limiter::with_capacity(Rate { burst: (per_second / share).max(1), interval }, 1)
        };
        let limiters = (per_second > 0).then(|| Limiters { of_free: limiter(SHARE_OF_FREE), of_all: limiter(1) });
        ExportLimit { limiters, started: Instant::now() }
    }

    /// Returns true if the spans of one more request may be exported.
    pub(super) fn take(&self, is_free: bool, now: Instant) -> bool {
        let uptime = Uptime::default() + now.saturating_duration_since(self.started);
        let may = |limiter: &Limiter| limiter.try_take(0, uptime).is_ok();
        let Some(limiters) = &self.limiters else { return true };
        (!is_free || may(&limiters.of_free)) && may(&limiters.of_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(random: u64) -> [u8; 16] {
        (u128::from(random) | 0xff << 64).to_be_bytes()
    }

    #[test]
    fn a_ratio_samples_its_part_of_the_ids() {
        let none = Ratio::from_millionths(0);
        let all = Ratio::from_millionths(1_000_000);
        let tenth = Ratio::from_millionths(100_000);
        for (random, by_tenth) in [(0, false), (ALL - 1, true), (ALL / 10 * 9, false), (ALL / 10 * 9 + 10, true)] {
            assert_eq!((none.samples(id(random)), tenth.samples(id(random))), (false, by_tenth), "{random:x}");
            assert!(all.samples(id(random)));
        }
    }

    #[test]
    fn a_burst_is_what_one_second_allows() {
        let limit = ExportLimit::new(10);
        let taken = |at| (0..100).filter(|_| limit.take(false, limit.started + at)).count();
        assert_eq!((taken(Duration::ZERO), taken(Duration::from_millis(500))), (10, 5));
        let unlimited = ExportLimit::new(0);
        assert_eq!((0..100).filter(|_| unlimited.take(true, unlimited.started)).count(), 100);
    }

    #[test]
    fn free_requests_leave_room_for_others() {
        for (per_second, of_free, of_all) in [(100, 25, 100), (8, 2, 8), (1, 1, 1)] {
            let limit = ExportLimit::new(per_second);
            let taken = |is_free, at| (0..200).filter(|_| limit.take(is_free, limit.started + at)).count();
            assert_eq!((taken(true, Duration::ZERO), taken(false, Duration::ZERO)), (of_free, of_all - of_free));
            let later = Duration::from_secs(4);
            assert_eq!((taken(true, later), taken(false, later)), (of_free, of_all - of_free), "{per_second}");
        }
    }
}
