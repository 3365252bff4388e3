//! A limit on waiting for somebody else.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Runs while somebody is waited for. The timer is made at the first wait, so that whoever is there already needs none, and
/// is moved only when it fires, so that progress costs no timer work.
pub struct Silence {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// When the wait began. Time in which nobody waited does not count.
    since: Option<Instant>,
    /// After the first wait, the timer fires once before its time.
    moment: Option<Duration>,
    has_lasted: bool,
}

impl Silence {
    pub fn of_at_most(limit: Duration) -> Self {
        Silence { limit, sleep: None, since: None, moment: None, has_lasted: false }
    }

    /// Tells by [`Silence::has_lasted`] that somebody began to wait so long ago. Costs nothing more: the timer is there.
    pub fn noticing(self, moment: Duration) -> Self {
        Silence { moment: Some(moment), ..self }
    }

    /// Is the first wait a moment ago? Waiting may have ended and begun again since.
    pub fn has_lasted(&self) -> bool {
        self.has_lasted
    }

    /// The wait is over.
    pub fn broken(&mut self) {
        self.since = None;
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn waits(silence: &mut Silence, at_most: Duration) -> bool {
        tokio::time::timeout(at_most, std::future::poll_fn(|context| silence.poll(context))).await.is_err()
    }

    #[tokio::test]
    async fn only_time_in_which_somebody_waited_counts() {
        let mut silence = Silence::of_at_most(Duration::from_millis(200));
        assert!(waits(&mut silence, Duration::from_millis(50)).await);
        silence.broken();
        // Nobody waits, longer than the limit.
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(waits(&mut silence, Duration::from_millis(50)).await, "the next wait begins now");
        assert!(!waits(&mut silence, Duration::from_secs(10)).await, "and ends");
    }

    #[tokio::test]
    async fn a_first_wait_that_is_a_moment_ago_is_noticed() {
        let mut silence = Silence::of_at_most(Duration::from_secs(10)).noticing(Duration::from_millis(200));
        assert!(waits(&mut silence, Duration::from_millis(50)).await && !silence.has_lasted());
        silence.broken();
        assert!(waits(&mut silence, Duration::from_millis(400)).await && silence.has_lasted());
        let mut silence = Silence::of_at_most(Duration::from_millis(50)).noticing(Duration::from_millis(200));
        assert!(!waits(&mut silence, Duration::from_secs(10)).await, "the limit comes first");
    }
}
