//! Repeats what was not written because another transaction has changed or locked the row.
//!
//! No statement waits for the lock of a family: the server works off the statements of a connection one after the
//! other, so that all operations on it would wait, and so would the calls that the same statement serves.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::error::StoreError;
use crate::store::postgres::error::QueryError;

/// How long an operation tries to write. Another gateway holds a lock for as long as its commit takes.
const PATIENCE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// The attempts of one operation.
#[derive(Default)]
pub(super) struct Attempts {
    began: Option<Instant>,
    /// Before the next one. None before the second attempt: the row has probably changed, and can be read.
    pause: Duration,
}

impl Attempts {
    /// Waits for the next attempt. Fails if the first one was too long ago.
    pub(super) async fn again(&mut self, what: &str) -> Result<(), QueryError> {
        let Some(pause) = self.next(Instant::now()) else {
            return Err(QueryError::Rejected(StoreError::new(format!(
                "{what} is locked by another transaction; look in pg_stat_activity for one that waits for a standby \
                 (SyncRep), or is open in a shell"
            ))));
        };
        sleep(pause).await;
        Ok(())
    }

    fn next(&mut self, now: Instant) -> Option<Duration> {
        if now >= *self.began.get_or_insert(now) + PATIENCE {
            return None;
        }
        let pause = self.pause;
        self.pause = (2 * pause).clamp(Duration::from_millis(1), MAX_PAUSE);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_at_once_then_rarely_and_end() {
        let mut attempts = Attempts::default();
        let began = Instant::now();
        let mut now = began;
        let mut pauses = Vec::new();
        while let Some(pause) = attempts.next(now) {
            now += pause;
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses[..9], [0, 1, 2, 4, 8, 16, 32, 50, 50]);
        assert!((PATIENCE..PATIENCE + MAX_PAUSE).contains(&(now - began)), "{:?}", now - began);
    }
}
