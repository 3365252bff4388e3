//! `bearward check`: reports every error in the configuration, and what is allowed and dangerous.

use std::io::IsTerminal;

use super::config_argument::{ConfigArgument, report};
use super::error::CommandError;
use crate::config::{self, ConfigWarnings, Probe};

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
}

/// Exit status 2 if there is an error, or a warning with `--deny-warnings`.
pub(super) fn run(Arguments { config, json, deny_warnings }: Arguments) -> Result<(), CommandError> {
    match config::load_with_warnings(&config.file, Probe::None) {
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
