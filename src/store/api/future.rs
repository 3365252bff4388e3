//! The result of a call of a store.

use std::future::Future;
use std::pin::Pin;

use crate::store::error::StoreError;

/// The result of a call. The operation is queued when the method returns. Dropping the future does not cancel it; the
/// caller then only does not learn the result.
pub type StoreFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;
