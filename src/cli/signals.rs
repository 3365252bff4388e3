//! SIGTERM, SIGINT and SIGHUP.

use std::io;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::error::CommandError;

/// Catches the signals from its creation on: one that arrives during the start is handled after the start.
pub(super) struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(super) fn catch() -> Result<Self, CommandError> {
        Self::register().map_err(|error| CommandError::failed(format!("cannot catch signals: {error}")))
    }

    fn register() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Inside the runtime: its driver receives the signals.
        let inside = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hang_up = signal(SignalKind::hangup())?;
        drop(inside);
        Ok(Signals { terminate, interrupt, hang_up, runtime })
    }

    /// Waits for a signal, and returns its name.
    pub(super) fn next(&mut self) -> &'static str {
        self.next_or(std::future::pending())
    }

    /// As [`Signals::next`], but returns "take-over" when another gateway has taken over.
    pub(super) fn next_or_replaced(&mut self, mut replaced: watch::Receiver<bool>) -> &'static str {
        self.next_or(async move {
            match replaced.wait_for(|replaced| *replaced).await {
                Ok(_) => "take-over",
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn next_or(&mut self, other: impl Future<Output = &'static str>) -> &'static str {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.hang_up.recv() => "SIGHUP",
                other = other => other,
            }
        })
    }
}
