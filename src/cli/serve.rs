//! `bearward serve`: runs the gateway until a signal ends it.

use std::sync::Arc;

use sd_notify::NotifyState;

use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::signals::Signals;
use crate::app::{self, Inherited};
use crate::config::Probe;
use crate::protocols::socket_handover;
use crate::types::clock::SystemClock;

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Take over the sockets of the gateway that runs with this configuration, which then drains. No client is
    /// rejected. If no such gateway runs, start as usual.
    #[arg(long)]
    take_over: bool,
}

pub(super) fn run(Arguments { config: argument, take_over }: Arguments) -> Result<(), CommandError> {
    let passed = socket_handover::from_systemd()
        .map_err(|error| CommandError::failed(format!("cannot use a socket from systemd: {error}")))?;
    // Another process holds these addresses for the gateway, so they are in use.
    let probe = if take_over || !passed.is_empty() { Probe::None } else { Probe::Addresses };
    let config = argument.load_and_warn(probe)?;
    let mut signals = Signals::catch()?;
    let inherited = if take_over {
        app::take_over(&config)?
    } else if passed.is_empty() {
        Inherited::None
    } else {
        Inherited::Systemd(passed)
    };
    let running = app::start_with(config, Arc::new(SystemClock), inherited, Some(argument.file))?;
    for address in &running.addresses {
        tracing::info!(%address, "listening");
    }
    tracing::info!(socket = %running.admin_socket.display(), "admin socket listening");
    tracing::info!(address = %running.admin_address, "admin listening");
    app::notify_systemd(&[NotifyState::Ready]);
    let signal = loop {
        match signals.next_or_replaced(running.replaced()) {
            "SIGHUP" => running.reload_from_file(),
            signal => break signal,
        }
    };
    tracing::info!(signal, "draining");
    app::notify_systemd(&[NotifyState::Stopping]);
    running.drain();
    tracing::info!("drained");
    Ok(())
}
