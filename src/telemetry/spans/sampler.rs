//! Which new traces are sampled, and how many spans may be exported.

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

/// `trace.per_second`, shared by all workers. Only requests to be exported use it.
pub(super) struct ExportLimit {
    /// `None`: no limit.
    limiter: Option<Limiter>,
    /// The limit counts from here. A clock that is set back does not matter.
    started: Instant,
}

impl ExportLimit {
    pub(super) fn new(per_second: u32) -> Self {
        let rate = Rate { burst: per_second, interval: Duration::from_secs(1) / per_second.max(1) };
        let limiter = (per_second > 0).then(|| Limiter::with_capacity(rate, 1));
        ExportLimit { limiter, started: Instant::now() }
    }

    /// Returns true if the spans of one more request may be exported.
    pub(super) fn take(&self, now: Instant) -> bool {
        let uptime = Uptime::default() + now.saturating_duration_since(self.started);
        self.limiter.as_ref().is_none_or(|limiter| limiter.try_take(0, uptime).is_ok())
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
        let (none, all) = (Ratio::from_millionths(0), Ratio::from_millionths(1_000_000));
        let tenth = Ratio::from_millionths(100_000);
        for (random, by_tenth) in [(0, false), (ALL - 1, true), (ALL / 10 * 9, false), (ALL / 10 * 9 + 10, true)] {
            assert_eq!((none.samples(id(random)), tenth.samples(id(random))), (false, by_tenth), "{random:x}");
            assert!(all.samples(id(random)));
        }
    }

    #[test]
    fn a_burst_is_what_one_second_allows() {
        let limit = ExportLimit::new(10);
        let taken = |at| (0..100).filter(|_| limit.take(limit.started + at)).count();
        assert_eq!((taken(Duration::ZERO), taken(Duration::from_millis(500))), (10, 5));
        let unlimited = ExportLimit::new(0);
        assert_eq!((0..100).filter(|_| unlimited.take(unlimited.started)).count(), 100);
    }
}
