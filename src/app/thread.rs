//! Threads with a runtime of their own.

use std::thread::JoinHandle;

use tokio::runtime::Runtime;

use super::error::StartError;

pub(super) fn runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Runtime)
}

/// Starts a thread that ends with its task.
pub(super) fn start<F: Future<Output = ()>>(
    name: &str,
    runtime: Runtime,
    task: impl FnOnce() -> F + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    spawn(name, move || {
        runtime.block_on(task());
        // Do not wait for a DNS lookup that hangs.
        runtime.shutdown_background();
    })
}

/// Starts a thread without a runtime.
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
    spawned.map_err(|source| StartError::Thread { name: name.into(), source })
}
