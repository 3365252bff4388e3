//! A limit on waiting for somebody else.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Runs while somebody is waited for. The timer is made at the first wait, so that whoever is there already needs none, and
/// is moved only when it fires, so that progress costs no timer work.
pub struct IdleTimer {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// When the wait began. Time in which nobody waited does not count.
    since: Option<Instant>,
    /// After the first wait, the timer fires once before its time.
    moment: Option<Duration>,
    has_lasted: bool,
}

impl IdleTimer {
    pub fn of_at_most(limit: Duration) -> Self {
        IdleTimer { limit, sleep: None, since: None, moment: None, has_lasted: false }
    }

    /// Tells by [`IdleTimer::has_lasted`] that somebody began to wait so long ago. Costs nothing more: the timer is there.
    pub fn noticing(self, moment: Duration) -> Self {
        IdleTimer { moment: Some(moment), ..self }
    }

    /// Is the first wait a moment ago? Waiting may have ended and begun again since.
    pub fn has_lasted(&self) -> bool {
        self.has_lasted
    }

    /// The wait is over.
    pub fn broken(&mut self) {
        self.since = None;
    }

    /// As [`IdleTimer::broken`], and tells how long it was.
    pub fn end(&mut self) -> Option<Duration> {
        self.since.take().map(|since| since.elapsed())
    }

    /// Ready, with the limit, once the wait has lasted so long.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Duration> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let end = since + self.limit;
        let sleep = self.sleep.get_or_insert_with(|| {
            let first = self.moment.map_or(end, |moment| end.min(since + moment));
            Box::pin(tokio::time::sleep_until(first))
        });
        while sleep.as_mut().poll(context).is_ready() {
            self.has_lasted = true;
            if sleep.deadline() >= end {
                return Poll::Ready(self.limit);
            }
            sleep.as_mut().reset(end);
        }
        Poll::Pending
    }
}

/// The least that somebody has to bring or take while we wait for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinRate {
    /// Bytes a second; 0 for any.
    pub rate: u64,
    /// Judged whenever the waits add up to so long.
    pub over: Duration,
}

/// Measures whether somebody who is waited for is fast enough. A byte now and then ends each silence, but not this. Only time
/// in which they were waited for counts, so that nobody pays for what holds up the other side.
pub struct RateMeter {
    least: MinRate,
    waited: Duration,
    bytes: u64,
}

impl RateMeter {
    pub fn of(least: MinRate) -> Self {
        RateMeter { least, waited: Duration::ZERO, bytes: 0 }
    }

    /// So many bytes went by, after a wait if there was one. `false`: too few for the time that they took.
    pub fn passed(&mut self, bytes: usize, silence: &mut IdleTimer) -> bool {
        if self.least.rate == 0 {
            silence.broken();
            return true;
        }
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.waited += silence.end().unwrap_or_default();
        if self.waited < self.least.over {
            return true;
        }
        let owed = self.least.rate as f64 * self.waited.as_secs_f64();
        let enough = self.bytes as f64 >= owed;
        *self = RateMeter::of(self.least);
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn waits(silence: &mut IdleTimer, at_most: Duration) -> bool {
        tokio::time::timeout(at_most, std::future::poll_fn(|context| silence.poll(context))).await.is_err()
    }

    #[tokio::test]
    async fn only_time_in_which_somebody_waited_counts() {
        let mut silence = IdleTimer::of_at_most(Duration::from_millis(200));
        assert!(waits(&mut silence, Duration::from_millis(50)).await);
        silence.broken();
        // Nobody waits, longer than the limit.
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(waits(&mut silence, Duration::from_millis(50)).await, "the next wait begins now");
        assert!(!waits(&mut silence, Duration::from_secs(10)).await, "and ends");
    }

    #[tokio::test]
    async fn a_byte_now_and_then_is_not_enough() {
        let (pause, over) = (Duration::from_millis(50), Duration::from_millis(90));
        let mut silence = IdleTimer::of_at_most(Duration::from_mins(1));
        let mut meter = RateMeter::of(MinRate { rate: 1000, over });
        for (bytes, fast) in [(1, true), (1, false), (500_000, true), (500_000, true), (0, true), (50, false)] {
            assert!(waits(&mut silence, pause).await);
            assert_eq!(meter.passed(bytes, &mut silence), fast, "{bytes}");
        }
        // Nobody waited, however long it took.
        tokio::time::sleep(2 * over).await;
        assert!(meter.passed(1, &mut silence));
        let mut any = RateMeter::of(MinRate { rate: 0, over });
        assert!(waits(&mut silence, 2 * over).await);
        assert!(any.passed(1, &mut silence));
    }

    #[tokio::test]
    async fn a_first_wait_that_is_a_moment_ago_is_noticed() {
        let mut silence = IdleTimer::of_at_most(Duration::from_secs(10)).noticing(Duration::from_millis(200));
        assert!(waits(&mut silence, Duration::from_millis(50)).await && !silence.has_lasted());
        silence.broken();
        assert!(waits(&mut silence, Duration::from_millis(400)).await && silence.has_lasted());
        let mut silence = IdleTimer::of_at_most(Duration::from_millis(50)).noticing(Duration::from_millis(200));
        assert!(!waits(&mut silence, Duration::from_secs(10)).await, "the limit comes first");
    }
}
