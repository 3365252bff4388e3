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
}

impl Silence {
    pub fn of_at_most(limit: Duration) -> Self {
        Silence { limit, sleep: None, since: None }
    }

    /// The wait is over.
    pub fn broken(&mut self) {
        self.since = None;
    }

    /// Ready, with the limit, once the wait has lasted so long.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Duration> {
        let end = *self.since.get_or_insert_with(Instant::now) + self.limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        while sleep.as_mut().poll(context).is_ready() {
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
}
