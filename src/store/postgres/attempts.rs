//! Repeats what was not written because another transaction has changed or locked the row.
//!
//! No statement waits for the lock of a family: the server works off the statements of a connection one after the other,
//! so that all operations on it would wait, and so would the calls that the same statement serves.

use std::fmt::Display;
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
    pub(super) async fn again(&mut self, family: impl Display) -> Result<(), QueryError> {
        let began = *self.began.get_or_insert_with(Instant::now);
        if began.elapsed() >= PATIENCE {
            return Err(QueryError::Rejected(StoreError::new(format!(
                "family {family} is locked by another transaction; close open transactions, for example in a psql shell"
            ))));
        }
        sleep(self.pause).await;
        self.pause = (2 * self.pause).clamp(Duration::from_millis(1), MAX_PAUSE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempts_come_at_once_then_rarely_and_end() {
        let (mut attempts, began) = (Attempts::default(), Instant::now());
        let mut at = Vec::new();
        while attempts.again(7).await.is_ok() {
            at.push(began.elapsed().as_millis());
        }
        assert_eq!(at[..5], [0, 1, 3, 7, 15]);
        let pauses = at.windows(2).map(|pair| pair[1] - pair[0]);
        assert_eq!(pauses.max(), Some(MAX_PAUSE.as_millis()));
        assert!((PATIENCE..PATIENCE + 2 * MAX_PAUSE).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}
