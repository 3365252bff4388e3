//! `bearward serve`: the gateway, until a signal ends it.

use std::path::Path;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::{Failed, load};
use crate::app;
use crate::clock::SystemClock;
use crate::config::Probe;

pub(super) fn serve(file: &Path) -> Result<(), Failed> {
    let config = load(file, Probe::Addresses)?;
    let running = app::start(config, Arc::new(SystemClock)).map_err(|error| Failed::Running(error.to_string()))?;
    for address in &running.addresses {
        tracing::info!(%address, "listening");
    }
    tracing::info!(address = %running.admin_address, "admin listening");
    notify(sd_notify::NotifyState::Ready);
    let ended_by = wait_for_the_end()?;
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

/// Waits for SIGTERM or SIGINT.
pub(super) fn wait_for_the_end() -> Result<&'static str, String> {
    let fault = |error: std::io::Error| format!("signals cannot be waited for: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(fault)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(fault)?;
        Ok(tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        })
    })
}
