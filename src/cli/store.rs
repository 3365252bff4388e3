//! `bearward store copy|sweep`: moves a gateway from SQLite to PostgreSQL, and deletes what no longer matters.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Subcommand, ValueEnum};

use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::output::say;
use super::progress::Progress;
use crate::app::{self, CopyStep};
use crate::config::Probe;
use crate::types::clock::{Clock, SystemClock};

#[derive(Subcommand)]
pub(super) enum StoreCommand {
    /// Copy sessions, revocations, signing keys and undelivered audit events from an SQLite database to the PostgreSQL
    /// database of the configuration. Stop the gateway first. No session ends.
    Copy {
        #[command(flatten)]
        config: ConfigArgument,
        /// The SQLite database. "sqlite": the file bearward.db beside the configuration.
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// The kind of the store in the configuration.
        #[arg(long, value_enum, default_value_t = Target::Postgres)]
        to: Target,
    },
    /// Delete expired sessions, revocations and list entries at once. A running gateway deletes them slowly, a few
    /// hundred per second; after a long stop, or before a copy or backup, this is faster. With SQLite, stop the gateway
    /// first.
    Sweep {
        #[command(flatten)]
        config: ConfigArgument,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Target {
    Postgres,
}

pub(super) fn run(command: StoreCommand) -> Result<(), CommandError> {
    match command {
        StoreCommand::Copy { config, from, to: Target::Postgres } => copy(&config, &from),
        StoreCommand::Sweep { config } => sweep(&config),
    }
}

fn copy(argument: &ConfigArgument, from: &Path) -> Result<(), CommandError> {
    let config = argument.load(Probe::None)?;
    let from = match from.to_str() {
        Some("sqlite") => argument.file.with_file_name("bearward.db"),
        _ => from.to_owned(),
    };
    let mut shown = Progress::on_stderr();
    let copied = app::copy_store(&config, &from, SystemClock.now(), &mut |step| match step {
        CopyStep::Written { part, done, total } => shown.show(part.name(), done, Some(total)),
        CopyStep::Compared { part, done, total } => {
            shown.show(&format!("{}, compared", part.name()), done, Some(total))
        }
    })?;
    say!("copied {} to the {}; both have the same content:", from.display(), config.store.database);
    for (part, checksum) in copied.parts {
        say!("  {:24}  {:>10}  {}", part.name(), checksum.count, checksum.hash());
    }
    say!("start the gateways now, and keep {} until they work", from.display());
    Ok(())
}

fn sweep(argument: &ConfigArgument) -> Result<(), CommandError> {
    let config = argument.load(Probe::None)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CommandError::invalid)?;
    let mut shown = Progress::on_stderr();
    let mut progress = |deleted| shown.show("deleted rows", deleted as u64, None);
    let deleted = runtime.block_on(app::sweep_store(&config, Arc::new(SystemClock), &mut progress))?;
    shown.show("deleted rows", deleted as u64, Some(deleted as u64));
    say!("deleted {deleted} rows of the {} that no longer matter", config.store.database);
    Ok(())
}
