//! `bearward store copy`: moves a gateway from SQLite to PostgreSQL.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::config_argument::ConfigArgument;
use super::error::CommandError;
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
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Target {
    Postgres,
}

pub(super) fn run(
    StoreCommand::Copy { config: argument, from, to: Target::Postgres }: StoreCommand,
) -> Result<(), CommandError> {
    let config = argument.load(Probe::None)?;
    let from = match from.to_str() {
        Some("sqlite") => argument.file.with_file_name("bearward.db"),
        _ => from,
    };
    let mut shown = Progress::on_stderr();
    let copied = app::copy_store(&config, &from, SystemClock.now(), &mut |step| match step {
        CopyStep::Written { part, done, total } => shown.show(part.name(), done, total),
        CopyStep::Compared { part, done, total } => shown.show(&format!("{}, compared", part.name()), done, total),
    })?;
    println!("copied {} to the {}; both have the same content:", from.display(), config.store.database);
    for (part, checksum) in copied.parts {
        println!("  {:24}  {:>10}  {}", part.name(), checksum.count, checksum.hash());
    }
    println!("start the gateways now, and keep {} until they work", from.display());
    Ok(())
}
