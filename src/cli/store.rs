//! `bearward store copy|migrate|sweep`: moves a gateway from SQLite to PostgreSQL, changes the tables for a new
//! version, and deletes what no longer matters.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Subcommand, ValueEnum};

use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::output::say;
use super::progress::Progress;
use crate::app::{self, CopyStep, Owner};
use crate::config::Probe;
use crate::store::postgres::PasswordSource;
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
        #[arg(long, value_enum, default_value_t = CopyTarget::Postgres)]
        to: CopyTarget,
    },
    /// Create the tables in PostgreSQL, or change them for this version, beside running gateways of the version before.
    /// Indexes of large tables are built without a limit of time, and no refresh waits for them. SQLite needs no such
    /// step, because a gateway makes it at its start.
    Migrate {
        #[command(flatten)]
        config: ConfigArgument,
        /// The role that owns the tables, if it is not the user of `store.postgres`.
        #[arg(long, value_name = "ROLE")]
        owner: Option<String>,
        /// The password of that role.
        #[arg(long, value_name = "FILE", requires = "owner")]
        owner_password_file: Option<PathBuf>,
    },
    /// Delete expired sessions, revocations and list entries at once. A running gateway deletes them slowly; after a
    /// long stop, or before a copy or backup, this is faster. With SQLite, stop the gateway first. Fail if there is no
    /// database.
    Sweep {
        #[command(flatten)]
        config: ConfigArgument,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum CopyTarget {
    Postgres,
}

pub(super) fn run(command: StoreCommand) -> Result<(), CommandError> {
    match command {
        StoreCommand::Copy { config, from, to: CopyTarget::Postgres } => copy(&config, &from),
        StoreCommand::Migrate { config, owner, owner_password_file } => {
            let password = owner_password_file.map(PasswordSource::File);
            migrate(&config, owner.map(|role| Owner { role, password }))
        }
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

fn migrate(argument: &ConfigArgument, owner: Option<Owner>) -> Result<(), CommandError> {
    let config = argument.load(Probe::None)?;
    // A success, so that a script can run it before each upgrade.
    if !config.store.is_shared() {
        say!("store.sqlite needs no migration: a gateway changes its tables at its start; nothing was changed");
        return Ok(());
    }
    let mut shown = Progress::on_stderr();
    let mut progress = |part: &str, done, total| shown.show(part, done, (total > 0).then_some(total));
    match app::migrate_store(&config, owner, SystemClock.now(), &mut progress)? {
        0 => say!("the tables in the {} are those of this version", config.store.database),
        steps => say!("made {steps} steps; the tables in the {} are those of this version", config.store.database),
    }
    Ok(())
}

fn sweep(argument: &ConfigArgument) -> Result<(), CommandError> {
    let config = argument.load(Probe::None)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CommandError::invalid)?;
    let mut shown = Progress::on_stderr();
    let mut progress = |deleted| shown.show("deleted rows", deleted as u64, None);
    let swept = runtime.block_on(app::sweep_store(&config, Arc::new(SystemClock), &mut progress))?;
    shown.show("deleted rows", swept.deleted as u64, Some(swept.deleted as u64));
    say!("deleted {} rows of the {} that no longer matter", swept.deleted, config.store.database);
    match swept.left.rows {
        0 => say!("rows left: 0"),
        left => say!("rows left: {left}; a gateway deletes them now, or a transaction has locked them"),
    }
    Ok(())
}
