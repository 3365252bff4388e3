//! The durations of requests: counts in buckets, and quantiles of them.

use std::time::Duration;

/// The buckets of each histogram, without the one for longer durations.
pub(super) const BUCKETS: usize = 14;

/// Upper bounds of the buckets for whole requests, in microseconds.
pub(super) static OF_REQUESTS: [u64; BUCKETS] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000, 30_000_000];

/// Upper bounds of the buckets for the time that the gateway itself needs, in microseconds.
pub(super) static OF_GATEWAY: [u64; BUCKETS] =
    [10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000, 5_000_000];

/// One count for each bound, and one for longer durations. Not cumulative.
pub(super) type Durations = [u64; BUCKETS + 1];

/// The duration that this part of the requests did not exceed, interpolated between the bounds of its bucket as
/// Prometheus does. Beyond the last bound, that bound. `None` without requests.
pub fn quantile(durations: &Durations, part: f64) -> Option<Duration> {
    let rank = part * durations.iter().sum::<u64>() as f64;
    let mut below = 0.0;
    let mut lower = 0.0;
    for (bucket, count) in durations.iter().enumerate() {
        let count = *count as f64;
        let upper = OF_REQUESTS.get(bucket).map_or(lower, |micros| *micros as f64);
        if count > 0.0 && below + count >= rank {
            let micros = lower + (upper - lower) * ((rank - below) / count).clamp(0.0, 1.0);
            return Some(Duration::from_micros(micros.round() as u64));
        }
        (below, lower) = (below + count, upper);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_buckets(counts: &[(usize, u64)]) -> Durations {
        let mut durations = [0; BUCKETS + 1];
        counts.iter().for_each(|(bucket, count)| durations[*bucket] = *count);
        durations
    }

    #[test]
    fn a_quantile_is_interpolated_in_its_bucket() {
        for (counts, part, micros) in [
            (&[(0, 1)][..], 0.5, 50),
            (&[(0, 1)], 0.99, 99),
            (&[(3, 4)], 0.5, 750),
            (&[(3, 100), (9, 100)], 0.5, 1_000),
            (&[(3, 100), (9, 100)], 0.75, 75_000),
            (&[(3, 98), (9, 2)], 0.99, 75_000),
            (&[(3, 1), (14, 1)], 0.99, 30_000_000),
            (&[(14, 5)], 0.5, 30_000_000),
        ] {
            assert_eq!(quantile(&in_buckets(counts), part), Some(Duration::from_micros(micros)), "{counts:?} {part}");
        }
    }

    #[test]
    fn no_requests_have_no_quantile() {
        assert_eq!(quantile(&in_buckets(&[]), 0.5), None);
    }
}
