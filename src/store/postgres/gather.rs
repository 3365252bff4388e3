//! Gathers the calls that wait, so that one statement serves all of them. The first call writes for all, and each
//! transaction costs the database one flush to the disk, whatever the number of calls.

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::store::error::StoreError;
use crate::store::postgres::error::QueryError;

/// The size from which on no further call joins a statement.
const MAX_BATCH: usize = 512;

/// The calls of one kind. `In` is what a call asks for, `Out` its result.
pub(super) struct Gather<In, Out> {
    waiting: Mutex<Vec<Waiting<In, Out>>>,
    turn: tokio::sync::Mutex<()>,
}

/// A call, its size, and who waits for it.
struct Waiting<In, Out> {
    input: In,
    size: usize,
    caller: oneshot::Sender<Result<Out, QueryError>>,
}

impl<In, Out> Default for Gather<In, Out> {
    fn default() -> Self {
        Gather { waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }
}

impl<In: Clone, Out> Gather<In, Out> {
    /// Waits for the result of `input`. `serve` gets what several calls ask for, and returns one result for each, in
    /// the same order. `size` is that of this call: its number of rows.
    pub(super) async fn join<F, Fut>(&self, input: In, size: usize, serve: F) -> Result<Out, QueryError>
    where
        F: Fn(Vec<In>) -> Fut,
        Fut: Future<Output = Result<Vec<Out>, QueryError>>,
    {
        let (caller, mut result) = oneshot::channel();
        self.waiting.lock().push(Waiting { input, size, caller });
        loop {
            tokio::select! {
                biased;
                // Fails if the call that served this one was interrupted.
                result = &mut result => return result.unwrap_or_else(|_| Err(interrupted())),
                _turn = self.turn.lock() => serve_and_respond(self.next_batch(), &serve).await,
            }
        }
    }

    /// The calls that waited for longest.
    fn next_batch(&self) -> Vec<Waiting<In, Out>> {
        let mut waiting = self.waiting.lock();
        let mut rows = 0;
        let is_over = |call: &Waiting<In, Out>| {
            let before = rows;
            rows += call.size;
            before > 0 && rows > MAX_BATCH
        };
        let count = waiting.iter().position(is_over).unwrap_or(waiting.len());
        waiting.drain(..count).collect()
    }
}

/// A call that the database rejects must not affect the others: then each is served alone.
async fn serve_and_respond<In, Out, F, Fut>(calls: Vec<Waiting<In, Out>>, serve: &F)
where
    In: Clone,
    F: Fn(Vec<In>) -> Fut,
    Fut: Future<Output = Result<Vec<Out>, QueryError>>,
{
    if calls.is_empty() {
        return;
    }
    match serve(calls.iter().map(|call| call.input.clone()).collect()).await {
        Err(QueryError::Rejected(_)) if calls.len() > 1 => {
            for call in calls {
                let outcome =
                    serve(vec![call.input]).await.and_then(|mut results| results.pop().ok_or_else(interrupted));
                // The caller may have stopped waiting.
                let _ = call.caller.send(outcome);
            }
        }
        Err(error) => {
            for call in calls {
                let _ = call.caller.send(Err(error.clone()));
            }
        }
        Ok(results) => {
            for (call, result) in std::iter::zip(calls, results) {
                let _ = call.caller.send(Ok(result));
            }
        }
    }
}

fn interrupted() -> QueryError {
    QueryError::Lost(StoreError::new("the connection was closed while several calls used it together"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;

    use super::*;

    /// Doubles numbers. The database rejects each statement that contains a 13.
    async fn double(numbers: Vec<u32>) -> Result<Vec<u32>, QueryError> {
        if numbers.contains(&13) {
            return Err(QueryError::Rejected(StoreError::new("13")));
        }
        Ok(numbers.into_iter().map(|number| number * 2).collect())
    }

    /// Joins calls while the first one is held, and returns the results and how many calls each statement served.
    async fn gathered(numbers: Vec<u32>) -> (Vec<Result<u32, QueryError>>, Vec<usize>) {
        let calls = Arc::new(Gather::<u32, u32>::default());
        let gate = Arc::new(Semaphore::new(0));
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut joined = JoinSet::new();
        let count = numbers.len();
        for (place, number) in numbers.into_iter().enumerate() {
            let calls = calls.clone();
            let gate = gate.clone();
            let served = served.clone();
            joined.spawn(async move {
                let serve = |numbers: Vec<u32>| {
                    served.lock().push(numbers.len());
                    let gate = gate.clone();
                    async move {
                        gate.acquire().await.expect("open").forget();
                        double(numbers).await
                    }
                };
                (place, calls.join(number, 1, serve).await)
            });
            // The next call starts when this one waits.
            tokio::task::yield_now().await;
        }
        gate.add_permits(count * 2);
        let mut results = joined.join_all().await;
        results.sort_by_key(|(place, _)| *place);
        let served = served.lock().clone();
        (results.into_iter().map(|(_, result)| result).collect(), served)
    }

    #[tokio::test]
    async fn one_statement_serves_all_calls_that_wait() {
        let (results, served) = gathered((101..=200).collect()).await;
        let doubled: Vec<u32> = results.into_iter().map(|result| result.expect("served")).collect();
        assert_eq!(doubled, (101..=200).map(|number| number * 2).collect::<Vec<_>>());
        assert_eq!(served, [1, 99]);
    }

    #[tokio::test]
    async fn a_rejected_call_does_not_affect_the_others() {
        let (results, served) = gathered(vec![1, 12, 13, 14]).await;
        let outcomes: Vec<Option<u32>> = results.into_iter().map(Result::ok).collect();
        assert_eq!(outcomes, [Some(2), Some(24), None, Some(28)]);
        assert_eq!(served, [1, 3, 1, 1, 1]);
    }

    #[tokio::test]
    async fn a_call_that_is_rejected_alone_is_not_repeated() {
        let (results, served) = gathered(vec![13]).await;
        assert!(results.iter().all(Result::is_err));
        assert_eq!(served, [1]);
    }

    #[test]
    fn calls_share_a_statement_up_to_a_number_of_rows() {
        for (sizes, expected) in [
            (&[][..], &[0][..]),
            (&[1, 1, 1], &[3, 0]),
            (&[511, 1, 1], &[2, 1, 0]),
            (&[512, 1], &[1, 1, 0]),
            (&[1, 512, 1], &[1, 1, 1, 0]),
            // A call is never divided.
            (&[513, 513], &[1, 1, 0]),
        ] {
            let calls = Gather::<(), ()>::default();
            for size in sizes {
                let (caller, _) = oneshot::channel();
                calls.waiting.lock().push(Waiting { input: (), size: *size, caller });
            }
            let batches: Vec<usize> = expected.iter().map(|_| calls.next_batch().len()).collect();
            assert_eq!(batches, expected, "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn calls_hear_of_an_interrupted_statement() {
        let calls = Arc::new(Gather::<u32, u32>::default());
        let first = tokio::spawn({
            let calls = calls.clone();
            async move { calls.join(1, 1, |_| std::future::pending()).await }
        });
        tokio::task::yield_now().await;
        let held = tokio::spawn({
            let calls = calls.clone();
            async move { calls.join(2, 1, double).await }
        });
        tokio::task::yield_now().await;
        first.abort();
        // It was not part of the interrupted statement.
        assert_eq!(held.await.expect("no panic").ok(), Some(4));
        assert_eq!(calls.join(3, 1, double).await.ok(), Some(6));
    }
}
