//! `bearward check`: reports every error in the configuration, and what is allowed and dangerous. Tries the database if
//! that is PostgreSQL.

use std::io::IsTerminal;

use super::config_argument::{ConfigArgument, report};
use super::error::CommandError;
use crate::app;
use crate::config::{self, Config, ConfigWarnings, Probe};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print errors and warnings as JSON.
    #[arg(long)]
    json: bool,
    /// Fail if there is a warning.
    #[arg(long)]
    deny_warnings: bool,
    /// Do not connect to the PostgreSQL database of the configuration.
    #[arg(long)]
    offline: bool,
}

/// Exit status 2 if there is an error, or a warning with `--deny-warnings`.
pub(super) fn run(Arguments { config, json, deny_warnings, offline }: Arguments) -> Result<(), CommandError> {
    let attempt = |config: &Config| if offline { Vec::new() } else { app::check_store(config) };
    match config::load_and_try(&config.file, Probe::None, attempt) {
        Ok((_, warnings)) => {
            if json {
                println!("{}", warnings.json());
            } else if warnings.is_empty() {
                println!("{}: no errors", config.file.display());
            } else {
                eprint!("{}", warnings.render(std::io::stderr().is_terminal()));
                println!("{}: no errors, {} to look at", config.file.display(), count(&warnings));
            }
            if deny_warnings && !warnings.is_empty() {
                return Err(CommandError::Report(String::new()));
            }
        }
        Err(errors) if json => {
            println!("{}", errors.json());
            return Err(CommandError::Report(String::new()));
        }
        Err(errors) => return Err(report(errors)),
    }
    Ok(())
}

fn count(warnings: &ConfigWarnings) -> String {
    match warnings.all().len() {
        1 => "1 warning".to_owned(),
        several => format!("{several} warnings"),
    }
}
