//! Threads that have a runtime to themselves.

use std::thread::JoinHandle;

use tokio::runtime::Runtime;

pub(super) fn runtime() -> Result<Runtime, String> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| format!("no runtime can be made: {error}"))
}

/// Starts a thread that ends with its task.
pub(super) fn start<F: Future<Output = ()>>(
    name: &str,
    runtime: Runtime,
    task: impl FnOnce() -> F + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let run = move || {
        runtime.block_on(task());
        // A look-up of a name that hangs must not hold up the end.
        runtime.shutdown_background();
    };
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    started.map_err(|error| format!("the {name} thread cannot start: {error}"))
}
