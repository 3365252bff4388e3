//! `bearward serve`: the gateway, until a signal ends it.

use std::path::Path;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::{Failed, load};
use crate::app::{self, Running};
use crate::clock::SystemClock;
use crate::config::{self, Probe};

pub(super) fn serve(file: &Path) -> Result<(), Failed> {
    let config = load(file, Probe::Addresses)?;
    let running = app::start(config, Arc::new(SystemClock)).map_err(|error| Failed::Running(error.to_string()))?;
    for address in &running.addresses {
        tracing::info!(%address, "listening");
    }
    tracing::info!(address = %running.admin_address, "admin listening");
    notify(sd_notify::NotifyState::Ready);
    let ended_by = wait_for_the_end(Some(&|| reload(file, &running)))?;
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

/// Waits for SIGTERM or SIGINT. SIGHUP does `on_hang_up` and waits on; without one it ends the wait as well.
pub(super) fn wait_for_the_end(on_hang_up: Option<&dyn Fn()>) -> Result<&'static str, String> {
    let fault = |error: std::io::Error| format!("signals cannot be waited for: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
    // Inside the runtime: signals are received by its driver.
    let _inside = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(fault)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fault)?;
    let mut hung_up = signal(SignalKind::hangup()).map_err(fault)?;
    loop {
        let ended = runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                _ = hung_up.recv() => "SIGHUP",
            }
        });
        match on_hang_up {
            Some(hang_up) if ended == "SIGHUP" => hang_up(),
            _ => return Ok(ended),
        }
    }
}
