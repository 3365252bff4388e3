//! The times at which a source is fetched. Pure.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The delay after the first failed fetch. It doubles with each further failure.
const FIRST_RETRY: Duration = Duration::from_millis(500);

/// How long until the next refresh: 5 to 20 % before the keys expire, and within the operator's bounds. `jitter` is
/// from 0 to 1: gateways that start together must not fetch together.
pub(super) fn next_refresh(max_age: Option<Duration>, bounds: &RangeInclusive<Duration>, jitter: f64) -> Duration {
    let min = *bounds.start();
    let max = *bounds.end();
    // A source without Cache-Control is fetched as rarely as the operator allows.
    let fresh_for = max_age.unwrap_or(max).clamp(min, max);
    let delay = fresh_for.mul_f64(0.8 + 0.15 * jitter);
    if delay < min { min.mul_f64(1.0 + 0.1 * jitter).min(max) } else { delay }
}

/// How long until the next try after this number of failures in a row. At most about the minimum between two refreshes.
pub(super) fn next_try(failures: u32, bounds: &RangeInclusive<Duration>, jitter: f64) -> Duration {
    let doubled = FIRST_RETRY.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(*bounds.start()).mul_f64(0.75 + 0.5 * jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: f64) -> Duration {
        Duration::from_secs_f64(secs)
    }

    #[test]
    fn refreshes_before_expiry_and_within_bounds() {
        let bounds = secs(60.0)..=secs(900.0);
        for (max_age, jitter, expected) in [
            (Some(300.0), 0.0, 240.0),
            (Some(300.0), 1.0, 285.0),
            // Cache times below the minimum and above the maximum.
            (Some(0.0), 0.0, 60.0),
            (Some(0.0), 1.0, 66.0),
            (Some(70.0), 0.0, 60.0),
            // 95 % of it is the minimum, to the nanosecond.
            (Some(63.157_894_737), 1.0, 60.0),
            (Some(31_536_000.0), 0.0, 720.0),
            (Some(31_536_000.0), 1.0, 855.0),
            (None, 0.0, 720.0),
            (None, 1.0, 855.0),
        ] {
            assert_eq!(next_refresh(max_age.map(secs), &bounds, jitter), secs(expected), "{max_age:?} {jitter}");
        }
        let fixed = secs(60.0)..=secs(60.0);
        assert_eq!(next_refresh(None, &fixed, 0.5), secs(60.0));
    }

    #[test]
    fn retries_failures_with_exponential_backoff() {
        let bounds = secs(60.0)..=secs(900.0);
        let delays: Vec<f64> = (1..=9).map(|failures| next_try(failures, &bounds, 0.5).as_secs_f64()).collect();
        assert_eq!(delays, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
        assert_eq!(next_try(u32::MAX, &bounds, 0.5), secs(60.0));
        assert_eq!((next_try(2, &bounds, 0.0), next_try(2, &bounds, 1.0)), (secs(0.75), secs(1.25)));
    }
}
