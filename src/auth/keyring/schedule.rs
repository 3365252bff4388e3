//! When a source is asked again. Pure.

use std::ops::RangeInclusive;
use std::time::Duration;

/// First pause after a failed visit; doubled by each further one.
const FIRST_RETRY: Duration = Duration::from_millis(500);

/// Ahead of the time at which what is here runs out, by a fifth of it or less, and within the operator's bounds. `luck` is
/// from 0 to 1: the gateways of a fleet, which start together, must not ask together.
pub(super) fn next_refresh(max_age: Option<Duration>, bounds: &RangeInclusive<Duration>, luck: f64) -> Duration {
    let (least, most) = (*bounds.start(), *bounds.end());
    // A source that says nothing is asked as seldom as the operator allows.
    let good_for = max_age.unwrap_or(most).clamp(least, most);
    let ahead = good_for.mul_f64(0.8 + 0.15 * luck);
    if ahead < least { least.mul_f64(1.0 + 0.1 * luck).min(most) } else { ahead }
}

/// After so many failures in a row, the first of them 1. Never later than a refresh could be.
pub(super) fn next_try(failures: u32, bounds: &RangeInclusive<Duration>, luck: f64) -> Duration {
    let doubled = FIRST_RETRY.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(*bounds.start()).mul_f64(0.75 + 0.5 * luck)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: f64) -> Duration {
        Duration::from_secs_f64(secs)
    }

    #[test]
    fn a_refresh_comes_ahead_of_expiry_and_within_bounds() {
        let bounds = secs(60.0)..=secs(900.0);
        for (max_age, luck, expected) in [
            (Some(300.0), 0.0, 240.0),
            (Some(300.0), 1.0, 285.0),
            // A source that wants to be asked all the time, and one that wants never to be.
            (Some(0.0), 0.0, 60.0),
            (Some(0.0), 1.0, 66.0),
            (Some(70.0), 0.0, 60.0),
            (Some(31_536_000.0), 0.0, 720.0),
            (Some(31_536_000.0), 1.0, 855.0),
            (None, 0.0, 720.0),
            (None, 1.0, 855.0),
        ] {
            assert_eq!(next_refresh(max_age.map(secs), &bounds, luck), secs(expected), "{max_age:?} {luck}");
        }
        let fixed = secs(60.0)..=secs(60.0);
        assert_eq!(next_refresh(None, &fixed, 0.5), secs(60.0));
    }

    #[test]
    fn failures_are_retried_soon_and_then_less_often() {
        let bounds = secs(60.0)..=secs(900.0);
        let pauses: Vec<f64> = (1..=9).map(|failures| next_try(failures, &bounds, 0.5).as_secs_f64()).collect();
        assert_eq!(pauses, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
        assert_eq!(next_try(u32::MAX, &bounds, 0.5), secs(60.0));
        assert_eq!((next_try(2, &bounds, 0.0), next_try(2, &bounds, 1.0)), (secs(0.75), secs(1.25)));
    }
}
