//! The pauses between attempts to connect.

use std::time::Duration;

use crate::types::secret;

/// The longest pause between two attempts to connect. A gateway makes one at a time, so that a hundred gateways make
/// 200 in a second.
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// Pauses between attempts: random, so that replicas do not connect at the same moment after a failover.
#[derive(Default)]
pub(super) struct Backoff(u32);

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        let longest = MAX_BACKOFF.min(Duration::from_millis(50) * 2_u32.saturating_pow(self.0));
        self.0 = (self.0 + 1).min(10);
        longest.mul_f64(f64::from(secret::random::<1>()[0]) / 255.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_at_random_up_to_a_maximum() {
        let longest_of = |attempt: u32| {
            let pause = |_| {
                let mut backoff = Backoff::default();
                for _ in 0..attempt {
                    backoff.next();
                }
                backoff.next()
            };
            (0..100).map(pause).max().unwrap_or_default()
        };
        for (attempt, longest) in [(0, 50), (1, 100), (3, 400), (5, 1_000), (100, 1_000)] {
            let found = longest_of(attempt);
            let longest = Duration::from_millis(longest);
            assert!(longest / 2 < found && found <= longest, "{attempt}: {found:?}");
        }
    }
}
