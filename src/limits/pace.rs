//! Time limits and minimum rates of clients and backends.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A timeout for waiting. The timer is created at the first wait, so a peer that never makes the gateway wait costs
/// none; it is moved only when it fires, so progress costs no timer work.
pub struct IdleTimer {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// When the wait began. Time in which the gateway does not wait does not count.
    since: Option<Instant>,
    /// After the first wait, the timer fires once this early, to set `has_passed_early`.
    early: Option<Duration>,
    has_passed_early: bool,
}

impl IdleTimer {
    pub fn new(limit: Duration) -> Self {
        IdleTimer { limit, sleep: None, since: None, early: None, has_passed_early: false }
    }

    /// Also notes when `early` has passed since the first wait began: see [`IdleTimer::has_passed_early`]. It costs no
    /// timer of its own.
    pub fn with_early(self, early: Duration) -> Self {
        IdleTimer { early: Some(early), ..self }
    }

    /// Returns true if the first wait began at least `early` ago, also if waits have ended and begun since.
    pub fn has_passed_early(&self) -> bool {
        self.has_passed_early
    }

    /// Ends the wait.
    pub fn reset(&mut self) {
        self.since = None;
    }

    /// Ends the wait and returns how long it was.
    pub fn end_wait(&mut self) -> Option<Duration> {
        self.since.take().map(|since| since.elapsed())
    }

    /// Begins or continues a wait. Ready, with the limit, once the wait has lasted that long.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Duration> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let end = since + self.limit;
        let sleep = self.sleep.get_or_insert_with(|| {
            let first = self.early.map_or(end, |early| end.min(since + early));
            Box::pin(tokio::time::sleep_until(first))
        });
        while sleep.as_mut().poll(context).is_ready() {
            self.has_passed_early = true;
            if sleep.deadline() >= end {
                return Poll::Ready(self.limit);
            }
            sleep.as_mut().reset(end);
        }
        Poll::Pending
    }
}

/// The minimum rate at which a peer must send or read while the gateway waits for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinRate {
    /// 0 for no minimum.
    pub bytes_per_second: u64,
    /// The rate is checked each time the waits add up to this.
    pub window: Duration,
}

/// Checks a peer against a [`MinRate`]: one byte now and then resets an [`IdleTimer`], but does not pass this check.
/// Only time in which the gateway waits for the peer counts, so a peer does not pay for delays on the other side.
pub struct RateMeter {
    minimum: MinRate,
    waited: Duration,
    bytes: u64,
}

impl RateMeter {
    pub fn new(minimum: MinRate) -> Self {
        RateMeter { minimum, waited: Duration::ZERO, bytes: 0 }
    }

    /// Records that `bytes` were transferred, and ends the wait of `timer`. Returns false if the peer is too slow.
    pub fn record(&mut self, bytes: u64, timer: &mut IdleTimer) -> bool {
        if self.minimum.bytes_per_second == 0 {
            timer.reset();
            return true;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.waited += timer.end_wait().unwrap_or_default();
        if self.waited < self.minimum.window {
            return true;
        }
        let required = self.minimum.bytes_per_second as f64 * self.waited.as_secs_f64();
        let is_fast_enough = self.bytes as f64 >= required;
        *self = RateMeter::new(self.minimum);
        is_fast_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for at most this long. Returns true if the timer's own limit has not passed by then.
    async fn waits(timer: &mut IdleTimer, at_most: Duration) -> bool {
        tokio::time::timeout(at_most, std::future::poll_fn(|context| timer.poll(context))).await.is_err()
    }

    #[tokio::test]
    async fn only_time_spent_waiting_counts() {
        let mut timer = IdleTimer::new(Duration::from_millis(200));
        assert!(waits(&mut timer, Duration::from_millis(50)).await);
        timer.reset();
        // Longer than the limit, but not a wait.
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(waits(&mut timer, Duration::from_millis(50)).await, "the next wait begins now");
        assert!(!waits(&mut timer, Duration::from_secs(10)).await, "and ends");
    }

    #[tokio::test]
    async fn a_byte_now_and_then_is_too_slow() {
        let pause = Duration::from_millis(50);
        let window = Duration::from_millis(90);
        let mut timer = IdleTimer::new(Duration::from_mins(1));
        let mut meter = RateMeter::new(MinRate { bytes_per_second: 1000, window });
        for (bytes, is_fast) in [(1, true), (1, false), (500_000, true), (500_000, true), (0, true), (50, false)] {
            // As if it had waited: on a busy machine, a real pause can be longer than the window.
            timer.since = Instant::now().checked_sub(pause);
            assert_eq!(meter.record(bytes, &mut timer), is_fast, "{bytes}");
        }
        // Time that is not a wait does not count.
        tokio::time::sleep(2 * window).await;
        assert!(meter.record(1, &mut timer));
        let mut unlimited = RateMeter::new(MinRate { bytes_per_second: 0, window });
        assert!(waits(&mut timer, 2 * window).await);
        assert!(unlimited.record(1, &mut timer));
    }

    #[test]
    fn the_rate_is_required_for_the_whole_wait() {
        let minimum = MinRate { bytes_per_second: 1000, window: Duration::from_secs(2) };
        for (waited, bytes, is_fast) in [(2, 1999, false), (2, 2000, true), (3, 2999, false), (3, 3000, true)] {
            let mut meter = RateMeter { minimum, waited: Duration::from_secs(waited), bytes: 0 };
            let mut timer = IdleTimer::new(Duration::from_mins(1));
            assert_eq!(meter.record(bytes, &mut timer), is_fast, "{bytes} in {waited} s");
        }
    }

    #[tokio::test]
    async fn an_early_mark_is_set_before_the_limit() {
        let mut timer = IdleTimer::new(Duration::from_secs(10)).with_early(Duration::from_millis(200));
        assert!(waits(&mut timer, Duration::from_millis(50)).await && !timer.has_passed_early());
        timer.reset();
        assert!(waits(&mut timer, Duration::from_millis(400)).await && timer.has_passed_early());
        let mut timer = IdleTimer::new(Duration::from_millis(50)).with_early(Duration::from_millis(200));
        assert!(!waits(&mut timer, Duration::from_secs(10)).await, "the limit comes first");
    }
}
