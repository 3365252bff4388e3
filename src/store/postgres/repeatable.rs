//! An operation without its type: one loop repeats all of them. The program would have a copy of it for each operation.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::error::StoreError;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::session::Session;

/// An attempt of an operation, which keeps its result.
pub(super) type Attempt<'f> = Pin<Box<dyn Future<Output = Result<(), QueryError>> + Send + 'f>>;
/// Makes each attempt of an operation.
pub(super) type Repeatable<'f> = Box<dyn FnMut(Session) -> Attempt<'f> + Send + 'f>;

/// The attempts of `run`. The one that succeeds keeps its result in `result`.
pub(super) fn repeatable<'f, T, F, Fut>(run: F, result: &Arc<Mutex<Option<T>>>) -> Repeatable<'f>
where
    T: Send + 'f,
    F: Fn(Session) -> Fut + Send + 'f,
    Fut: Future<Output = Result<T, QueryError>> + Send + 'f,
{
    let result = result.clone();
    Box::new(move |session| {
        let running = run(session);
        let result = result.clone();
        Box::pin(async move {
            *result.lock() = Some(running.await?);
            Ok(())
        })
    })
}

/// What a successful attempt has kept.
pub(super) fn take<T>(result: &Mutex<Option<T>>) -> Result<T, StoreError> {
    result.lock().take().ok_or_else(|| StoreError::new("an operation of the store has ended without a result"))
}
