//! `bearward serve`: the gateway, until a signal ends it.

use std::path::Path;
use std::sync::Arc;

use sd_notify::NotifyState;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::{Failed, load};
use crate::app::{self, Inherited, StartError};
use crate::config::Probe;
use crate::protocols::socket_handover;
use crate::types::clock::SystemClock;

pub(super) fn serve(file: &Path, take_over: bool) -> Result<(), Failed> {
    let passed =
        socket_handover::from_systemd().map_err(|error| format!("a socket of systemd cannot be used: {error}"))?;
    // Addresses that another process holds for us are in use, and rightly so.
    let probe = if take_over || !passed.is_empty() { Probe::None } else { Probe::Addresses };
    let config = load(file, probe)?;
    let mut signals = Signals::catch()?;
    let failed = |error: StartError| Failed::Running(error.to_string());
    let inherited = match take_over {
        true => app::take_over(&config).map_err(failed)?,
        false if passed.is_empty() => Inherited::None,
        false => Inherited::Systemd(passed),
    };
    let running = app::start_with(config, Arc::new(SystemClock), inherited, Some(file.to_owned())).map_err(failed)?;
    for address in &running.addresses {
        tracing::info!(%address, "listening");
    }
    tracing::info!(address = %running.admin_address, "admin listening");
    app::tell_systemd(&[NotifyState::Ready]);
    let ended_by = loop {
        match signals.next_or_replaced(running.replaced()) {
            "SIGHUP" => running.reload_from_file(),
            ended_by => break ended_by,
        }
    };
    tracing::info!(signal = ended_by, "draining");
    app::tell_systemd(&[NotifyState::Stopping]);
    running.drain();
    tracing::info!("drained");
    Ok(())
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
        self.next_or(std::future::pending())
    }

    /// As [`Signals::next`], but answers "take-over" when another gateway has taken over.
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
