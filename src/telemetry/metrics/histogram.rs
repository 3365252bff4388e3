//! Histograms: how many durations were in each bucket.

use std::time::Duration;

use super::count::Count;
use super::durations::{BUCKETS, Durations, OF_REQUESTS};

/// The durations that one worker has measured, on cache lines of its own.
#[repr(align(128))]
pub struct Histogram {
    /// Upper bounds of the buckets, in microseconds.
    bounds: &'static [u64; BUCKETS],
    /// One for each bound, and one for longer durations. Not cumulative.
    counts: [Count; BUCKETS + 1],
    micros: Count,
}

impl Histogram {
    /// `bounds`: in microseconds, the smallest first.
    pub(super) const fn new(bounds: &'static [u64; BUCKETS]) -> Self {
        Histogram { bounds, counts: [const { Count::new() }; BUCKETS + 1], micros: Count::new() }
    }

    /// With the bounds for whole requests.
    pub const fn of_requests() -> Self {
        Histogram::new(&OF_REQUESTS)
    }

    pub fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.counts[self.bounds.partition_point(|bound| *bound < micros)].inc();
        self.micros.add(micros);
    }

    /// As [`Histogram::observe`], for a histogram that several threads use. All of them must use this.
    pub fn observe_shared(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.counts[self.bounds.partition_point(|bound| *bound < micros)].add_shared(1);
        self.micros.add_shared(micros);
    }

    pub(super) fn count(&self, bucket: usize) -> u64 {
        self.counts[bucket].get()
    }
}

/// The sum of the histograms of all workers.
pub struct Totals {
    pub(super) counts: Durations,
    pub(super) micros: u64,
    bounds: &'static [u64; BUCKETS],
}

impl Totals {
    /// All of them have the same bounds.
    pub fn of<'h>(histograms: impl IntoIterator<Item = &'h Histogram>) -> Self {
        let mut totals = Totals { counts: Durations::default(), micros: 0, bounds: &OF_REQUESTS };
        for histogram in histograms {
            totals.bounds = histogram.bounds;
            totals.counts.iter_mut().enumerate().for_each(|(bucket, sum)| *sum += histogram.count(bucket));
            totals.micros = totals.micros.wrapping_add(histogram.micros.get());
        }
        totals
    }

    /// The upper bound of each bucket in seconds, and its count.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
        bounds.zip(self.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_bucket_of_its_upper_bound() {
        let [first, second] = [(); 2].map(|()| Histogram::new(&OF_REQUESTS));
        for micros in [0, 100, 101] {
            first.observe(Duration::from_micros(micros));
        }
        second.observe(Duration::from_secs(31));
        let totals = Totals::of([&first, &second]);
        let filled: Vec<_> = totals.buckets().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.0001, 2), (0.00025, 1), (f64::INFINITY, 1)]);
        assert_eq!(totals.micros, 31_000_201);
    }
}
