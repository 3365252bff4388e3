//! `bearward serve`: the gateway, until a signal ends it.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Failed, load};
use crate::app::{self, Running};
use crate::clock::SystemClock;
use crate::config::{self, Probe};

pub(super) fn serve(file: &Path) -> Result<(), Failed> {
    let config = load(file, Probe::Addresses)?;
    let mut signals = Signals::catch()?;
    let running = app::start(config, Arc::new(SystemClock)).map_err(|error| Failed::Running(error.to_string()))?;
    for address in &running.addresses {
        tracing::info!(%address, "listening");
    }
    tracing::info!(address = %running.admin_address, "admin listening");
    notify(sd_notify::NotifyState::Ready);
    let ended_by = loop {
        match signals.next() {
            "SIGHUP" => reload(file, &running),
            ended_by => break ended_by,
        }
    };
    tracing::info!(signal = ended_by, "draining");
    notify(sd_notify::NotifyState::Stopping);
    running.drain();
    tracing::info!("drained");
    Ok(())
}

/// Tells systemd, if it is there to be told.
fn notify(state: sd_notify::NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "systemd was not told");
    }
}

/// Reads the file again. A fault in it changes nothing, and is said.
fn reload(file: &Path, running: &Running) {
    let config = match config::load(file, Probe::None) {
        Ok(config) => config,
        Err(faults) => return tracing::error!("nothing was reloaded:\n{}", faults.render(false)),
    };
    match running.reload(config) {
        Ok(unchanged) if unchanged.is_empty() => tracing::info!("reloaded"),
        Ok(unchanged) => tracing::warn!(takes_a_restart = unchanged.join(", "), "reloaded, but for these"),
        Err(error) => tracing::error!(%error, "nothing was reloaded"),
    }
}

/// SIGTERM, SIGINT and SIGHUP, caught from the moment that this is made: one that comes during the start waits for its end,
/// and is heeded then.
pub(super) struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(super) fn catch() -> Result<Self, String> {
        let fault = |error: std::io::Error| format!("signals cannot be waited for: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
        // Inside the runtime: signals are received by its driver.
        let inside = runtime.enter();
        let [terminate, interrupt, hang_up] =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        drop(inside);
        let (terminate, interrupt) = (terminate.map_err(fault)?, interrupt.map_err(fault)?);
        Ok(Signals { terminate, interrupt, hang_up: hang_up.map_err(fault)?, runtime })
    }

    /// Waits for one of them. Answers its name.
    pub(super) fn next(&mut self) -> &'static str {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.hang_up.recv() => "SIGHUP",
            }
        })
    }
}
